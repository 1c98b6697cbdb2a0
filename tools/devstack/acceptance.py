# SPDX-License-Identifier: Apache-2.0

"""Exercise of the plug-in in a DevStack, through its commands and APIs.

A secondary is throttled, migrated, suspended and returned, and loses no work;
a lease is served.  Then unstack.sh, stack.sh, the same again, and clean.sh:
nothing of the plug-in may be left.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import json
import time
import typing

import cgroups
import containers
import dashboard_pages
import guest
import layout
import listing
import nodes
from shell import BoxError, say
import uplink

#: CPUs of the host with the secondary, and of another one with the control
#: plane: the machine has few of them, and a policy that fails for want of a
#: CPU would prove nothing.
HOST_CPUS = 0.8
CONTROL_CPUS = 1.2
#: Services, each with one process, that load a host; CPU time of each, of one
#: CPU, beside which a secondary is throttled. Without a limit they fill it,
#: apart from what the control plane needs.
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
                        '-c OS-EXT-SRV-ATTR:host -c id '
                        '-c OS-EXT-STS:task_state')

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
    _check_services(names, services)
    if not once:
        nodes.unstack(names)
        _check_gone('unstack.sh', names,
                    ('file', 'text', 'unit', 'database', 'audit'))
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
    with _small_hosts(names):
        try:
            _check_preemption(cloud)
            _check_lease(cloud)
        finally:
            for node in names:
                _stop_load(node)
    say(f'memory: {nodes.memory_mb(names)} MiB in use by the nodes')


@contextlib.contextmanager
def _small_hosts(names: Sequence[str]) -> Iterator[None]:
    """Let the nodes have the CPUs of hosts that can be filled."""
    for node in names:
        cgroups.resize_host(
            node, HOST_CPUS if node == names[-1] else CONTROL_CPUS)
    # A busy program beside the nodes must not look like a busy host.
    cgroups.share(cgroups.path('cpu'), cgroups.BOX_SHARES)
    try:
        yield
    finally:
        cgroups.share(cgroups.path('cpu'), nodes.SHARES)
        for node in names:
            cgroups.limit(cgroups.path('cpu', f'hosts/{node}'), None)


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
            '-p', 'KillSignal=SIGKILL', '-p', 'CPUWeight=10',
            'sh', '-c', 'while :; do :; done'])


def _stop_load(node: str) -> None:
    containers.run_in(node, ['systemctl', 'stop', *_LOAD], check=False)


def _cap(cloud: Cloud, uuid: str) -> float | None:
    """Return the limit of a secondary on the busy host, in percent of it."""
    for one in cloud.agent(cloud.busy).get('instances', ()):
        if one['uuid'] == uuid:
            return one['cap']
    return None


def _check_preemption(cloud: Cloud) -> None:
    """Check that a secondary is throttled, preempted and returned.

    With two nodes it is migrated as long as the other one has room.
    """
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
    others = cloud.names[:-1]
    if others:
        _check_one_return(cloud, [cloud.busy], 'ACTIVE', others)
    _check_one_return(cloud, cloud.names, 'SUSPENDED', cloud.names)
    cloud.command('openstack server delete --wait try')


def _check_one_return(cloud: Cloud, full: Sequence[str], status: str,
                      hosts: Sequence[str]) -> None:
    """Check that a secondary leaves a full host, returns, and goes on.

    :param full: the hosts that are filled.
    :param status: of the secondary while they are.
    :param hosts: on one of which it is then.
    """
    boot, units = cloud.units('try')
    for node in full:
        _load(node, None)
    seen: dict = {}

    def reached(status: str, hosts: Sequence[str]) -> bool:
        seen.update(cloud.server('try'))
        return (seen['status'] == status
                and seen['OS-EXT-STS:task_state'] is None
                and seen['OS-EXT-SRV-ATTR:host'] in hosts)

    def works() -> bool:
        other, now = cloud.units('try')
        if other and other != boot:
            raise BoxError('the guest has booted anew')
        return now > units

    seconds = wait_until(
        lambda: reached(status, hosts), 300,
        lambda: f'{status} on {" or ".join(hosts)} while '
        f'{" and ".join(full)} were full: {seen}. The reason is in the log '
        'of the switch: python3 tools/devstack exec journalctl -u '
        'devstack@watcher-decision-engine -u devstack@watcher-applier')
    say(f'{status} on {seen["OS-EXT-SRV-ATTR:host"]}, {seconds:.0f} s after '
        f'{" and ".join(full)} had become full')
    if status == 'ACTIVE':
        wait_until(works, 120, lambda: f'more than {units} units there: '
                   f'{cloud.units("try")}')
    for node in full:
        _stop_load(node)
    seconds = wait_until(
        lambda: reached('ACTIVE', [cloud.busy]) and works()
        and 'secondary:preempted' not in seen['properties'], 400,
        lambda: f'returned: {seen}, {cloud.units("try")}')
    say(f'back on {cloud.busy} {seconds:.0f} s after the load, {units} units '
        f'before, {cloud.units("try")[1]} now')


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


def _check_services(names: Sequence[str], services: Sequence[str]) -> None:
    """Check the services that the first node has as well."""
    if 'horizon' in services:
        url = f'http://{uplink.address(names[0])}/dashboard'
        for user, expected in (('admin', 5), ('demo', 1)):
            panels = dashboard_pages.open_panels(url, user, nodes.SECRET)
            if len(panels) != expected:
                raise BoxError(f'{user} sees the panels {panels} at {url}, '
                               f'not {expected} of them')
            say(f'the dashboard shows {user} {" ".join(panels)}')
    if 'tempest' in services:
        run_tempest(names)


def run_tempest(names: Sequence[str]) -> None:
    """Run the plug-in's tests with the Tempest that stack.sh has installed.

    :raises BoxError: with the end of its log, if a test fails.
    """
    log = layout.LOG / 'tempest.log'
    log.unlink(missing_ok=True)
    say(f'Tempest, with its output in {log} ...')
    began = time.monotonic()
    with _small_hosts(names):
        nodes.as_stack(
            names[0], 'cd ../tempest && .tox/tempest/bin/tempest run '
            '--serial --regex secondary_tempest_plugin', log=log.stem)
    for line in log.read_text(errors='replace').splitlines():
        if line.startswith(' - '):
            say(line)
    say(f'Tempest ran for {time.monotonic() - began:.0f} s')


def _check_gone(script: str, names: Sequence[str],
                kinds: Sequence[str]) -> None:
    """Check that a script has left nothing of the plug-in.

    :param kinds: of things that may be left.
    """
    for node in names:
        new = listing.take(node) - listing.before(node)
        left = [line for line in listing.ours(new)
                if line.split()[0] not in kinds]
        if left:
            raise BoxError(f'{script} has left on {node}:\n'
                           + '\n'.join(left))
        path = listing.write(node, script, new)
        say(f'{script} has left nothing of the plug-in on {node}; what '
            f'DevStack has left: {path}')
