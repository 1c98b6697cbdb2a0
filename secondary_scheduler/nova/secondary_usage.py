# SPDX-License-Identifier: Apache-2.0

"""Secondaries' part of the numbers that Nova counts for a host.

Nova's resource tracker adds up the flavors of *all* instances on a host,
whatever Placement says, and Nova's weighers use these sums.  Agents cannot
report the secondaries' part: a suspended instance has no domain, but Nova
counts it.  So the part is computed from the instances of a host that the
scheduler knows (``track_instance_changes``).  Missing facts are read from
Nova's database, in one batch for all hosts of a decision:

* The flavor of an instance that was loaded without it is read once.
* A host with another number of instances than the scheduler knows is creating
  or removing an instance.  Its instances are read again.
* ``num_io_ops`` counts a build until the host's next periodic update, long
  after its end.  That update removes all older builds, so the ``n`` counted
  builds are those of the ``n`` youngest instances of the host.
* Free disk is the smaller of two values: the disk that flavors leave, and the
  free disk that the host measured at its last periodic update.  Without
  secondaries both would be larger.  The measured one would be larger by the
  secondaries of that time, that is, without those among the ``n`` youngest.
  (A secondary removed since then is missing in the measurement; it cannot be
  identified.)
* ``failed_builds`` counts failures since the last success.  So the ``n``
  counted ones are the last ``n`` builds that failed on the host and had begun
  when it reported the number.  (A success of a secondary resets the count of
  primaries' failures as well; that cannot be corrected.)

Results stay valid until the host's numbers change, so a decision in a quiet
cloud needs no query.
"""

from collections.abc import Callable, Iterable, Sequence
import datetime
import operator
import threading
import time
import typing

from secondary_scheduler.nova.log_limiter import LIMITED_LOG
from secondary_scheduler.nova.records import (
    InstanceUsage,
    Records,
    has_flavor,
    newest_instances,
    read_instance,
)

#: Rows of one query.
BATCH = 500

#: Seconds without a query after the database failed.
PAUSE = 30.0

#: Number of instances kept in memory; one takes some 300 bytes.
MEMORY = 200_000


#: Attribute of an Instance: its InstanceUsage.
_ATTRIBUTE = 'secondary_record'

#: Numbers of a host; with its instances, the key of a result.  The time of the
#: host's last update alone does not suffice, since it has whole seconds.  Each
#: decision compares the key for each host, so it is made of attributes without
#: any conversion.  Consumption by the present request changes it as well.
_NUMBERS = operator.attrgetter(
    'updated', 'num_instances', 'num_io_ops', 'failed_builds', 'vcpus_used',
    'free_ram_mb', 'free_disk_mb')


class HostUsage(typing.NamedTuple):
    """Secondaries' part of the numbers of one host.

    ``memory_mb`` and ``disk_mb`` are MiB.  ``disk_mb`` is the additional free
    disk without secondaries.  It is less than their disks if the host measured
    its free disk before they arrived.
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

#: Result for a host without any query yet.
_UNKNOWN: tuple[object, HostUsage | None] = (None, None)


class SecondaryUsage:
    """Computes the secondaries' part for the hosts of a decision.

    :param budget: returns the seconds that one call may spend on queries.
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
        """Return the secondaries' part of each host, None if unknown.

        A host with an unknown part must be weighed with Nova's own numbers.
        """
        known, found = self._known, []
        changed: list[tuple[int, object, HostState]] = []
        for place, host in enumerate(hosts):
            then, use = known.get((host.host, host.nodename), _UNKNOWN)
            now = (*_NUMBERS(host), *host.instances)
            if then != now:
                changed.append((place, now, host))
            found.append(use)
        if changed:
            # One thread queries; the next one finds the results.
            with self._lock:
                self._compute(changed, found)
        return found

    def _compute(self, changed: list[tuple[int, object, HostState]],
                  found: list[HostUsage | None]) -> None:
        queries = _Queries(self._records, self._instances,
                           self._clock() + self._budget(), self._clock)
        if self._clock() >= self._silent_until:
            try:
                queries.run([host for _, _, host in changed])
            except Exception:
                self._silent_until = self._clock() + PAUSE
                LIMITED_LOG.exception(
                    'ledger', 'Secondary instances cannot be told from '
                    'primaries; hosts are weighed with Nova\'s own numbers.')
        for place, key, host in changed:
            found[place] = use = queries.use(host)
            if use is not None:
                self._known[host.host, host.nodename] = key, use
        if len(self._instances) > MEMORY:
            self._instances.clear()


class _Queries:
    """Queries and results of one decision."""

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

    def run(self, hosts: list[HostState]) -> None:
        """Query the databases for facts that the hosts lack."""
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
                       and not has_flavor(instance)]
            self._read_instances(cell, unknown)
            if any(_number(h, 'failed_builds') for h in states) and (
                    self._clock() < self._deadline):
                self._failures[cell] = self._records.failures(cell)
                self._read_instances(cell, [uuid for host in states
                                   for uuid in self._failed(host)])

    def use(self, host: HostState) -> HostUsage | None:
        """Return the result for a host, None if a fact is missing."""
        if _bare_metal(host):
            return HostUsage()
        records = self._on(host)
        if records is None:
            return None
        io_ops = newest_instances(records, _number(host, 'io_workload'))
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
        """Return the additional free disk (GiB) without secondaries.

        :param all_ours: disk of all secondaries.
        :param came: disk of those that arrived after the measurement.
        """
        measured = self._measured.get((host.host, host.nodename))
        if host.hypervisor_type == 'fake':
            # Nova's fake driver always measures 0.
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
            # Nova replaces an Instance as a whole, so its record is stored on
            # it.
            record = vars(instance).get(_ATTRIBUTE)
            if record is None:
                record = read_instance(instance) or self._instances.get(uuid)
                if record is None:
                    return None
                # After a resize the instance has another flavor, and after a
                # later resynchronisation none.
                self._instances[uuid] = record
                if has_flavor(instance):
                    setattr(instance, _ATTRIBUTE, record)
            records.append(record)
        return records

    def _failed(self, host: HostState) -> list[str]:
        updated = _naive(host.updated)
        return [uuid for began, uuid in self._failures.get(
                    host.cell_uuid, {}).get(host.host, ())
                if updated is None or began <= updated][
                    :_number(host, 'failed_builds')]

    def _read_instances(self, cell: str, uuids: list[str]) -> None:
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
    # Its nodes share one host name, and have no secondaries.
    return bool(host.hypervisor_type == 'ironic')


def _in_motion(host: HostState) -> bool:
    return (_number(host, 'num_instances') != len(host.instances)
            or _number(host, 'io_workload') > 0)


def _number(host: HostState, name: str) -> int:
    # The host's own numbers; HostState's attributes also count consumption by
    # the present request.
    return int(getattr(host, 'stats', {}).get(name, 0))


def _naive(moment: datetime.datetime | None) -> datetime.datetime | None:
    return moment and moment.replace(tzinfo=None)
