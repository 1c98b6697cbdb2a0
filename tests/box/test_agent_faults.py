# SPDX-License-Identifier: Apache-2.0

"""Faults of an agent and of the services around it, without Watcher.

Watcher's switch is paused here, so the agents alone
hold the policies; all tests share one set-up.  On one host primaries run
beside secondaries, and a process there asks for more than the policy leaves:
then the secondaries go to the floor, a second before a policy would be
invalid, and up again when it has ended.  Each fault comes in the middle of
that.  Observed is the kernel's account (``observer``), and the agent's own
status is compared with it.
"""

import collections
import contextlib
import itertools
import json
import pathlib
import random
import re
import subprocess
import threading
import time

from openstack import exceptions
from oslo_config import cfg
import pytest

import hosts as box_hosts
import layout
from secondary_scheduler.conf import policy
from secondary_scheduler.reports import agent_rpc, book, report_messages
import seed
import shell
from tests.box import load, services
from tests.box import observer as observers
from tests.box.fleet import AWAY
from tests.box.primaries import BY_HAND, ControlFiles, connect
from tests.box.services import agent_status, wait_until
from tests.box.trial import Trial

pytestmark = pytest.mark.soak

SEED = 4
#: What a primary asks for, in percent of its host: more than the policy
#: leaves, and as much as leaves a little to secondaries.
BURST, BUSY = 85.0, 35.0
#: Seconds of two control periods; of two statements of an agent, of which one
#: may be old when it is read; and between two looks at the limits.
PERIODS_S, SAYS_S, LOOK_S = 1.0, 2.0, 0.05
#: In which the floor has come: before the policy is invalid.
FLOORS_S = layout.TIMELIMIT
#: In which all are up again after a burst: an agent waits for some calm
#: seconds (``floor_lift_delay``), and what it measures first is a burst.
LIFTS_S = 60
#: The floor of a vCPU, quota and period in microseconds.
FLOOR = (1000, 100_000)
#: What a guest has to have to be of use, in percent of a host.
SHARE = 1
#: Percent of a host by which a limit in force may differ from a share that is
#: said with two digits.
ROUNDING = 0.1
#: In which Watcher has noticed that its switch is paused.
NOTICED_S = 40
#: How often an agent is killed.
KILLS = 50
#: How long operations go on, and how long an owner insists.
OPERATIONS_S, INSISTS_S = 150, 30
#: A clock of the agent's own: what Python takes for the time, and as much
#: more as a file says, which is looked at once a second.
CLOCK = '''\
import time

real, step, seen = time.time, 0.0, 0.0


def shifted():
    global step, seen
    if time.monotonic() - seen > 1:
        seen = time.monotonic()
        with open({path!r}) as opened:
            step = float(opened.read() or 0)
    return real() + step


time.time = shifted
'''


def said(host):
    """Return the path of the status of an agent in its host."""
    return pathlib.Path(f'/proc/{box_hosts.outer_pid(host)}/root'
                        f'{box_hosts.directory(host)}/agent/status.json')


class Stage:
    """The host with the primaries, and its observation."""

    def __init__(self, host, fleet, observer, files):
        self.host, self.fleet, self.observer = host, fleet, observer
        self.files = files
        self.agent = f'secondary-agent-{host}'
        self.log = f'agent-{host}.log'
        self.names = {}
        self.learn()
        self.before = {name: held.values() for name, held in files.items()}

    def learn(self):
        """Note the domains' names, as long as Nova answers."""
        self.names |= {uuid: seen.domain
                       for uuid, seen in self.fleet.look().items()}

    def trial(self):
        return Trial(self.fleet, self.observer)

    def limits(self):
        """Return the limits of each vCPU of the host's secondaries."""
        return {name: set(vcpus.values()) for name, vcpus
                in observers.vcpu_limits(self.host).items()
                if name not in self.observer.primaries and vcpus}

    def floored(self):
        limits = self.limits()
        return bool(limits) and all(one == {FLOOR} for one in limits.values())

    def lifted(self):
        limits = self.limits()
        return bool(limits) and not any(
            FLOOR in one for one in limits.values())

    def wait_floored(self):
        wait_until(self.floored, FLOORS_S + 5, lambda: 'all are at the '
                   f'floor: {self.limits()} {agent_status(self.host)}', 0.1)

    def wait_lifted(self):
        wait_until(self.lifted, LIFTS_S, lambda: 'all are up again: '
                   f'{self.limits()} {agent_status(self.host)}')

    def controls(self, since=None):
        """Return whether the agent has written its status in the last seconds.

        By the kernel's clock: the agent's may be another one.
        """
        return said(self.host).stat().st_mtime > (
            time.time() - 4 if since is None else since)

    def crash(self):
        """Kill the agent, and do what its unit does then (ExecStopPost)."""
        services.kill(self.agent)
        shell.run([*box_hosts.agent(self.host, 'floor')])

    def restart_agent(self):
        """Let the agent read its options anew."""
        services.kill(self.agent)
        self.start_agent()

    def start_agent(self, *environment):
        """Start the agent, and wait until it controls."""
        began = time.time()
        with services.environment():
            box_hosts.start_agent(self.host, *environment)
        wait_until(lambda: self.controls(began), 40, 'the agent controls')

    def differences(self, host, since, looks):
        """Return how limits in force differ from wanted ones, or None."""
        if said(host).stat().st_mtime < since:
            return 'the agent has said nothing since'
        status = json.loads(said(host).read_text())
        wrong = [self._wrong(status, limits) for limits in looks]
        return wrong[-1] if all(wrong) else None

    def _wrong(self, status, limits):
        known = {self.names[one['uuid']]: one for one in status['instances']}
        running = limits.keys() - self.observer.primaries
        if known.keys() != running:
            return f'known are {set(known)}, but there are {running}'
        wrong = {}
        for name, one in known.items():
            least = sum(quota / period for quota, period
                        in [FLOOR] * len(limits[name])) * 100 / status['cpus']
            quotas = list(limits[name].values())
            if one['floored'] or one['cap'] is None:
                if set(quotas) != {FLOOR}:
                    wrong[name] = 'floor', quotas
            elif any(quota is None for quota, _ in quotas) or abs(
                    sum(quota / period for quota, period in quotas) * 100
                    / status['cpus'] - max(one['cap'], least)) > ROUNDING:
                wrong[name] = one['cap'], quotas
        return wrong

    def wait_in_force(self, *hosts):
        """Wait until limits are as agents want them, for two periods.

        An agent may do a step of control while it says what it wants, so any
        look of the last two periods will do.
        """
        since = time.time()
        for host in hosts or (self.host,):
            looks = collections.deque(maxlen=round(PERIODS_S / LOOK_S))

            def differences(host=host, looks=looks):
                looks.append(observers.vcpu_limits(host))
                return self.differences(host, since, looks)
            wait_until(lambda differ=differences: not differ(),
                       PERIODS_S + SAYS_S, lambda differ=differences:
                       f'limits are in force: {differ()}', LOOK_S)

    def check(self, trial):
        """Check the policy and that no secondary ran without a limit."""
        trial.check_policy()
        free = [(row.t, name, row.secondary) for host in self.observer.hosts
                for row in self.observer.since(host, trial.began)
                for name in row.unlimited]
        assert not free, free


@pytest.fixture(scope='module')
def paused(fleet, cloud, switch):
    """Suspend the audit of Watcher meanwhile."""
    api = seed.watcher(cloud)

    def audit(state):
        answer = api.patch(f'/audits/{switch}', json=[
            {'path': '/state', 'op': 'replace', 'value': state}])
        assert answer.ok, answer.text

    wait_until(lambda: api.get(f'/audits/{switch}').json()['state']
               == 'ONGOING', 60, 'the switch is on')
    audit('SUSPENDED')
    time.sleep(NOTICED_S)
    yield
    services.start_missing()
    audit('ONGOING')


@pytest.fixture(scope='module')
def stage(paused, fleet, observer, cloud, nova_primary, by_hand):
    host = nova_primary.compute_host
    with contextlib.ExitStack() as stack:
        files = {name: ControlFiles(host, name)
                 for name in (*BY_HAND, nova_primary.instance_name)}
        for held in files.values():
            stack.callback(held.close)
        made = Stage(host, fleet, observer, files)
        assert made.limits(), f'no secondary is on {host}'
        # Primaries that idle take a quarter of a host of the box, emulated as
        # they are: beside them there has to be room for all to be lifted.
        stack.callback(made.restart_agent)
        stack.enter_context(services.another_value('useful_share', SHARE))
        made.restart_agent()
        # The primaries may boot yet.
        wait_until(made.lifted, 180, lambda: str(made.limits()))
        yield made


# -- what is around it -----------------------------------------------------

#: Each service with the functions that hang it and stop it.
AROUND = {
    **{name: (lambda host, names=names: services.hung(*names),
              lambda host, names=names: services.without(*names))
       for name, names in (
           ('rabbitmq', ('rabbitmq',)), ('keystone', ('keystone',)),
           ('placement', ('placement',)), ('watcher', services.WATCHER))},
    'nova-compute': (
        lambda host: services.hung(f'nova-compute-{host}'),
        lambda host: services.without(f'nova-compute-{host}')),
    'libvirtd': (services.hung_libvirtd, services.without_libvirtd)}


@pytest.mark.parametrize('what', AROUND)
def test_hung_then_gone_then_back(stage, what):
    """A service hangs as a burst begins, and is gone as the burst ends."""
    hung, gone = (make(stage.host) for make in AROUND[what])
    trial = stage.trial()
    with contextlib.ExitStack() as stack:
        with load.burner(stage.host, BURST):
            with hung:
                stage.wait_floored()
                assert stage.controls()
                stage.wait_in_force()
            stage.wait_in_force()
            stack.enter_context(gone)
            time.sleep(2)
            assert stage.floored()
        stage.wait_lifted()
        assert stage.controls()
        stage.wait_in_force()
    stage.wait_in_force()
    stage.check(trial)


# -- the agent itself ------------------------------------------------------

def test_killed_at_random_instants(stage):
    """In a burst, beside a busy primary, and in the calm after it."""
    rng = random.Random(SEED)
    trial = stage.trial()
    controlled = []
    for percent, kills in ((BURST, 20), (BUSY, 15), (1.0, KILLS - 35)):
        with load.burner(stage.host, percent):
            if percent == BURST:
                stage.wait_floored()
            # It lives for up to twice as long as it takes to begin, which is
            # longer beside a primary that uses all the CPU.
            began = time.time()
            services.kill(stage.agent)
            stage.start_agent()
            life = 2 * (time.time() - began)
            for _ in range(kills):
                time.sleep(rng.uniform(0, life))
                controlled.append(stage.controls(began))
                stage.crash()
                began = time.time()
                services.start(stage.agent)
    services.kill(stage.agent)
    print(f'{sum(controlled)} of {KILLS} had begun to control')
    # Some of each: as it starts, and later.
    assert KILLS / 5 < sum(controlled) < KILLS, controlled
    stage.start_agent()
    stage.wait_lifted()
    stage.wait_in_force()
    stage.check(trial)


def test_left_dead_then_floored_without_configuration(stage):
    """Run the command of the unit after the agent, with libvirtd hung."""
    trial = stage.trial()
    services.kill(stage.agent)
    with services.hung_libvirtd(stage.host):
        # The state of this host's agent, where it is without options.
        done = shell.run([
            *box_hosts.enter(stage.host), 'unshare', '-m', 'sh', '-ec',
            'mount -t tmpfs tmpfs /var/lib; mkdir /var/lib/secondary-agent; '
            'mount --bind "$1" /var/lib/secondary-agent; '
            'exec "$2" floor --config-file "$3"',
            'sh', box_hosts.directory(stage.host) / 'agent',
            layout.BIN / 'secondary-agent', '/nowhere'], check=False)
        assert done.returncode == 0, done.stdout
        assert stage.floored(), done.stdout
    time.sleep(5)
    assert stage.floored()      # only an agent lifts it
    stage.start_agent()
    stage.wait_lifted()
    stage.wait_in_force()
    stage.check(trial)


def test_second_agent_refuses_to_start(stage):
    stage.wait_in_force()       # it has said who it is
    status = agent_status(stage.host)
    done = subprocess.run(
        list(map(str, box_hosts.agent(stage.host, 'run'))), text=True,
        capture_output=True, timeout=60)
    assert done.returncode == 2, done
    assert re.search(rf'another secondary-agent \(process {status["pid"]}\) '
                     'controls this host', done.stderr), done.stderr
    stage.wait_in_force()
    assert agent_status(stage.host)['incarnation'] == status['incarnation']


@contextlib.contextmanager
def full_disk(stage):
    """Start the agent with a full disk; yield a function to free it."""
    state = box_hosts.directory(stage.host) / 'agent'

    def inside(script):
        shell.run([*box_hosts.enter(stage.host), 'sh', '-ec', script, 'sh',
                   state])

    services.kill(stage.agent)
    inside('mkdir -p /run/agent && mount -t tmpfs -o size=64k tmpfs /run/agent'
           ' && cp -a "$1"/. /run/agent && mount --bind /run/agent "$1"'
           ' && ! cat /dev/zero > "$1/full" 2> /run/said'
           ' && grep -q "No space" /run/said')
    try:
        services.start(stage.agent)
        yield lambda: inside('rm "$1/full"')
    finally:
        services.kill(stage.agent)
        inside('umount "$1" && cp -a /run/agent/*.json "$1" '
               '&& umount /run/agent')
        stage.start_agent()


def test_disk_full(stage, cloud):
    """It starts, floors and lifts on a full disk; and a guest comes that it
    cannot note, twice: the second agent finds it with the first one's limits.
    """
    trial = stage.trial()
    offset = services.log_size(stage.log)
    fleet = stage.fleet
    newcomer = next(iter(fleet.on(stage.host)))
    with full_disk(stage) as free:
        wait_until(lambda: 'Cannot write' in services.log_since(
            stage.log, offset), 30, 'it says that its disk is full')
        cloud.compute.reboot_server(newcomer, 'HARD')
        wait_until(lambda: fleet.look()[newcomer].task is None, 90,
                   'it has started again')
        with load.burner(stage.host, BURST):
            stage.wait_floored()
            services.kill(stage.agent)
            services.start(stage.agent)
            time.sleep(5)
            assert stage.floored()
        stage.wait_lifted()
        log = services.log_since(stage.log, offset)
        # Once by each agent and file, not once a second.
        assert 1 <= log.count('Cannot write') <= 10, log
        assert 'No space left' in log
        free()
        wait_until(stage.controls, 10, 'it can write again')
        stage.wait_in_force()
    stage.wait_lifted()
    stage.wait_in_force()
    stage.check(trial)


@contextlib.contextmanager
def another_clock(stage):
    """Run the agent with a clock of its own; yield a function to set it.

    It is the wall clock only, as an operator or NTP sets it.
    """
    code = box_hosts.directory(stage.host) / 'clock.d'
    code.mkdir(exist_ok=True)
    step = code / 'step'
    step.write_text('0')
    (code / 'sitecustomize.py').write_text(CLOCK.format(path=str(step)))
    services.kill(stage.agent)
    try:
        stage.start_agent(f'PYTHONPATH={code}')
        yield lambda seconds: step.write_text(str(seconds))
    finally:
        services.kill(stage.agent)
        stage.start_agent()


def broker():
    """Return the options by which Watcher talks to agents.

    oslo.messaging wants the process's own configuration for its tracing.
    """
    conf = cfg.CONF
    policy.register_opts(conf)
    conf(['--config-file',
          str(layout.ETC / 'secondary_scheduler/policies.conf'),
          '--config-file', str(layout.ETC / 'watcher/watcher-1.conf')],
         project='secondary', default_config_files=[])
    return conf


@contextlib.contextmanager
def reports(host):
    """Yield the counters of a book of a host's reports.
    """
    kept = book.HostBook(lambda: 15.0)
    listener = report_messages.ReportListener(
        broker(), lambda report: report.host == host and kept.accept(report),
        'test')
    listener.start()
    try:
        wait_until(lambda: listener.listening, 30, 'reports can arrive')
        yield kept.counters
    finally:
        listener.stop()


def test_clock_stepped_by_an_hour(stage):
    """While failures are counted, and in the calm after them."""
    def ahead_by(seconds):
        return abs(agent_status(stage.host)['time'] - time.time()
                   - seconds) < 10

    def wait_more(counters, verdict):
        before = counters[verdict]
        wait_until(lambda: counters[verdict] > before, 20,
                   lambda: f'a report is {verdict}: {counters}')

    trial = stage.trial()
    with another_clock(stage) as step, reports(stage.host) as counters:
        assert ahead_by(0), agent_status(stage.host)['time']
        wait_more(counters, 'accepted')
        stage.wait_lifted()
        for there, back, refused in ((3600, 0, 'future'), (-3600, 0, 'stale')):
            with load.burner(stage.host, BURST):
                time.sleep(4)
                step(there)
                stage.wait_floored()
                assert ahead_by(there), agent_status(stage.host)['time']
                wait_more(counters, refused)
                stage.wait_in_force()
            time.sleep(2)
            step(back)
            stage.wait_lifted()
            assert ahead_by(back)
            stage.wait_in_force()
            wait_more(counters, 'accepted')
    stage.wait_lifted()
    stage.check(trial)


def test_policy_changed_while_failures_are_counted(stage):
    def failed():
        return [one['failed'] for one
                in agent_status(stage.host).get('policies', ())]

    trial = stage.trial()
    set_point = agent_status(stage.host)['set_point']
    text = f'cpu <= {layout.THRESHOLD - 20}% for 15s on host:{stage.host}'
    with load.burner(stage.host, BURST):
        wait_until(lambda: max(failed(), default=0) >= 3, 20, 'it counts')
        with services.another_policy(text, stage.agent):
            stage.wait_floored()
            status = agent_status(stage.host)
            assert text in [one['policy'] for one in status['policies']]
            assert status['set_point'] == set_point - 20
            stage.wait_in_force()
    stage.wait_lifted()
    assert text not in [one['policy'] for one
                        in agent_status(stage.host)['policies']]
    stage.wait_in_force()
    stage.check(trial)


# -- the guests ------------------------------------------------------------

class Operations:
    """Operations on a server by its owner; migrations by an operator."""

    def __init__(self, owner, cloud, hosts, rng):
        self._owner, self._cloud = owner, cloud
        self._hosts, self._rng = hosts, rng
        self.done, self.refused = {}, {}

    def any_of(self, uuid, seen):
        """Do something that the server's state allows, if Nova lets us."""
        kinds = {'SUSPENDED': ('resume',), 'SHUTOFF': ('start',),
                 'PAUSED': ('unpause',),
                 'ACTIVE': ('reboot', 'suspend', 'stop', 'pause', 'migrate',
                            'migrate')}.get(seen.status, ())
        if kinds and seen.task is None:
            self.do(self._rng.choice(kinds), uuid, seen.host)

    def do(self, kind, uuid, host=None):
        compute = self._owner.compute
        try:
            if kind == 'reboot':
                compute.reboot_server(uuid, 'HARD')
            elif kind == 'migrate':
                target = self._rng.choice(
                    [name for name in self._hosts if name != host])
                answer = self._cloud.compute.post(
                    f'/servers/{uuid}/action', microversion='2.30', json={
                        'os-migrateLive': {
                            'host': target, 'block_migration': 'auto',
                            'force': False}})
                exceptions.raise_from_response(answer)
            else:
                getattr(compute, f'{kind}_server')(uuid)
        except AWAY as exc:
            self.refused[kind] = str(exc)
        else:
            self.done[kind] = self.done.get(kind, 0) + 1

    def return_leases(self, fleet):
        """Have all run again, whatever they were left at."""
        def all_run():
            for uuid, seen in fleet.look().items():
                if seen.status != 'ACTIVE':
                    self.any_of(uuid, seen)
            return fleet.all_run()
        wait_until(all_run, 240, lambda: f'all run: {fleet.look()}', 2)


def test_owners_insist_every_second(stage, owner, cloud, hosts):
    """On a full host, where all that appear have to wait at the floor."""
    operations = Operations(owner, cloud, hosts, random.Random(SEED))
    over = threading.Event()

    def insist(uuid, *kinds):
        for kind in itertools.cycle(kinds):
            if over.wait(1):
                return
            operations.do(kind, uuid)

    trial = stage.trial()
    kinds = (('reboot',), ('resume', 'suspend'), ('unpause', 'pause'),
             ('start', 'stop'))
    loops = [threading.Thread(target=insist, args=(uuid, *some), daemon=True)
             for uuid, some in zip(sorted(stage.fleet.on(stage.host)), kinds,
                                   strict=False)]
    with load.burner(stage.host, BURST):
        stage.wait_floored()
        for loop in loops:
            loop.start()
        time.sleep(INSISTS_S)
        # Beside a primary that leaves next to nothing Nova takes its time.
        wait_until(lambda: all(operations.done.get(kind, 0) >= 2
                               for kind in ('reboot', 'resume')), 300,
                   lambda: f'they have insisted: {operations.done}')
        over.set()
        for loop in loops:
            loop.join()
    operations.return_leases(stage.fleet)
    print(f'operations: {operations.done}')
    stage.wait_in_force()
    stage.check(trial)


def test_random_operations(stage, owner, cloud, hosts):
    rng = random.Random(SEED)
    fleet = stage.fleet
    operations = Operations(owner, cloud, hosts, rng)
    trial = stage.trial()
    hosts_before = {uuid: seen.host for uuid, seen in fleet.look().items()}
    # One host has room for migrations.
    empty = next(host for host in hosts if host != stage.host)
    fleet.delete(fleet.on(empty))
    doomed = rng.choice(sorted(fleet.on(stage.host)))
    with load.burner(stage.host, BUSY):
        ends = time.monotonic() + OPERATIONS_S
        while time.monotonic() < ends:
            there = fleet.look()
            uuid = rng.choice(sorted(there) or [None])
            if doomed in there and ends - time.monotonic() < OPERATIONS_S / 2:
                operations.do('delete', doomed)
            elif uuid is not None:
                operations.any_of(uuid, there[uuid])
            time.sleep(rng.uniform(0, 3))
    wait_until(lambda: doomed not in fleet.look(), 60, 'it is deleted')
    fleet.servers.pop(doomed)
    operations.return_leases(fleet)
    moved = sum(seen.host != hosts_before[uuid] for uuid, seen
                in fleet.look().items() if uuid in hosts_before)
    print(f'operations: {operations.done}, {moved} are elsewhere; refused: '
          f'{operations.refused}')
    assert set(operations.done) >= {'reboot', 'delete'}, operations.done
    assert moved, operations.refused
    stage.wait_in_force(*hosts)
    fleet.restore()
    stage.learn()
    stage.wait_in_force(*hosts)
    stage.check(trial)


# -- after all of it -------------------------------------------------------

def test_nothing_is_left_behind(stage, hosts):
    """All run without floor or pause, and all services work together again."""
    stage.fleet.wait_all_run(120)

    def left():
        found = {}
        for host in hosts:
            status = agent_status(host)
            found[host] = [
                *(f'{one["uuid"]} is floored or paused'
                  for one in status['instances']
                  if one['floored'] or one['paused']),
                *[text for text in (
                    status['inventory']['state'] != 'kept'
                    and f'inventory: {status["inventory"]["state"]}',
                    not status['libvirt'] and 'libvirt does not answer',
                    status['problems']) if text]]
        return {host: why for host, why in found.items() if why}
    wait_until(lambda: not left(), 150, lambda: f'nothing is left: {left()}')
    stage.wait_in_force(*hosts)
    client = agent_rpc.AgentClient(broker())
    for host in hosts:
        assert client.get_status(host)['host'] == host
        with contextlib.closing(connect(host)) as connection:
            paused = [domain.name() for domain
                      in connection.listAllDomains(1)
                      if domain.state()[0] != 1]    # RUNNING
            assert not paused, (host, paused)


def test_no_primary_was_touched(stage, nova_primary, by_hand, cloud):
    assert stage.before, 'there was none'
    after = {name: held.values() for name, held in stage.files.items()}
    assert after == stage.before
    # libvirtd is another one than that which started them.
    with contextlib.closing(connect(stage.host)) as connection:
        for name in by_hand:
            assert connection.lookupByName(name).isActive(), name
    now = cloud.compute.get_server(nova_primary.id)
    assert (now.status, now.task_state, now.compute_host) == (
        'ACTIVE', None, stage.host)
    assert not any(key.startswith('secondary:') for key in now.metadata)
