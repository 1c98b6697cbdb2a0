# SPDX-License-Identifier: Apache-2.0

"""Network namespaces: the control plane's with a bridge, one for each host."""

import pathlib

import layout
from shell import run


def exists(netns: str) -> bool:
    """Return whether a network namespace is there."""
    return pathlib.Path(f'/run/netns/{netns}').exists()


def host_netns(host: str) -> str:
    """Return the name of a compute host's network namespace."""
    return f'{layout.NETNS}-{host}'


def up(hosts: list[str]) -> None:
    """Make what is missing of the namespaces, the bridge and the links."""
    if not exists(layout.NETNS):
        run(['ip', 'netns', 'add', layout.NETNS])
        ip = ['ip', '-n', layout.NETNS]
        run([*ip, 'link', 'set', 'lo', 'up'])
        run([*ip, 'link', 'add', 'br0', 'type', 'bridge'])
        run([*ip, 'addr', 'add', f'{layout.CONTROL}/24', 'dev', 'br0'])
        run([*ip, 'link', 'set', 'br0', 'up'])
    for host in hosts:
        netns = host_netns(host)
        if exists(netns):
            continue
        run(['ip', 'netns', 'add', netns])
        run(['ip', '-n', layout.NETNS, 'link', 'add', f'v-{host}', 'type',
             'veth', 'peer', 'name', 'eth0', 'netns', netns])
        run(['ip', '-n', layout.NETNS, 'link', 'set', f'v-{host}', 'master',
             'br0', 'up'])
        run(['ip', '-n', netns, 'addr', 'add',
             f'{layout.host_address(host)}/24', 'dev', 'eth0'])
        for device in ('lo', 'eth0'):
            run(['ip', '-n', netns, 'link', 'set', device, 'up'])


def down() -> None:
    """Remove every namespace of the box; the links go with them."""
    for pattern in (layout.NETNS, f'{layout.NETNS}-box*'):
        for netns in pathlib.Path('/run/netns').glob(pattern):
            run(['ip', 'netns', 'del', netns.name], check=False)
