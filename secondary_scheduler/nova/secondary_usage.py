"""How much of what Nova counts on a host is secondaries' (risks.md F4).

Nova's resource tracker adds up the flavors of *all* instances on a host,
whatever Placement says, and Nova's weighers use these sums.  The agents
cannot tell the secondaries' part: a suspended one has no domain but is
counted.  So it is worked out from the instances that the scheduler knows on
each host (``track_instance_changes``) and, where that is not enough, from
Nova's own database, in one batch for all hosts of a decision:

* the flavor of an instance that came without it is read once;
* a host whose number of instances differs from what the scheduler knows
  builds or removes one now: its instances are read afresh;
* ``num_io_ops`` counts a build until the host's next periodic update, long
  after it has ended.  That update settles all older ones, so the ``n`` that
  are counted are the ``n`` youngest instances on the host;
* free disk is the smaller of what the flavors leave and what the host
  measured at its last periodic update.  Without secondaries both would be
  larger, the measured one only by those that were there at that update: not
  by those among the ``n`` youngest.  (One that has ended since then still
  lacks in what was measured; which ones these are cannot be told.)
* ``failed_builds`` counts failures since the last success, so the ``n`` that
  are counted are the last ``n`` builds that failed there and had begun when
  the host reported the number.  (A success of a secondary does reset the
  count of primaries' failures; that cannot be told apart.)

What was worked out holds until the host's numbers change, so that a decision
in a quiet cloud asks nothing.
"""

from collections.abc import Callable, Iterable, Sequence
import datetime
import operator
import threading
import time
import typing

from secondary_scheduler.nova.log_limiter import COMPLAINTS
from secondary_scheduler.nova.records import (
    InstanceUsage,
    Records,
    newest,
    read,
    readable,
)

#: Rows asked for at once.
BATCH = 500

#: Seconds without a question after the database failed.
PAUSE = 30.0

#: Instances remembered; one takes some 300 bytes.
MEMORY = 200_000


#: Attribute of an Instance: its Record.
_ATTRIBUTE = 'secondary_record'

#: With the instances, what changes when anything that we work out may change.
#: The time of the host's last update alone would not do: it has whole
#: seconds.  Each decision compares this for each host, so it takes things as
#: they are; what the request has consumed changes it as well.
_NUMBERS = operator.attrgetter(
    'updated', 'num_instances', 'num_io_ops', 'failed_builds', 'vcpus_used',
    'free_ram_mb', 'free_disk_mb')


class HostUsage(typing.NamedTuple):
    """What secondaries add to the numbers of one host.

    ``memory_mb`` and ``disk_mb`` are MiB.  ``disk_mb`` is how much more
    would be free without them, which is less than their disks where Nova
    goes by what the host measured before they came.
    """

    vcpus: int = 0
    memory_mb: int = 0
    disk_mb: int = 0
    instances: int = 0
    io_ops: int = 0
    failed_builds: int = 0


#: A HostState: host, nodename, cell_uuid, updated, stats, instances ...
HostState = typing.Any
_Node = tuple[str, str]

#: What is known of a host that nobody has asked about.
_UNKNOWN: tuple[object, HostUsage | None] = (None, None)


class SecondaryUsage:
    """Works out the secondaries' part for the hosts of a decision.

    :param budget: returns the seconds one call may spend in the database.
    """

    def __init__(self, budget: Callable[[], float],
                 records: Records | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._budget = budget
        self._records = records or Records()
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[_Node, tuple[object, HostUsage | None]] = {}
        self._instances: dict[str, InstanceUsage] = {}
        self._silent_until = 0.0

    def uses(self, hosts: Sequence[HostState]) -> list[HostUsage | None]:
        """Return the secondaries' part of each host.

        None where it is not known: such a host is to be weighed with Nova's
        own numbers.
        """
        known, found, changed = self._known, [], []
        for place, host in enumerate(hosts):
            then, use = known.get((host.host, host.nodename), _UNKNOWN)
            now = (*_NUMBERS(host), *host.instances)
            if then != now:
                changed.append((place, now, host))
            found.append(use)
        if changed:
            # One thread asks; the next finds the answers.
            with self._lock:
                self._work_out(changed, found)
        return found

    def _work_out(self, changed: list[tuple[int, object, HostState]],
                  found: list[HostUsage | None]) -> None:
        inquiry = _Inquiry(self._records, self._instances,
                           self._clock() + self._budget(), self._clock)
        if self._clock() >= self._silent_until:
            try:
                inquiry.ask([host for _, _, host in changed])
            except Exception:
                self._silent_until = self._clock() + PAUSE
                COMPLAINTS.exception(
                    'ledger', 'Secondary instances cannot be told from '
                    'primaries; hosts are weighed with Nova\'s own numbers.')
        for place, key, host in changed:
            found[place] = use = inquiry.use(host)
            if use is not None:
                self._known[host.host, host.nodename] = key, use
        if len(self._instances) > MEMORY:
            self._instances.clear()


class _Inquiry:
    """The questions and answers of one decision."""

    def __init__(self, records: Records, instances: dict[str, InstanceUsage],
                 deadline: float, clock: Callable[[], float]) -> None:
        self._records = records
        self._instances = instances
        self._deadline = deadline
        self._clock = clock
        self._fresh: dict[str, list[InstanceUsage]] = {}
        self._measured: dict[_Node, int | None] = {}
        self._failures: dict[str, dict[str, list[
            tuple[datetime.datetime, str]]]] = {}

    def ask(self, hosts: list[HostState]) -> None:
        """Ask the databases for what the hosts do not tell themselves."""
        by_cell: dict[str, list[HostState]] = {}
        for host in hosts:
            if not _bare_metal(host):
                by_cell.setdefault(host.cell_uuid, []).append(host)
        for cell, states in by_cell.items():
            moving = [h.host for h in states if _in_motion(h)]
            for names in self._batches(moving):
                self._fresh.update(self._records.on_hosts(cell, names))
                self._measured.update(
                    self._records.measured_disk(cell, names))
            unknown = [uuid for host in states
                       if host.host not in self._fresh
                       for uuid, instance in host.instances.items()
                       if _ATTRIBUTE not in vars(instance)
                       and not readable(instance)]
            self._learn(cell, unknown)
            if any(_number(h, 'failed_builds') for h in states) and (
                    self._clock() < self._deadline):
                self._failures[cell] = self._records.failures(cell)
                self._learn(cell, [uuid for host in states
                                   for uuid in self._failed(host)])

    def use(self, host: HostState) -> HostUsage | None:
        """Return the answer for a host, None if something lacks."""
        if _bare_metal(host):
            return HostUsage()
        records = self._on(host)
        if records is None:
            return None
        io_ops = newest(records, _number(host, 'io_workload'))
        failed = [self._instances.get(uuid) for uuid in self._failed(host)]
        if _number(host, 'failed_builds') and (
                host.cell_uuid not in self._failures):
            return None
        ours = [r for r in records if r.secondary]
        return HostUsage(
            vcpus=sum(r.vcpus for r in ours),
            memory_mb=sum(r.memory_mb for r in ours),
            disk_mb=1024 * self._disk_gb(
                host, sum(r.disk_gb for r in ours),
                sum(r.disk_gb for r in io_ops if r.secondary)),
            instances=len(ours),
            io_ops=sum(r.secondary for r in io_ops),
            failed_builds=sum(r is not None and r.secondary for r in failed))

    def _disk_gb(self, host: HostState, all_ours: int, came: int) -> int:
        """Return how much more disk would be free without secondaries.

        ``came`` is the disk of those that the host has not measured yet.
        """
        measured = self._measured.get((host.host, host.nodename))
        if host.hypervisor_type == 'fake':
            # Nova's fake driver measures 0, whatever is there.
            measured, came = 0, all_ours
        if measured is None:
            return all_ours
        left = host.total_usable_disk_gb - host.disk_mb_used // 1024
        return int(min(left + all_ours, measured + all_ours - came)
                   - min(left, measured))

    def _on(self, host: HostState) -> list[InstanceUsage] | None:
        if host.host in self._fresh:
            return self._fresh[host.host]
        if _in_motion(host):
            return None
        records = []
        for uuid, instance in host.instances.items():
            # Nova replaces an Instance as a whole, so what was read from it
            # once is kept with it.
            record = vars(instance).get(_ATTRIBUTE)
            if record is None:
                record = read(instance) or self._instances.get(uuid)
                if record is None:
                    return None
                # A resize brings another flavor, and a later
                # resynchronisation the instance without any.
                self._instances[uuid] = record
                if readable(instance):
                    setattr(instance, _ATTRIBUTE, record)
            records.append(record)
        return records

    def _failed(self, host: HostState) -> list[str]:
        updated = _naive(host.updated)
        return [uuid for began, uuid in self._failures.get(
                    host.cell_uuid, {}).get(host.host, ())
                if updated is None or began <= updated][
                    :_number(host, 'failed_builds')]

    def _learn(self, cell: str, uuids: list[str]) -> None:
        unknown = [u for u in dict.fromkeys(uuids)
                   if u not in self._instances]
        for batch in self._batches(unknown):
            self._instances.update(self._records.of_instances(cell, batch))

    def _batches(self, items: list[str]) -> Iterable[list[str]]:
        for start in range(0, len(items), BATCH):
            if self._clock() >= self._deadline:
                return
            yield items[start:start + BATCH]


def _bare_metal(host: HostState) -> bool:
    # Its nodes share one host name, and hold no secondaries.
    return bool(host.hypervisor_type == 'ironic')


def _in_motion(host: HostState) -> bool:
    return (_number(host, 'num_instances') != len(host.instances)
            or _number(host, 'io_workload') > 0)


def _number(host: HostState, name: str) -> int:
    # The host's own numbers; HostState's attributes also count what the
    # request that is being served has consumed.
    return int(getattr(host, 'stats', {}).get(name, 0))


def _naive(moment: datetime.datetime | None) -> datetime.datetime | None:
    return moment and moment.replace(tzinfo=None)
