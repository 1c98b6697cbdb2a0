# SPDX-License-Identifier: Apache-2.0

"""Threads and life of the agent.

Control and the local trigger depend on no other thread: each has its own
meter, and both write limits themselves.  Every part that may hang (libvirt,
the broker, Placement) has a thread of its own.
"""

from collections.abc import Callable, Sequence
import functools
import os
import signal
import socket
import threading
import time
import typing

from oslo_config import cfg
from oslo_log import log as logging

from secondary_scheduler.agent import cgroups, memory_guard, threads
from secondary_scheduler.agent import store as agent_store
from secondary_scheduler.agent.affinity_views import HostUse
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.endpoint import AgentCalls
from secondary_scheduler.agent.floors import Reason
from secondary_scheduler.agent.report_loop import ReportLoop
from secondary_scheduler.agent.reporter import Reporter
from secondary_scheduler.agent.wiring import STATUS, make_parts
from secondary_scheduler.conf import agent as agent_conf
from secondary_scheduler.conf import policy as policy_conf
from secondary_scheduler.model import vocabulary
from secondary_scheduler.reading.options import load_options
from secondary_scheduler.reading.values import InputError

if typing.TYPE_CHECKING:
    from secondary_scheduler.agent.inventory import Hysteresis, Inventory
    from secondary_scheduler.reports.report_messages import ReportSender

LOG = logging.getLogger(__name__)

_DESCRIBE_S = 30.0
_DISK_S = 5.0
#: Longest time between two steps for links and disks, without new readings.
_RATES_S = 1.0
#: Seconds between two measurements for the choice of CPUs.
_CHOOSE_S = 1.0
#: The watchdog is fed while the last step of control is not older than this.
_WATCHDOG_S = 10.0


class Agent:
    """The agent of one host.

    :raises PolicyError: if a policy cannot be parsed.
    :raises CgroupError: if control groups are missing.
    :raises ValueError: if a sensor, a forecast or a driver cannot be loaded.
    """

    def __init__(self, conf: cfg.ConfigOpts, store: agent_store.StateStore,
                 hierarchy: cgroups.Hierarchy,
                 connect: Callable[[], typing.Any] | None = None,
                 dry_run: bool = False) -> None:
        self.conf = conf
        self._dry_run = dry_run
        self.parts = make_parts(conf, store, hierarchy, connect, dry_run,
                                self._domains_changed)
        self.reporter = Reporter(self.parts)
        self.calls = AgentCalls(self.parts, self.reporter)
        self._stop = threading.Event()
        self.report_loop = ReportLoop(self.parts, self.reporter, self._stop)
        #: The error of the last reload of the configuration, '' without one.
        self._reload_error = ''
        self._reload = threading.Event()
        self._measured = threading.Event()
        #: Set after each listing of domains, which may hold a new primary.
        self._domains_listed = threading.Event()
        #: Set when guests have come or gone, so that CPUs are chosen at once.
        self._choose = threading.Event()
        self._stepped = time.monotonic()

    # -- work of the threads -----------------------------------------------
    def step(self) -> None:
        """Do one step of control."""
        parts = self.parts
        self._watch_pins()
        self._keep_cpus(parts.domains.secondaries)
        parts.control.step()
        usage = parts.control.usage
        parts.primary_cpu.push(usage.primary, usage.arrivals)
        self._stepped = time.monotonic()

    def _keep_cpus(self, guests: Callable[[], Sequence[Secondary]]) -> None:
        """Keep secondaries off the CPUs of primaries, or at the floor."""
        parts = self.parts
        try:
            present = guests()
            parts.dedicated_cpus.narrow_sets(
                present, lambda guest: parts.affinity.assigned(
                    guest, parts.floors.operated(guest.uuid)))
            problems = parts.dedicated_cpus.problems
            for guest in present:
                if guest.uuid not in problems:
                    parts.floors.drop(guest.uuid, Reason.CPUS)
                elif Reason.CPUS not in parts.floors.reasons(guest.uuid):
                    parts.floors.add(guest.uuid, Reason.CPUS)
                    parts.last_resort.floor_guest(guest)
            parts.dedicated_cpus.forget(present)
        except Exception:
            LOG.exception('Cannot keep secondaries off the CPUs of primaries; '
                          'taking all secondaries to the floor')
            parts.control.floor_all()

    def _watch_pins(self) -> None:
        """Read the CPUs of primaries again if one was pinned by hand."""
        try:
            changed = self.parts.dedicated_cpus.pins.changed()
        except Exception:
            LOG.exception('The CPUs of primaries were not compared')
            changed = True
        if changed:
            self._read_dedicated_cpus()

    def _choose_cpus(self) -> None:
        """Choose the CPUs of secondaries, each second and after a listing."""
        choose = threads.log_errors(self.choose_cpus)
        while not self._stop.is_set():
            self._choose.wait(_CHOOSE_S)
            self._choose.clear()
            choose()

    def choose_cpus(self) -> None:
        """Let the driver of CPU affinity choose, and write a new decision.

        Each control step checks the written sets, and repairs them.
        """
        parts = self.parts
        usage = parts.control.usage
        guests = parts.domains.secondaries()
        use = None if usage.primary is None else HostUse(
            usage.primary / 100 * usage.capacity,
            parts.control.share / 100 * usage.capacity)
        if parts.affinity.step(guests, use):
            self._keep_cpus(lambda: guests)

    def check(self) -> None:
        """Check the policies; called once a second."""
        trigger, control = self.parts.trigger, self.parts.control
        before = [report.state for report in trigger.reports]
        try:
            trigger.check()
            suspects = self.parts.suspects
            if suspects is None or not suspects.step(
                    trigger.reports, trigger.usage.instances):
                control.restraint.push(trigger.harmed)
        except Exception:
            LOG.exception('A check of the policies failed; taking all '
                          'secondaries to the floor')
            control.floor_all()
        if [report.state for report in trigger.reports] != before:
            self.parts.news.set()

    def _measure(self, name: str) -> None:
        self.parts.gauges.measure(name)
        self._measured.set()

    def _keep_rates(self) -> None:
        """Adapt the limits of links and disks after each reading."""
        step = threads.log_errors(self.parts.rates.step)
        while not self._stop.is_set():
            self._measured.wait(_RATES_S)
            self._measured.clear()
            step()

    def _domains_changed(self) -> None:
        """React to a listing: a new primary gets its priority at once."""
        parts = self.parts
        self._domains_listed.set()
        parts.news.set()
        try:
            parts.actuator.prioritise(parts.domains.secondaries())
            parts.killed.forget_running(parts.domains.secondaries())
        except Exception:
            LOG.exception('The priority of guests was not set')
        self._read_dedicated_cpus()
        self._choose.set()
        self._measured.set()

    def _read_dedicated_cpus(self) -> None:
        """Read the CPUs of primaries again, after a listing of all guests."""
        parts = self.parts
        try:
            guests = parts.domains.secondaries()
            if parts.domains.primaries is not None:  # there was a listing
                parts.dedicated_cpus.find_dedicated(parts.domains.others(),
                                                    guests)
            self._keep_cpus(lambda: guests)
        except Exception:
            LOG.exception('The dedicated CPUs of primaries were not read')

    def guard_memory(self) -> float:
        """Do one step of the memory guard.

        :returns: the seconds until the next step.
        """
        guard = self.parts.memory_guard
        level = guard.level
        try:
            wait = guard.step()
        except Exception:
            LOG.exception('A step of the memory guard failed')
            return memory_guard.POLL_S
        if guard.level is not level:
            self.parts.news.set()
        return wait

    def _keep_guard(self) -> None:
        while not self._stop.is_set():
            # A new domain may be a primary that is about to grow.
            self._domains_listed.wait(self.guard_memory())
            self._domains_listed.clear()

    def write_status(self) -> None:
        """Write the file of ``secondary-agent status``; feed the watchdog."""
        parts = self.parts
        status = self.reporter.status()
        status['monotonic'] = time.monotonic()
        status['configuration'] = self._reload_error
        if parts.inventory:
            status['inventory'] = {'state': parts.inventory.state,
                                   'allowed': parts.inventory.allowed}
        parts.store.save(STATUS, status)
        parts.store.catch_up()
        if time.monotonic() - self._stepped < _WATCHDOG_S:
            _notify('WATCHDOG=1')

    def _describe(self, sender: 'ReportSender') -> None:
        """Query the aggregates of this host."""
        answer = sender.describe_host(timeout=5)
        if answer and isinstance(answer.get('aggregates'), list):
            self.parts.policies.set_aggregates(answer['aggregates'])

    def keep_inventory(self, inventory: 'Inventory',
                       hysteresis: 'Hysteresis') -> None:
        """Update in Placement the amounts that may be admitted now."""
        parts = self.parts
        slots, memory = inventory.slots(), inventory.memory_mb()
        shares = {vocabulary.SLOT: 0.0, vocabulary.MEMORY_MB: 0.0}
        # Called in any case, because it records the use by the primary.
        memory_room = self.reporter.memory_room()
        if slots and not self.reporter.closed_reason():
            shares = {vocabulary.SLOT: min(1.0, self.reporter.room() / slots),
                      vocabulary.MEMORY_MB:
                      min(1.0, memory_room / memory) if memory else 0.0}
        shares = hysteresis.push(time.monotonic(), shares)
        killed, consumers = parts.killed.reasons.keys(), inventory.consumers
        inventory.update(shares, [guest.uuid for guest in
                                  parts.domains.secondaries()],
                         parts.domains.unmarked)
        # A stopped instance keeps its allocation, a deleted one loses it.
        # Consumers that were read before an instance was killed may have been
        # read before it was created, so only a new set counts.
        current = inventory.consumers
        if current is not None and current is not consumers:
            parts.killed.forget(killed - current)

    # -- life --------------------------------------------------------------
    def run(self) -> None:
        """Run until SIGTERM or SIGINT; SIGHUP reloads the options.

        The limits stay in force at the end, so that guests do not notice a
        restart.  Use ``secondary-agent floor`` if the agent is to stay off.
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
        self.parts.domains.stop()
        LOG.info('Stopping; the limits of the secondaries stay in force.')

    def stop(self) -> None:
        """End ``run``."""
        self._stop.set()

    def reload(self) -> None:
        """Reload options and policies; a damaged file changes nothing."""
        try:
            self._check_options()
            self.conf.mutate_config_files()
        except (InputError, cfg.Error, OSError) as exc:
            self._reload_error = str(exc)
            LOG.critical('The configuration was not reloaded, options and '
                         'policies stay as they were: %s', exc)
        else:
            self._reload_error = ''
            self.parts.policies.reload()
        self.parts.news.set()

    def _check_options(self) -> None:
        """Read the files into a separate set of options.

        :raises InputError: if a value in them is not valid.
        """
        tried = cfg.ConfigOpts()
        agent_conf.register_opts(tried)
        policy_conf.register_opts(tried)
        load_options(tried, [], default_config_files=self.conf.config_file,
                     default_config_dirs=self.conf.config_dir)

    def start(self) -> None:
        """Start the threads; threads that protect primaries come first."""
        options, parts = self.conf.secondary_agent, self.parts
        # The cached secondaries are under control before libvirt answers.
        self._start_periodic(options.control_period, self.step, 'control')
        for name, sensor in parts.gauges.sensors.items():
            self._start_periodic(sensor.period, functools.partial(
                self._measure, name), f'sensor-{name}')
        self._start_periodic(1.0, self.check, 'trigger')
        threads.start_thread(self._keep_guard, 'memory-guard')
        threads.start_thread(self._keep_rates, 'rates')
        if parts.affinity.enabled:
            threads.start_thread(self._choose_cpus, 'cpu-affinity')
        parts.domains.start()
        self._start_periodic(1.0, self.write_status, 'status')
        if options.metrics_port:
            self._start_metrics(options.metrics_address, options.metrics_port)
        if not self._dry_run:
            if options.dirty_rate_interval:
                self._start_periodic(options.dirty_rate_interval,
                                     parts.memory_meter.measure, 'memory')
            self._start_periodic(1.0, parts.balloon.step, 'balloon')
            self._start_periodic(_DISK_S, self.reporter.measure_disk,
                                 'save-dir')
            self._start_communication()

    def _start_periodic(self, period: float, function: Callable[[], object],
                        name: str) -> None:
        threads.start_periodic(period, function, name, self._stop)

    def _start_metrics(self, address: str, port: int) -> None:
        """Serve Prometheus, unless the library or the port is missing."""
        try:
            from secondary_scheduler.agent import metrics
            metrics.serve_metrics(address, port, self.reporter.status)
        except (ImportError, OSError) as exc:
            LOG.error('No metrics on %(address)s:%(port)d: %(reason)s',
                      {'address': address, 'port': port, 'reason': exc})

    def _start_communication(self) -> None:
        """Start the threads for reports, RPC and Placement."""
        from secondary_scheduler.reports import agent_rpc, report_messages
        parts, options = self.parts, self.conf.secondary_agent
        sender = report_messages.ReportSender(self.conf, parts.host)
        agent_rpc.AgentServer(self.conf, parts.host, self.calls).start()
        threads.start_thread(lambda: self.report_loop.run(sender), 'reports')
        self._start_periodic(_DESCRIBE_S, lambda: self._describe(sender),
                             'describe')
        if options.manage_inventory:
            from secondary_scheduler.agent import inventory
            kept = parts.inventory = inventory.Inventory(
                _Lazy(lambda: inventory.placement_adapter(self.conf)),
                lambda: (options.hypervisor_hostname
                         or parts.domains.hostname or parts.host))
            hysteresis = inventory.Hysteresis(options.admission_delay)
            self._start_periodic(
                options.inventory_interval,
                lambda: self.keep_inventory(kept, hysteresis),
                'inventory')


class _Lazy:
    """An adapter that is made by its first request, which may fail."""

    def __init__(self, make: Callable[[], typing.Any]) -> None:
        self._make = make
        self._made: typing.Any = None

    def request(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        if self._made is None:
            self._made = self._make()
        return self._made.request(*args, **kwargs)


def _notify(state: str) -> None:
    """Send a state to systemd, if it has started this process."""
    path = os.environ.get('NOTIFY_SOCKET')
    if not path:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect('\0' + path[1:] if path[0] == '@' else path)
            sock.sendall(state.encode())
    except OSError as exc:
        LOG.debug('systemd was not told: %s', exc)
