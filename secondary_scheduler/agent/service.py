"""The service: what runs on which thread, and in which order it starts.

Control and the local trigger depend on no other thread: each has its own
sensor, and both write limits themselves.  Everything that may hang (libvirt,
the broker, Placement) has a thread of its own.
"""

from collections.abc import Callable, Iterable, Sequence
import contextlib
import fcntl
import functools
import json
import os
import signal
import socket
import threading
import time
import typing

from oslo_config import cfg
from oslo_log import log as logging

from secondary_scheduler.agent import (
    cgroups,
    control,
    forecasts,
    local_trigger,
    memory_guard,
    processes,
    rates,
    reporter,
)
from secondary_scheduler.agent import store as agent_store
from secondary_scheduler.agent.actuator import Actuator
from secondary_scheduler.agent.controller import Controller
from secondary_scheduler.agent.dedicated_cpus import DedicatedCpus
from secondary_scheduler.agent.domains import (
    Domains,
    Secondary,
    libvirt_opener,
)
from secondary_scheduler.agent.floors import Floors, Reason
from secondary_scheduler.agent.killed_instances import Killed
from secondary_scheduler.agent.memory import MemoryMeter
from secondary_scheduler.agent.policy_source import PolicySource
from secondary_scheduler.agent.sensors import base
from secondary_scheduler.agent.sensors.cpu import Meter
from secondary_scheduler.agent.throttles import Throttles
from secondary_scheduler.conf import agent as agent_conf
from secondary_scheduler.conf import policy as policy_conf
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import CLEAN
from secondary_scheduler.model.reports import HostReport
from secondary_scheduler.policies import language
from secondary_scheduler.reading.options import load_options
from secondary_scheduler.reading.values import InputError

LOG = logging.getLogger(__name__)

STATUS = 'status.json'

_DESCRIBE_S = 30.0
_DISK_S = 5.0
#: Limits of links and disks are looked at so often if no sensor says anything.
_RATES_S = 1.0
#: A measurement of memory takes less.
_MEASURING_S = 10.0
#: Not all news is announced, so it is looked for this often.
_NEWS_S = 1.0
#: A report at once, but at most so often, whatever flutters.
_GAP_S = 0.2
#: What reports without news may take of the network, in bytes a second.
_REPORTED = 500


class AlreadyRunning(Exception):
    """Another agent controls this host."""


def open_store(conf: cfg.ConfigOpts, read_only: bool = False
               ) -> agent_store.StateStore:
    """Return the state directory, made if it was not there."""
    path = conf.secondary_agent.state_path
    if not read_only:
        os.makedirs(path, mode=0o700, exist_ok=True)
    return agent_store.StateStore(path, read_only)


def lock(store: agent_store.StateStore) -> typing.IO[str]:
    """Make sure that there is one agent; keep what is returned open.

    :raises AlreadyRunning: if another one has the lock.
    """
    file = open(store.path('lock'), 'a+')
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        file.seek(0)
        owner = file.read().strip() or 'unknown'
        file.close()
        raise AlreadyRunning(
            f'another secondary-agent (process {owner}) controls this host: '
            f'it holds {store.path("lock")}. Stop it first.') from exc
    # The number is for the message only: a full disk must not matter.
    with contextlib.suppress(OSError):
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), str(os.getpid()).encode())
    return file


def make_actuator(conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy,
                  store: agent_store.StateStore, dry_run: bool = False
                  ) -> Actuator:
    """Return an actuator as the configuration wants it."""
    options = conf.secondary_agent
    return Actuator(hierarchy, store, options.quota_period_ms * 1000,
                    options.service_quota_ms * 1000, options.cpu_idle,
                    dry_run, options.floor_period_ms * 1000)


def make_dedicated_cpus(actuator: Actuator, hierarchy: cgroups.Hierarchy,
                        store: agent_store.StateStore, dry_run: bool = False
                        ) -> DedicatedCpus:
    """Return what keeps secondaries off the CPUs of primaries."""
    return DedicatedCpus(hierarchy, store, actuator.controllers, dry_run)


def make_throttles(conf: cfg.ConfigOpts,
                   connect: Callable[[], typing.Any] | None = None,
                   reread: Callable[[], object] = lambda: None,
                   dry_run: bool = False) -> Throttles:
    """Return what limits disks and interfaces, through libvirt."""
    return Throttles(connect or libvirt_opener(
        conf.secondary_agent.libvirt_uri), reread, dry_run)


def make_balloon(conf: cfg.ConfigOpts,
                 guests: Callable[[], Iterable[Secondary]],
                 pressing: Callable[[], bool] = lambda: False,
                 connect: Callable[[], typing.Any] | None = None
                 ) -> memory_guard.Balloon:
    """Return what fills and empties balloons, as the configuration wants it.

    By default it empties them.
    """
    options = conf.secondary_agent
    return memory_guard.Balloon(
        connect or libvirt_opener(options.libvirt_uri), guests, pressing,
        options.balloon_least)


class Agent:
    """All parts of the agent of one host.

    :raises PolicyError: if a policy cannot be read.
    :raises CgroupError: if there is nothing to control with.
    :raises ValueError: if there is no such sensor.
    """

    def __init__(self, conf: cfg.ConfigOpts, store: agent_store.StateStore,
                 hierarchy: cgroups.Hierarchy,
                 connect: Callable[[], typing.Any] | None = None,
                 dry_run: bool = False) -> None:
        self.conf = conf
        self.host = conf.secondary_agent.host
        self._store = store
        self._dry_run = dry_run
        options = conf.secondary_agent
        sensors = base.load(conf, hierarchy)
        memory = cgroups.HostMemory(hierarchy)
        self.policies = PolicySource(
            conf, self.host, store, memory_guard.policy(
                conf, self.host, memory.read()[0])
            if any(language.MEMORY in one.resources
                   for one in sensors.values()) else ())
        self._news = threading.Event()
        self.actuator = make_actuator(conf, hierarchy, store, dry_run)
        self.floors = Floors(changed=self._news.set,
                             is_limited=self.actuator.is_limited)
        self.dedicated = make_dedicated_cpus(self.actuator, hierarchy, store,
                                             dry_run)
        self._measured = threading.Event()
        self.domains = Domains(
            connect or libvirt_opener(options.libvirt_uri, read_only=True),
            store, options.libvirt_run_dir, options.domain_period,
            hierarchy.proc, self._domains_changed)

        def meter() -> Meter:
            return Meter(
                cgroups.HostCpu(hierarchy), self.actuator.usage_ns,
                lambda guest: processes.age(guest.started, hierarchy.proc))

        self.control = control.Control(
            lambda: self.policies.current, self.domains.secondaries, meter(),
            self.actuator,
            Controller(options.controller_gain, options.probe_share),
            self.floors, lambda: control.ControlOptions.read(conf))
        demand = memory_guard.Demand(self.domains.others, hierarchy.proc)
        self.gauges = base.Gauges(
            sensors, lambda: {
                one.resource for one in self.policies.current.policies},
            self.domains.secondaries, coming={
                language.MEMORY:
                lambda: 100.0 * demand.read() / memory.read()[0]})
        self.trigger = local_trigger.LocalTrigger(
            lambda: self.policies.current, self.domains.secondaries, meter(),
            self.gauges, self.floors, self._floor, self._kill,
            lambda: local_trigger.TriggerOptions.read(conf),
            local_trigger.earlier_runs(store.load(STATUS), time.monotonic()))
        self.guard = memory_guard.MemoryGuard(
            cgroups.HostMemory(hierarchy).read, demand,
            self.domains.secondaries, self.actuator,
            self.floors, self._floor, self._kill, self._note_killed,
            lambda: memory_guard.GuardOptions.read(conf), hierarchy.proc)
        self.balloon = make_balloon(conf, lambda: [
            guest for guest in self.domains.secondaries()
            if not self.floors.operated(guest.uuid)],
            lambda: self.guard.pressing, connect)
        self.killed = Killed(store)
        forecast = forecasts.load(conf)
        self.outlook = reporter.RecentPrimaryUse(forecast)
        self.throttles = make_throttles(conf, connect, self.domains.reread,
                                        dry_run)
        self.rates = rates.RateControl(
            lambda: self.policies.current, self.domains.secondaries,
            self.gauges, self.throttles, self.floors,
            lambda: Controller(options.controller_gain, options.probe_share,
                               slack=0.0),
            lambda: rates.RateOptions.read(conf))
        self.memory = MemoryMeter(
            connect or libvirt_opener(options.libvirt_uri), lambda: [
                guest for guest in self.domains.secondaries()
                if not guest.paused
                and not self.floors.operated(guest.uuid)
                and not self.floors.floored(guest.uuid)],
            3 * options.dirty_rate_interval + _MEASURING_S)
        self._inventory: typing.Any = None
        self.reporter = reporter.Reporter(
            conf, self.host, self.domains, self.policies, self.actuator,
            self.control, self.trigger, self.floors, self.outlook,
            self.memory, self.gauges, self.guard,
            reporter.RecentPrimaryUse(forecast), self.killed,
            lambda: self._inventory, self.rates, self.throttles,
            self.dedicated)
        #: Why the configuration was not reloaded the last time.
        self._unread = ''
        self._stop = threading.Event()
        self._reload = threading.Event()
        self._newcomer = threading.Event()
        self._stepped = time.monotonic()

    # -- what the threads do -----------------------------------------------
    def step(self) -> None:
        """Do one step of control."""
        self._keep_cpus(self.domains.secondaries)
        self.control.step()
        usage = self.control.usage
        self.outlook.push(usage.primary, usage.arrivals)
        self._stepped = time.monotonic()

    def _keep_cpus(self, guests: Callable[[], Sequence[Secondary]]) -> None:
        """Keep secondaries off the CPUs of primaries, or at the floor."""
        try:
            present = guests()
            self.dedicated.keep(present)
            problems = self.dedicated.problems
            for guest in present:
                if guest.uuid not in problems:
                    self.floors.drop(guest.uuid, Reason.CPUS)
                elif Reason.CPUS not in self.floors.reasons(guest.uuid):
                    self.floors.add(guest.uuid, Reason.CPUS)
                    self._floor(guest)
            self.dedicated.forget(present)
        except Exception:
            LOG.exception('CPUs of primaries were not looked after; taking '
                          'all secondaries to the floor')
            self.control.floor_all()

    def check(self) -> None:
        """Check the policies, as happens once a second."""
        before = [report.state for report in self.trigger.reports]
        try:
            self.trigger.check()
            self.control.restraint.push(self.trigger.harmed)
        except Exception:
            LOG.exception('A check of the policies failed; taking all '
                          'secondaries to the floor')
            self.control.floor_all()
        if [report.state for report in self.trigger.reports] != before:
            self._news.set()

    def _measure(self, name: str) -> None:
        self.gauges.measure(name)
        self._measured.set()

    def _keep_rates(self) -> None:
        """Let the limits of links and disks follow what was measured."""
        step = _guarded(self.rates.step)
        while not self._stop.is_set():
            self._measured.wait(_RATES_S)
            self._measured.clear()
            step()

    def _floor(self, guest: Secondary) -> None:
        self.actuator.floor(
            guest, service=not self.floors.operated(guest.uuid))

    def _kill(self, guest: Secondary, reason: str) -> bool:
        done = self.actuator.kill(guest)
        if done:
            self._note_killed(guest, reason)
        return done

    def _note_killed(self, guest: Secondary, reason: str) -> None:
        self.killed.note(guest, reason)
        self._news.set()

    def _domains_changed(self) -> None:
        """React to a listing: a primary that has come goes first at once."""
        self._newcomer.set()
        self._news.set()
        try:
            self.actuator.prioritise(self.domains.secondaries())
            self.killed.run_again(self.domains.secondaries())
        except Exception:
            LOG.exception('The priority of guests was not set')
        self._look_for_dedicated_cpus()
        self._measured.set()

    def _look_for_dedicated_cpus(self) -> None:
        """Read the CPUs of primaries anew, after a listing of all guests."""
        try:
            guests = self.domains.secondaries()
            if self.domains.primaries is not None:  # there was a listing
                self.dedicated.look(self.domains.others(), guests)
            self._keep_cpus(lambda: guests)
        except Exception:
            LOG.exception('The dedicated CPUs of primaries were not read')

    def guard_memory(self) -> float:
        """Look after memory once; return the seconds until the next look."""
        level = self.guard.level
        try:
            wait = self.guard.step()
        except Exception:
            LOG.exception('Memory was not looked after')
            return memory_guard.LOOK_S
        if self.guard.level is not level:
            self._news.set()
        return wait

    def _keep_guard(self) -> None:
        while not self._stop.is_set():
            # Whoever is new may be a primary that is about to grow.
            self._newcomer.wait(self.guard_memory())
            self._newcomer.clear()

    def write_status(self) -> None:
        """Write what ``secondary-agent status`` shows; feed the watchdog."""
        status = self.reporter.status()
        status['monotonic'] = time.monotonic()
        status['configuration'] = self._unread
        if self._inventory:
            status['inventory'] = {'state': self._inventory.state,
                                   'allowed': self._inventory.allowed}
        self._store.save(STATUS, status)
        self._store.catch_up()
        if time.monotonic() - self._stepped < 10:
            _notify('WATCHDOG=1')

    def _keep_reporting(self, sender: typing.Any) -> None:
        processes.show_thread_name()
        report = _guarded(lambda: self._report(sender))
        while not self._stop.is_set():
            report()

    def _report(self, sender: typing.Any) -> None:
        """Send reports: at once when there is news, else now and then."""
        said: object = None
        at = pause = 0.0
        while not self._stop.is_set():
            self._news.wait(_NEWS_S)
            self._news.clear()
            news = self.reporter.news()
            if news != said or time.monotonic() - at >= pause:
                report = self.reporter.build()
                sender.send(report)
                said, at = news, time.monotonic()
                pause = self._pause(report)
                self._stop.wait(_GAP_S)

    def _pause(self, report: HostReport) -> float:
        """Return when a report is repeated: the later the longer it is.

        But in time for who misses the next one not to take it for stale.
        """
        shared = self.conf.secondary_scheduler
        return max(shared.report_interval, min(
            len(json.dumps(report.to_dict())) / _REPORTED,
            shared.report_stale_after / 2))

    def _describe(self, sender: typing.Any) -> None:
        answer = sender.describe_host(timeout=5)
        if answer and isinstance(answer.get('aggregates'), list):
            self.policies.set_aggregates(answer['aggregates'])

    def keep_inventory(self, inventory: typing.Any,
                       hysteresis: typing.Any) -> None:
        """Tell Placement what may be admitted now."""
        slots, memory = inventory.slots(), inventory.memory_mb()
        shares = {vocabulary.SLOT: 0.0, vocabulary.MEMORY_MB: 0.0}
        # Asked in any case: it remembers what the primary has used.
        memory_room = self.reporter.memory_room()
        if slots and not self.reporter.closed():
            shares = {vocabulary.SLOT: min(1.0, self.reporter.room() / slots),
                      vocabulary.MEMORY_MB:
                      min(1.0, memory_room / memory) if memory else 0.0}
        shares = hysteresis.push(time.monotonic(), shares)
        killed, consumers = self.killed.reasons.keys(), inventory.consumers
        inventory.update(shares, [guest.uuid for guest in
                                  self.domains.secondaries()],
                         self.domains.unmarked)
        # Who is stopped keeps its place; who is deleted gives it up.  What was
        # read before one was ended may be from before it came.
        if inventory.consumers is not consumers:
            self.killed.forget(killed - inventory.consumers)

    # -- what can be asked over RPC ----------------------------------------
    def hand_over(self, uuid: str, migrates: bool = False
                  ) -> dict[str, typing.Any]:
        """Make a secondary ready for an operation of Nova's.

        Its emulator and I/O threads run freely for a while, since suspend
        and migration happen there; its vCPUs go to the floor if a policy
        fails at the moment, or if it ``migrates`` and that would not end.
        One that was ended here is ``killed``: Nova, which takes it for active
        for some seconds yet, could only fail.
        """
        for ended, reason in self.killed.reasons.items():
            if ended == uuid:   # which may be anything
                return {'ok': False, 'floored': False, 'killed': True,
                        'reason': reason}
        guest = self._guest(uuid)
        if guest is None:
            return {'ok': False, 'floored': False,
                    'reason': f'no secondary {uuid} runs on {self.host}'}
        needed_s = self.memory.floor_s(uuid) if migrates else 0.0
        self.floors.operate(uuid, max(
            needed_s, self.conf.secondary_agent.operation_grace))
        dirty = self.memory.dirty(uuid)
        if self.trigger.failing or needed_s:
            self.floors.add(uuid, Reason.OPERATION)
        ok = (self.actuator.floor(guest, service=False)
              if self.floors.floored(uuid)
              else self.actuator.lift_emulator(guest))
        floored = self.floors.reached(uuid)
        return {'ok': ok, 'floored': floored,
                'dirty_mb': CLEAN if floored else dirty,
                'save_free_mb': self.reporter.save_free_mb,
                'reason': '' if ok else 'its cgroup could not be written'}

    def thaw_hint(self, uuid: str) -> None:
        """Note that the operation is over; the controller decides."""
        if self._guest(uuid) is not None:
            self.floors.end_operation(uuid)

    def get_status(self) -> dict[str, typing.Any]:
        """Return what ``secondary-agent status`` shows."""
        return self.reporter.status()

    def _guest(self, uuid: str) -> Secondary | None:
        return next((guest for guest in self.domains.secondaries()
                     if guest.uuid == uuid), None)

    # -- life --------------------------------------------------------------
    def run(self) -> None:
        """Run until SIGTERM or SIGINT; SIGHUP reads the options anew.

        The limits stay in force at the end, so that a restart is not felt;
        ``secondary-agent floor`` is for an end that is meant to last.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        signal.signal(signal.SIGHUP, lambda *_: self._reload.set())
        self.start()
        _notify('READY=1')
        while not self._stop.wait(0.5):
            if self._reload.is_set():
                self._reload.clear()
                self.reload()
        self.domains.stop()
        LOG.info('Stopping; the limits of the secondaries stay in force.')

    def stop(self) -> None:
        """End ``run``."""
        self._stop.set()

    def reload(self) -> None:
        """Read options and policies anew; a bad file changes nothing."""
        try:
            self._try_options()
            self.conf.mutate_config_files()
        except (InputError, cfg.Error, OSError) as exc:
            self._unread = str(exc)
            LOG.critical('The configuration was not reloaded, options and '
                         'policies stay as they were: %s', exc)
        else:
            self._unread = ''
            self.policies.reload()
        self._news.set()

    def _try_options(self) -> None:
        """Read the files into options that nothing uses.

        :raises InputError: if a value in them is not right.
        """
        tried = cfg.ConfigOpts()
        agent_conf.register_opts(tried)
        policy_conf.register_opts(tried)
        load_options(tried, [], default_config_files=self.conf.config_file,
                     default_config_dirs=self.conf.config_dir)

    def start(self) -> None:
        """Start the threads: first what protects, then what talks."""
        options = self.conf.secondary_agent
        # The cached secondaries are under control before libvirt answers.
        self._every(options.control_period, self.step, 'control')
        for name, sensor in self.gauges.sensors.items():
            self._every(sensor.period, functools.partial(
                self._measure, name), f'sensor-{name}')
        self._every(1.0, self.check, 'trigger')
        threading.Thread(target=self._keep_guard, name='memory-guard',
                         daemon=True).start()
        threading.Thread(target=self._keep_rates, name='rates',
                         daemon=True).start()
        self.domains.start()
        self._every(1.0, self.write_status, 'status')
        if options.metrics_port:
            self._start_metrics(options.metrics_address, options.metrics_port)
        if not self._dry_run:
            if options.dirty_rate_interval:
                self._every(options.dirty_rate_interval, self.memory.measure,
                            'memory')
            self._every(1.0, self.balloon.step, 'balloon')
            self._every(_DISK_S, self.reporter.measure_disk, 'save-dir')
            self._start_talking()

    def _start_metrics(self, address: str, port: int) -> None:
        """Answer Prometheus; without a library or a free port, do not."""
        try:
            from secondary_scheduler.agent import metrics
            metrics.serve(address, port, self.reporter.status)
        except (ImportError, OSError) as exc:
            LOG.error('No metrics on %(address)s:%(port)d: %(reason)s',
                      {'address': address, 'port': port, 'reason': exc})

    def _start_talking(self) -> None:
        from secondary_scheduler.reports import agent_rpc, report_messages
        sender = report_messages.ReportSender(self.conf, self.host)
        agent_rpc.AgentServer(self.conf, self.host, self).start()
        threading.Thread(target=self._keep_reporting, args=(sender,),
                         name='reports', daemon=True).start()
        self._every(_DESCRIBE_S, lambda: self._describe(sender), 'describe')
        if self.conf.secondary_agent.manage_inventory:
            from secondary_scheduler.agent import inventory
            self._inventory = inventory.Inventory(
                _Lazy(lambda: inventory.placement_adapter(self.conf)),
                lambda: (self.conf.secondary_agent.hypervisor_hostname
                         or self.domains.hostname or self.host))
            hysteresis = inventory.Hysteresis(
                self.conf.secondary_agent.open_after)
            self._every(
                self.conf.secondary_agent.inventory_interval,
                lambda: self.keep_inventory(self._inventory, hysteresis),
                'inventory')

    def _every(self, period: float, function: Callable[[], object],
               name: str) -> None:
        """Call a function each period, on a thread, whatever it raises."""
        guarded = _guarded(function)

        def loop() -> None:
            processes.show_thread_name()
            due = time.monotonic()
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                guarded()
                # A late call is not made up for.
                due = max(due + period, time.monotonic())

        threading.Thread(target=loop, name=name, daemon=True).start()


class _Lazy:
    """An adapter that is made by its first request, which may fail."""

    def __init__(self, make: Callable[[], typing.Any]) -> None:
        self._make = make
        self._made: typing.Any = None

    def request(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        if self._made is None:
            self._made = self._make()
        return self._made.request(*args, **kwargs)


def _guarded(function: Callable[[], object]) -> Callable[[], None]:
    def call() -> None:
        try:
            function()
        except Exception:
            LOG.exception('A thread of the agent goes on after an error')
    return call


def _notify(state: str) -> None:
    """Tell systemd, if it started us, that we are ready or alive."""
    path = os.environ.get('NOTIFY_SOCKET')
    if not path:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect('\0' + path[1:] if path[0] == '@' else path)
            sock.sendall(state.encode())
    except OSError as exc:
        LOG.debug('systemd was not told: %s', exc)
