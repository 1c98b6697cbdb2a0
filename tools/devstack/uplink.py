# SPDX-License-Identifier: Apache-2.0

"""Network of the nodes: one network namespace each, a bridge, NAT.

The bridge is in the machine's own namespace, so the machine can reach the
nodes, and the nodes reach the package mirrors by address translation.
"""

import pathlib
import shutil

import layout
from shell import run

#: At most 15 characters.
BRIDGE = 'sec-devstack'
NETWORK = '10.78.0.0/24'
GATEWAY = '10.78.0.254'
_FORWARDING = pathlib.Path('/proc/sys/net/ipv4/ip_forward')
#: Whether the machine forwarded packets before; the file is there while this
#: program has changed it.
_BEFORE = layout.RUN / 'ip_forward'
_RULES = (
    ('nat', 'POSTROUTING', '-s', NETWORK, '!', '-d', NETWORK,
     '-j', 'MASQUERADE'),
    ('filter', 'FORWARD', '-i', BRIDGE, '-j', 'ACCEPT'),
    ('filter', 'FORWARD', '-o', BRIDGE, '-j', 'ACCEPT'))


def netns(node: str) -> str:
    """Return the name of a node's network namespace."""
    return f'{layout.NAME}-{node}'


def address(node: str) -> str:
    """Return the address of a node, node1 or node2."""
    return f'10.78.0.{int(node.removeprefix("node"))}'


def _exists(name: str) -> bool:
    return pathlib.Path(f'/run/netns/{name}').exists()


def _has_bridge() -> bool:
    return pathlib.Path(f'/sys/class/net/{BRIDGE}').exists()


def _rule(verb: str, rule: tuple[str, ...], check: bool = True) -> bool:
    table, chain, *words = rule
    return run(['iptables', '-w', '-t', table, verb, chain, *words],
               check=check).returncode == 0


def up(nodes: list[str]) -> None:
    """Make what is missing of bridge, address translation and namespaces."""
    if not shutil.which('iptables'):
        run(['apt-get', 'install', '-y', '--no-install-recommends',
             'iptables'], log='apt')
    if not _has_bridge():
        run(['ip', 'link', 'add', BRIDGE, 'type', 'bridge'])
        run(['ip', 'addr', 'add', f'{GATEWAY}/24', 'dev', BRIDGE])
        run(['ip', 'link', 'set', BRIDGE, 'up'])
    for rule in _RULES:
        if not _rule('-C', rule, check=False):
            _rule('-I', rule)
    if _FORWARDING.read_text().strip() == '0':
        _BEFORE.parent.mkdir(parents=True, exist_ok=True)
        _BEFORE.write_text('0')
        _FORWARDING.write_text('1')
    for number, node in enumerate(nodes, 1):
        if _exists(netns(node)):
            continue
        link = f'{BRIDGE}-{number}'
        run(['ip', 'netns', 'add', netns(node)])
        ip = ['ip', '-n', netns(node)]
        run(['ip', 'link', 'add', link, 'type', 'veth', 'peer', 'name',
             'eth0', 'netns', netns(node)])
        run(['ip', 'link', 'set', link, 'master', BRIDGE, 'up'])
        run([*ip, 'addr', 'add', f'{address(node)}/24', 'dev', 'eth0'])
        for device in ('lo', 'eth0'):
            run([*ip, 'link', 'set', device, 'up'])
        run([*ip, 'route', 'add', 'default', 'via', GATEWAY])


def down() -> None:
    """Remove all of it; the links go with the namespaces."""
    for found in pathlib.Path('/run/netns').glob(f'{layout.NAME}-node*'):
        run(['ip', 'netns', 'del', found.name], check=False)
    if not _has_bridge():
        return
    run(['ip', 'link', 'del', BRIDGE], check=False)
    for rule in _RULES:
        _rule('-D', rule, check=False)
    if _BEFORE.exists():
        _FORWARDING.write_text(_BEFORE.read_text())
        _BEFORE.unlink()
