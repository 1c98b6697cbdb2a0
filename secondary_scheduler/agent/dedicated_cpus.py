# SPDX-License-Identifier: Apache-2.0

"""Exclusion of secondaries from the dedicated CPUs of primaries.

A host with ``cpu_dedicated_set`` and without ``cpu_shared_set`` has no CPUs
for instances that float.  Nova's libvirt driver then gives a secondary no CPU
set at all, so that it would float over the dedicated CPUs of primaries, too.

The CPU sets of secondaries are only ever narrowed: each is always a part of
its original value.  libvirt makes new groups whenever a guest starts (boot,
reboot, resume, incoming migration), so each control step checks the sets.
"""

from collections.abc import Iterable, Mapping
import contextlib
import functools
import threading
import time

from oslo_log import log as logging

from secondary_scheduler.agent import (
    cgroup_handles,
    cgroups,
    kernel_files,
    pins,
)
from secondary_scheduler.agent import store as agent_store
from secondary_scheduler.agent.controllers import Controllers
from secondary_scheduler.agent.cpu_sets import (
    CPUS_FILE,
    STATE,
    CpuSets,
    Record,
    order_writes,
    parse_records,
    update_record,
)
from secondary_scheduler.agent.domains import Primary, Secondary
from secondary_scheduler.agent.pins import Cpus
from secondary_scheduler.agent.problems import Problems

LOG = logging.getLogger(__name__)

#: Seconds between two readings of the CPU masks of primaries' threads.  New
#: primaries are read at once.
_MASKS_S = 10.0


class NoCpuLeft(Exception):
    """All CPUs that a secondary may use are dedicated to primaries."""


class DedicatedCpus:
    """Narrows the CPU sets of secondaries; safe for threads.

    With ``dry_run``, writes are logged instead of made.
    """

    def __init__(self, hierarchy: cgroups.Hierarchy,
                 store: agent_store.StateStore, controllers: Controllers,
                 dry_run: bool = False) -> None:
        self._hierarchy = hierarchy
        self._store = store
        self._controllers = controllers
        self._dry_run = dry_run
        self._lock = threading.Lock()
        self._sets: dict[str, CpuSets] = {}
        #: Records of files by process key and group, as they are on disk.
        self._records: dict[str, dict[str, Record]] = parse_records(
            store.load(STATE))
        self._problems = Problems(functools.partial(
            LOG.error, '%s may run on CPUs of primaries: %s'))
        #: CPU masks of the threads of primaries, by process.
        self._masks: dict[tuple[int, int], pins.Pins] = {}
        self._masks_at = 0.0
        #: Dedicated CPUs of primaries; None until they are known, so that an
        #: agent that has just started widens no set.
        self.own: Cpus | None = None

    @property
    def problems(self) -> dict[str, str]:
        """Reasons why secondaries may run on dedicated CPUs, by UUID."""
        with self._lock:
            return self._problems.present()

    # -- dedicated CPUs of primaries ---------------------------------------
    def find_dedicated(self, primaries: Iterable[Primary],
                       guests: Iterable[Secondary],
                       now: float | None = None) -> None:
        """Find the dedicated CPUs of primaries.

        :param guests: the secondaries.  A set over which Nova lets one of
            them float is not dedicated to any primary.
        :param now: the time in seconds, by default that of the clock.
        """
        now = time.monotonic() if now is None else now
        known = {(one.pid, one.started): one for one in primaries}
        if (known.keys() != self._masks.keys()
                or now - self._masks_at > _MASKS_S):
            self._masks_at = now
            self._masks = {key: pins.read_threads(one.pid,
                                                  self._hierarchy.proc)
                           for key, one in known.items()}
        with self._lock:
            own = self._own_cpus(known, guests)
        if own != (self.own or frozenset()):
            LOG.info('Dedicated CPUs of primaries: %s',
                     kernel_files.format_cpus(own) or 'none')
        self.own = own

    def _own_cpus(self, primaries: Mapping[tuple[int, int], Primary],
                  guests: Iterable[Secondary]) -> Cpus:
        given = {kernel_files.parse_cpus(guest.cpus, guest.uuid)
                 for guest in guests}
        own = frozenset[int]().union(*(
            pins.own_cpus(one.pins, given) for one in primaries.values()))
        if any(pins.own_cpus(one, given) for one in self._masks.values()):
            # A thread that may run on all CPUs of the host, or of its group,
            # is not pinned.
            floated = given | self._floated(guests)
            own = own.union(*(pins.own_cpus(one, floated)
                              for one in self._masks.values()))
        return own

    def _floated(self, guests: Iterable[Secondary]) -> set[Cpus]:
        """Return the CPU sets over which unpinned guests float."""
        # Unpinned threads have the mask of the first process, which isolcpus
        # of the kernel and CPUAffinity of systemd narrow.
        found = set(pins.read_threads(1, self._hierarchy.proc).others)
        with contextlib.suppress(ValueError, cgroups.CgroupError), (
                contextlib.closing(cgroups.Group(
                    self._hierarchy.root('cpuset')))) as root:
            found.add(cgroups.effective_cpus(root))
        for guest in guests:
            with contextlib.suppress(OSError, ValueError,
                                     cgroups.CgroupError):
                record = self._records.get(cgroup_handles.key_of(guest),
                                           {}).get('')
                sets = self._opened(guest)
                found.add(sets.allowed(record.original if record
                                       else sets.read_set('')))
        return found

    # -- the sets of secondaries -------------------------------------------
    def narrow_sets(self, guests: Iterable[Secondary]) -> None:
        """Remove the dedicated CPUs from the sets of secondaries.

        Where that fails, or where no CPU would be left, ``problems`` gives
        the reason.
        """
        with self._lock:
            own = self.own
            if own is None:
                return
            for guest in guests:
                if own or cgroup_handles.key_of(guest) in self._records:
                    self._narrow_guest(guest, own)
                else:
                    self._problems.clear(guest.uuid)

    def _narrow_guest(self, guest: Secondary, own: Cpus) -> None:
        try:
            try:
                self._narrow(guest, own)
            except OSError:
                # The controller is missing, or libvirt made new groups.
                self._close(guest)
                self._controllers.enable_controller(cgroup_handles.base_of(
                    self._hierarchy, guest, 'cpuset'), 'cpuset')
                self._narrow(guest, own)
        except (OSError, ValueError, cgroups.CgroupError, NoCpuLeft) as exc:
            if not isinstance(exc, NoCpuLeft):
                self._close(guest)
            if cgroup_handles.lives(
                cgroup_handles.key_of(guest), self._hierarchy.proc):
                self._problems.note(guest.uuid, kernel_files.explain(exc))
        else:
            self._problems.clear(guest.uuid)

    def _narrow(self, guest: Secondary, own: Cpus) -> None:
        """Set each group to its original CPUs without the dedicated ones.

        :param own: the dedicated CPUs; no CPUs restore the original sets.
        :raises OSError: if the kernel refuses a write, or if it has no effect.
        :raises NoCpuLeft: if a set would be empty; nothing is written then.
        """
        sets, key = self._opened(guest), cgroup_handles.key_of(guest)
        known = self._records.get(key, {})
        now = {name: sets.read_set(name) for name in sets.groups}
        wanted, records = {}, {}
        for name, text in now.items():
            records[name] = update_record(
                known.get(name), text, sets,
                known.get('') if name and not guest.cpus else None)
            allowed = sets.allowed(records[name].original)
            if allowed <= own:
                raise NoCpuLeft(
                    f'{sets.groups[name].path}/{CPUS_FILE}: primaries have '
                    f'all of the CPUs {kernel_files.format_cpus(allowed)}')
            wanted[name] = (kernel_files.format_cpus(allowed - own)
                            if allowed & own else records[name].original)
        writes = order_writes(sets, now, wanted)
        if any(now[name] != value for name, value in writes):
            # The record is saved before the first write.
            self._records[key] = {
                name: records[name]._replace(
                    written=records[name].written + tuple(
                        value for one, value in writes if one == name))
                for name in dict(writes)}
            self._save()
            for name, value in writes:
                self._write(sets.groups[name], value)
        if key in self._records:
            self._records[key] = {
                name: record._replace(written=(wanted[name],))
                for name, record in self._records[key].items()
                if name in wanted}
        if not own:
            self._drop_record(key)

    def _write(self, group: cgroups.Group, value: str) -> None:
        """Write the set of a group of a verified secondary.

        :raises OSError: if the kernel refuses, or if it has no effect.
        """
        if group.read(CPUS_FILE) == value:
            return
        if self._dry_run:
            LOG.info('Would write %(value)s to %(path)s/%(name)s', {
                'value': value, 'path': group.path, 'name': CPUS_FILE})
        else:
            cgroup_handles.set_file(group, CPUS_FILE, value)

    def _opened(self, guest: Secondary) -> CpuSets:
        key = cgroup_handles.key_of(guest)
        if key in self._sets and not self._sets[key].is_complete():
            self._close(guest)
        if key not in self._sets:
            self._sets[key] = CpuSets(self._hierarchy, guest)
        return self._sets[key]

    def _close(self, guest: Secondary) -> None:
        sets = self._sets.pop(cgroup_handles.key_of(guest), None)
        if sets is not None:
            sets.close()

    # -- release -----------------------------------------------------------
    def release(self, guest: Secondary) -> bool:
        """Restore the original CPU sets of a guest."""
        with self._lock:
            if cgroup_handles.key_of(guest) not in self._records:
                return True
            try:
                self._narrow(guest, frozenset())
            except (OSError, ValueError, cgroups.CgroupError) as exc:
                LOG.warning('Cannot restore the CPUs of %(uuid)s: %(reason)s',
                            {'uuid': guest.uuid,
                             'reason': kernel_files.explain(exc)})
                return False
            return True

    def forget(self, alive: Iterable[Secondary]) -> None:
        """Close the groups of all guests but these, drop their records."""
        guests = list(alive)
        keys = {cgroup_handles.key_of(guest) for guest in guests}
        uuids = {guest.uuid for guest in guests}
        with self._lock:
            for key in self._sets.keys() - keys:
                self._sets.pop(key).close()
            for key in self._records.keys() - keys:
                # A guest may have started after the caller listed them.
                if not cgroup_handles.lives(key, self._hierarchy.proc):
                    self._drop_record(key)
            self._problems.forget_others(uuids)

    def _drop_record(self, key: str) -> None:
        if self._records.pop(key, None) is not None:
            self._save()

    def _save(self) -> None:
        self._store.save(STATE, {'guests': self._records})
