# SPDX-License-Identifier: Apache-2.0

"""Exercise of the plug-in in a DevStack, through its commands and APIs.

A secondary is throttled, preempted and returned, and loses no work; a lease
is served.  Then unstack.sh, stack.sh, the same again, and clean.sh: nothing
of the plug-in may be left.
"""

from collections.abc import Callable, Sequence
import json
import time
import typing

import cgroups
import containers
import guest
import listing
import nodes
from shell import BoxError, say

#: CPUs of a host that is to be busy: the machine has few of them, and a
#: policy that fails for want of a CPU would prove nothing.
HOST_CPUS = 0.8
#: Services, each with one process, that load a host; CPU time of each, of one
#: CPU, beside which a secondary is throttled. Without a limit they fill it.
_LOAD = ('load-1', 'load-2')
SOME_LOAD = '20%'
SWITCH = 'secondary'
FLAVOR = 'secondary'
IMAGE = 'worker-cpu'


class Cloud:
    """The cloud as admin sees it from the first node."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        #: The host that gets the load; with two the one without the control
        #: plane, whose services would be slowed down.
        self.busy = self.names[-1]

    def command(self, line: str, check: bool = True) -> str:
        """Run a line of shell as stack on the first node; return its output.

        :raises BoxError: if it fails.
        """
        return nodes.as_stack(self.names[0], line, check=check).stdout

    def ask(self, line: str) -> typing.Any:
        """Run an openstack command; return its answer."""
        text = self.command(f'openstack {line} -f json 2> /dev/null')
        return json.loads(text)

    def agent(self, node: str) -> dict:
        """Return the status of a node's agent; empty while it has none."""
        done = containers.run_in(node, [
            f'{nodes.VENV}/bin/secondary-agent', 'status', '--json'],
            check=False)
        return {} if done.returncode else json.loads(done.stdout)

    def server(self, name: str) -> dict:
        """Return a server: status, host and properties."""
        return self.ask(f'server show {name} -c status -c properties '
                        '-c OS-EXT-SRV-ATTR:host -c id')

    def units(self, name: str) -> tuple[str, int]:
        """Return a guest's boot and the units of work it has done since."""
        text = self.command(f'openstack console log show {name} --lines 5',
                            check=False)
        found = guest.UNITS.findall(text.encode())
        return (found[-1][0].decode(), int(found[-1][1])) if found else (
            '', 0)


def wait_until(ready: Callable[[], object], timeout: float,
               describe: Callable[[], object], period: float = 3) -> float:
    """Wait until something is true; return the seconds it took.

    :raises BoxError: with what is seen instead, after ``timeout`` seconds.
    """
    began = time.monotonic()
    while not ready():
        if time.monotonic() - began > timeout:
            raise BoxError(f'not within {timeout:g} s: {describe()}')
        time.sleep(period)
    return time.monotonic() - began


def run_all(names: list[str], base: str, services: Sequence[str],
            once: bool) -> None:
    """Run everything; the nodes are stacked, and clean at the end.

    :param once: only the exercise itself; the nodes stay stacked.
    :raises BoxError: at the first thing that is not as it has to be.
    """
    began = time.monotonic()
    exercise(names)
    if not once:
        nodes.unstack(names)
        _check_gone('unstack.sh', names, ('file', 'unit', 'database', 'audit'))
        nodes.make(names, base, services)
        nodes.seed(names[0])
        exercise(names)
        nodes.clean(names)
        _check_gone('clean.sh', names, ())
    say(f'all is as it has to be, after {time.monotonic() - began:.0f} s')


def exercise(names: list[str]) -> None:
    """Let a secondary and a lease do what the plug-in promises."""
    cloud = Cloud(names)
    _check_up(cloud)
    # Of an interrupted run.
    cloud.command('openstack server delete --wait try', check=False)
    cloud.command('openstack secondary lease delete pair', check=False)
    cgroups.resize_host(cloud.busy, HOST_CPUS)
    # A busy program beside the nodes must not look like a busy host.
    cgroups.share(cgroups.path('cpu'), cgroups.BOX_SHARES)
    try:
        _check_preemption(cloud)
        _check_lease(cloud)
    finally:
        _stop_load(cloud.busy)
        cgroups.share(cgroups.path('cpu'), nodes.SHARES)
        cgroups.limit(cgroups.path('cpu', f'hosts/{cloud.busy}'), None)
    say(f'memory: {memory_mb(names)} MiB in use by the nodes')


def memory_mb(names: Sequence[str]) -> int:
    """Return the memory of the nodes' processes, in MiB, without caches."""
    total = 0
    for name in names:
        group = cgroups.path('memory', f'hosts/{name}')
        stat = dict(line.split() for line in
                    (group / 'memory.stat').read_text().splitlines())
        total += int(stat.get('total_rss') or stat['anon'])
    return total >> 20


def _check_up(cloud: Cloud) -> None:
    """Check hosts, switch and the status check."""
    for node in cloud.names:
        seconds = wait_until(
            lambda node=node: cloud.agent(node).get('admission'), 240,
            lambda node=node: f'{node} open: {cloud.agent(node)}')
        say(f'{node} is open, after {seconds:.0f} s')
    state = cloud.ask(f'optimize audit show {SWITCH} -c State')['State']
    if state != 'ONGOING':
        raise BoxError(f'the switch is {state}')
    done = nodes.as_stack(
        cloud.names[0], f'{nodes.VENV}/bin/secondary-scheduler-status '
        '--config-file /etc/nova/nova.conf --config-file '
        '/etc/secondary_scheduler/secondary_scheduler.conf upgrade check',
        check=False)
    # 1 is a warning, 2 an error.
    if done.returncode > 1:
        raise BoxError(f'upgrade check:\n{done.stdout}')
    say(f'the switch is on; upgrade check ended with {done.returncode}')


def _load(node: str, quota: str | None) -> None:
    """Load a host outside any guest, as services of it would."""
    _stop_load(node)
    limit = ['-p', f'CPUQuota={quota}'] if quota else []
    for unit in _LOAD:
        containers.run_in(node, [
            'systemd-run', '--collect', f'--unit={unit}', *limit,
            '-p', 'KillSignal=SIGKILL', 'sh', '-c', 'while :; do :; done'])


def _stop_load(node: str) -> None:
    containers.run_in(node, ['systemctl', 'stop', *_LOAD], check=False)


def _cap(cloud: Cloud, uuid: str) -> float | None:
    """Return the limit of a secondary on the busy host, in percent of it."""
    for one in cloud.agent(cloud.busy).get('instances', ()):
        if one['uuid'] == uuid:
            return one['cap']
    return None


def _check_preemption(cloud: Cloud) -> None:
    """Check that a secondary is throttled, preempted and returned."""
    cloud.command(f'openstack server create --flavor {FLAVOR} --image '
                  f'{IMAGE} --nic none --host {cloud.busy} --wait try')
    uuid = cloud.server('try')['id']
    say(f'a secondary has booted on {cloud.busy}')
    wait_until(lambda: cloud.units('try')[1] > 3, 240,
               lambda: f'a guest that works: {cloud.units("try")}')
    wait_until(lambda: (_cap(cloud, uuid) or 0) > 45, 120,
               lambda: f'a limit without load: {_cap(cloud, uuid)}')
    alone = _cap(cloud, uuid)
    _load(cloud.busy, SOME_LOAD)
    wait_until(lambda: 0 < (_cap(cloud, uuid) or 0) < alone - 15, 60,
               lambda: f'throttled: {_cap(cloud, uuid)} of {alone}', 1)
    say(f'beside load: at most {_cap(cloud, uuid):.0f} % of the host instead '
        f'of {alone:.0f} %')
    before = cloud.units('try')
    _load(cloud.busy, None)
    began = time.monotonic()
    seen: dict = {}

    def gone() -> bool:
        seen.update(cloud.server('try'))
        return (seen['status'] in ('SUSPENDED', 'SHELVED_OFFLOADED')
                or seen['OS-EXT-SRV-ATTR:host'] != cloud.busy)

    wait_until(gone, 300, lambda: f'preempted: {seen}')
    say(f'on the full host: {seen["status"]} on '
        f'{seen["OS-EXT-SRV-ATTR:host"]} after '
        f'{time.monotonic() - began:.0f} s')
    _stop_load(cloud.busy)

    def returned() -> bool:
        seen.update(cloud.server('try'))
        boot, units = cloud.units('try')
        if boot and boot != before[0]:
            raise BoxError('the guest has booted anew')
        return (seen['status'] == 'ACTIVE' and units > before[1]
                and 'secondary:preempted' not in seen['properties'])

    seconds = wait_until(returned, 400, lambda: f'returned: {seen}')
    say(f'after the load: {seen["status"]} on '
        f'{seen["OS-EXT-SRV-ATTR:host"]} after {seconds:.0f} s, '
        f'{before[1]} units before, {cloud.units("try")[1]} now')
    cloud.command('openstack server delete --wait try')


def _check_lease(cloud: Cloud) -> None:
    """Check that a lease of two servers for a minute is served."""
    cloud.ask('secondary lease create pair --duration 1m --nodes '
              f'number=2,flavor={FLAVOR},image={IMAGE},network=none')
    state = ''

    def done() -> bool:
        nonlocal state
        state = cloud.ask('secondary lease show pair')['state']
        return state in ('done', 'failed', 'rejected', 'cancelled')

    seconds = wait_until(done, 600, lambda: 'the lease is done: ' + state)
    if state != 'done':
        raise BoxError(f'the lease is {state}: ' + cloud.command(
            'openstack secondary lease events pair'))
    say(f'a lease of two for a minute is done, after {seconds:.0f} s')
    cloud.command('openstack secondary lease delete pair')


def _check_gone(script: str, names: Sequence[str],
                kinds: Sequence[str]) -> None:
    """Check that a script has left nothing of the plug-in.

    :param kinds: of things that may be left.
    """
    for node in names:
        left = [line for line in listing.ours(listing.take(node))
                if line.split()[0] not in kinds]
        if left:
            raise BoxError(f'{script} has left on {node}:\n'
                           + '\n'.join(left))
        say(f'{script} has left nothing of the plug-in on {node}')
