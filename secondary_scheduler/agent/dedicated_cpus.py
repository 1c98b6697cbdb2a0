# SPDX-License-Identifier: Apache-2.0

"""CPU sets of secondaries: without the dedicated CPUs of primaries.

A host with ``cpu_dedicated_set`` and without ``cpu_shared_set`` has no CPUs
for instances that float.  Nova's libvirt driver then gives a secondary no CPU
set at all, so that it would float over the dedicated CPUs of primaries, too.

A driver of CPU affinity may narrow them further, to a set for each vCPU.
Where the kernel refuses such a set, the guest keeps all CPUs that are not
dedicated, and the set is tried again later.

The CPU sets of secondaries are only ever narrowed: each is always a part of
its original value.  libvirt makes new groups whenever a guest starts (boot,
reboot, resume, incoming migration), so each control step checks the sets.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
import contextlib
import dataclasses
import errno
import functools
import os
import threading
import time

from oslo_log import log as logging

from secondary_scheduler.agent import (
    cgroup_handles,
    cgroups,
    kernel_files,
)
from secondary_scheduler.agent import store as agent_store
from secondary_scheduler.agent.controllers import Controllers
from secondary_scheduler.agent.cpu_sets import (
    CPUS_FILE,
    STATE,
    AssignedCpus,
    CpuSets,
    Record,
    order_writes,
    parse_records,
    update_record,
)
from secondary_scheduler.agent.domains import Primary, Secondary
from secondary_scheduler.agent.pins import Cpus
from secondary_scheduler.agent.primary_pins import Claim, PrimaryPins
from secondary_scheduler.agent.problems import Problems

LOG = logging.getLogger(__name__)

#: Seconds after which a set that was refused is tried again, at first and at
#: most.  They double with each attempt.
_RETRY_S = 5.0
_LONGEST_RETRY_S = 600.0


class NoCpuLeft(Exception):
    """All CPUs that a secondary may use are dedicated to primaries."""


@dataclasses.dataclass
class _Refusal:
    """Set of a driver that the kernel has refused.

    :param again_at: time of the next attempt
    :param wait_s: seconds until it
    """

    reason: str
    again_at: float
    wait_s: float


class DedicatedCpus:
    """Narrows the CPU sets of secondaries; safe for threads.

    With ``dry_run``, writes are logged instead of made.
    """

    def __init__(self, hierarchy: cgroups.Hierarchy,
                 store: agent_store.StateStore, controllers: Controllers,
                 dry_run: bool = False,
                 clock: Callable[[], float] = time.monotonic,
                 mask_of: Callable[[int], Collection[int]]
                 = os.sched_getaffinity) -> None:
        self._hierarchy = hierarchy
        self._clock = clock
        self._store = store
        self._controllers = controllers
        self._dry_run = dry_run
        self._lock = threading.Lock()
        #: Held while dedicated CPUs are looked for; taken before ``_lock``.
        self._finding = threading.Lock()
        self._sets: dict[str, CpuSets] = {}
        #: Records of files by process key and group, as they are on disk.
        self._records: dict[str, dict[str, Record]] = parse_records(
            store.load(STATE))
        self._problems = Problems(functools.partial(
            LOG.error, '%s may run on CPUs of primaries: %s'))
        self._refusals: dict[str, _Refusal] = {}
        self.pins = PrimaryPins(hierarchy, mask_of)
        #: Dedicated CPUs of primaries; None until they are known, so that an
        #: agent that has just started widens no set.
        self.own: Cpus | None = None
        #: The same by primary and evidence.
        self.claims: Sequence[Claim] = ()

    @property
    def problems(self) -> dict[str, str]:
        """Reasons why secondaries may run on dedicated CPUs, by UUID."""
        with self._lock:
            return self._problems.present()

    @property
    def refusals(self) -> dict[str, str]:
        """Reasons why guests lack the sets of the driver, by process key."""
        with self._lock:
            return {key: one.reason for key, one in self._refusals.items()}

    def shared_cpus(self, guest: Secondary) -> Cpus:
        """Return the CPUs on which all vCPUs of a guest could run at first.

        libvirt confines the vCPUs of a guest to ``cpu_shared_set``, and not
        its topmost group.

        :returns: no CPUs if they cannot be read, or if none is common to all
        """
        with self._lock, contextlib.suppress(OSError, ValueError,
                                             cgroups.CgroupError):
            sets = self._opened(guest)
            known = self._records.get(cgroup_handles.key_of(guest), {})
            texts = {known[name].original if name in known
                     else sets.read_set(name) for name in sets.groups
                     if not name or name.startswith('vcpu')}
            return frozenset.intersection(*map(sets.allowed, texts))
        return frozenset()

    # -- dedicated CPUs of primaries ---------------------------------------
    def find_dedicated(self, primaries: Iterable[Primary],
                       guests: Iterable[Secondary],
                       now: float | None = None) -> None:
        """Find the dedicated CPUs of primaries.

        :param guests: the secondaries.  A set over which Nova lets one of
            them float is not dedicated to any primary, unless its flavor says
            so.
        :param now: the time in seconds, by default that of the clock.
        """
        with self._finding:
            claims = self.pins.find_own(
                primaries, guests, time.monotonic() if now is None else now)
            own = frozenset[int]().union(*(one.cpus for one in claims))
            if own != (self.own or frozenset()):
                LOG.info('Dedicated CPUs of primaries: %s', ', '.join(
                    f'{kernel_files.format_cpus(one.cpus)} ({one.name}, '
                    f'by {one.evidence})' for one in claims) or 'none')
            self.own, self.claims = own, claims

    # -- the sets of secondaries -------------------------------------------
    def narrow_sets(self, guests: Iterable[Secondary],
                    assigned: Callable[[Secondary], AssignedCpus | None]
                    = lambda guest: None) -> None:
        """Remove the dedicated CPUs from the sets of secondaries.

        Where that fails, or where no CPU would be left, ``problems`` gives
        the reason.

        :param assigned: returns the sets that a driver has chosen for a
            guest; None leaves it all CPUs that are not dedicated.
        """
        with self._lock:
            own = self.own
            if own is None:
                return
            for guest in guests:
                chosen = self._unless_refused(guest, assigned(guest))
                if (own or chosen
                        or cgroup_handles.key_of(guest) in self._records):
                    self._narrow_guest(guest, own, chosen)
                else:
                    self._problems.clear(guest.uuid)

    def _unless_refused(self, guest: Secondary, chosen: AssignedCpus | None
                        ) -> AssignedCpus | None:
        key = cgroup_handles.key_of(guest)
        if chosen is None:
            self._refusals.pop(key, None)
        elif (refusal := self._refusals.get(key)) and (
                self._clock() < refusal.again_at):
            return None
        return chosen

    def _narrow_guest(self, guest: Secondary, own: Cpus,
                      chosen: AssignedCpus | None) -> None:
        key = cgroup_handles.key_of(guest)
        try:
            try:
                self._narrow(guest, own, chosen)
            except OSError:
                # The controller is missing, or libvirt made new groups.
                self._close(guest)
                self._controllers.enable_controller(cgroup_handles.base_of(
                    self._hierarchy, guest, 'cpuset'), 'cpuset')
                self._narrow(guest, own, chosen)
        except (OSError, ValueError, cgroups.CgroupError, NoCpuLeft) as exc:
            if not isinstance(exc, NoCpuLeft):
                self._close(guest)
            if not cgroup_handles.lives(key, self._hierarchy.proc):
                return
            if chosen is not None and not isinstance(exc, NoCpuLeft):
                self._refuse(key, kernel_files.explain(exc))
                self._narrow_guest(guest, own, None)
            else:
                self._problems.note(guest.uuid, kernel_files.explain(exc))
        else:
            if chosen is not None:
                self._refusals.pop(key, None)
            self._problems.clear(guest.uuid)

    def _refuse(self, key: str, reason: str) -> None:
        before = self._refusals.get(key)
        wait = min(_LONGEST_RETRY_S,
                   2 * before.wait_s if before else _RETRY_S)
        if before is None or before.reason != reason:
            LOG.warning('The CPUs of %(uuid)s stay as they were: %(reason)s', {
                'uuid': key.partition(' ')[0], 'reason': reason})
        self._refusals[key] = _Refusal(reason, self._clock() + wait, wait)

    def _narrow(self, guest: Secondary, own: Cpus,
                chosen: AssignedCpus | None = None) -> None:
        """Set each group to its original CPUs without the dedicated ones.

        :param own: the dedicated CPUs; no CPUs restore the original sets.
        :param chosen: the part of these CPUs that a driver has chosen.
        :raises OSError: if the kernel refuses a write, or if it has no effect.
        :raises NoCpuLeft: if a set would be empty; nothing is written then.
        """
        sets, key = self._opened(guest), cgroup_handles.key_of(guest)
        known = self._records.get(key, {})
        now = {name: sets.read_set(name) for name in sets.groups}
        present = (own, chosen, now,
                   sets.inherited() if '' in now.values() else None)
        if present == sets.settled:
            return
        wanted, records, confined = {}, {}, {}
        for name, text in now.items():
            records[name] = update_record(
                known.get(name), text, sets,
                known.get('') if name and not guest.cpus else None)
            allowed = sets.allowed(records[name].original)
            if allowed <= own:
                raise NoCpuLeft(
                    f'{sets.groups[name].path}/{CPUS_FILE}: primaries have '
                    f'all of the CPUs {kernel_files.format_cpus(allowed)}')
            cpus = allowed - own
            if narrow := (chosen.find(name) or frozenset() if chosen
                          else frozenset()) & cpus:
                confined[name] = cpus = narrow
            elif name and not sets.v1:
                cpus = allowed      # the topmost group bounds it
            wanted[name] = (kernel_files.format_cpus(cpus)
                            if cpus != allowed else records[name].original)
        writes = order_writes(sets, now, wanted)
        settled = all(now[name] == value for name, value in writes)
        if not settled:
            self._apply(sets, key, records, writes, bool(confined))
        if not self._dry_run:
            self._check_threads(sets, confined)
        if key in self._records:
            self._records[key] = {
                name: record._replace(written=(wanted[name],))
                for name, record in self._records[key].items()
                if name in wanted}
        if not own and not confined:
            self._drop_record(key)
        if settled:     # the next check with the same inputs ends early
            sets.settled = present

    def _apply(self, sets: CpuSets, key: str, records: Mapping[str, Record],
               writes: Sequence[tuple[str, str]], by_choice: bool) -> None:
        """Write the sets of a guest, whose record is saved before.

        :param by_choice: whether a driver has chosen them.  Such sets are not
            written if their record cannot be saved.  To keep a secondary off
            the CPUs of primaries is more important than to undo it
        :raises OSError: if the kernel refuses a write, or if it has no effect.
        """
        self._records[key] = {
            name: records[name]._replace(
                written=records[name].written + tuple(
                    value for one, value in writes if one == name))
            for name in (self._records.get(key, {}).keys() & records.keys()
                         | dict(writes).keys())}
        if not self._save() and by_choice:
            raise OSError(errno.EIO, 'the first sets cannot be recorded',
                          self._store.path(STATE))
        for name, value in writes:
            self._write(sets.groups[name], value)

    def _check_threads(self, sets: CpuSets, confined: Mapping[str, Cpus]
                       ) -> None:
        """Check once that each set confines the threads of its group.

        :raises OSError: if it does not.
        """
        for name, cpus in confined.items():
            if sets.checked.get(name) != cpus:
                sets.check_threads(name, cpus, self._hierarchy.proc)
        sets.checked = dict(confined)

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
            for key in self._refusals.keys() - keys:
                del self._refusals[key]
            self._problems.forget_others(uuids)

    def _drop_record(self, key: str) -> None:
        if self._records.pop(key, None) is not None:
            self._save()

    def _save(self) -> bool:
        return self._store.save(STATE, {'guests': self._records})
