"""Keeping secondaries off the CPUs that primaries have for themselves.

A host with ``cpu_dedicated_set`` and without ``cpu_shared_set`` has no CPUs
for instances that float.  Nova's libvirt driver then gives a secondary no CPU
set at all, so it would float over the dedicated CPUs of primaries, too.

The sets of a secondary's control groups are narrowed, and only that: each is
always a part of what it was before the first write.  libvirt makes the groups
anew whenever a guest starts (boot, reboot, resume, a migration to here), so
they are looked at in each step of control.
"""

from collections.abc import Iterable, Iterator, Mapping
import contextlib
import functools
import os
import threading
import time
import typing

from oslo_log import log as logging

from secondary_scheduler.agent import (
    cgroup_handles,
    cgroups,
    kernel_files,
    pins,
)
from secondary_scheduler.agent import store as agent_store
from secondary_scheduler.agent.controllers import Controllers
from secondary_scheduler.agent.domains import Primary, Secondary
from secondary_scheduler.agent.problems import Problems

LOG = logging.getLogger(__name__)

STATE = 'cpusets.json'

_FILE = 'cpuset.cpus'
#: Seconds for which the masks of primaries' threads are good; the domain XML
#: tells of new ones at once.
_LOOK_S = 10.0

Cpus = pins.Cpus


class NoCpuLeft(Exception):
    """Primaries have all CPUs that a secondary may use."""


class _Said(typing.NamedTuple):
    """First value of a file, and the values that an agent has written.

    Of several writes it is not known which was the last, if an agent has died
    between them.
    """

    first: str
    ours: tuple[str, ...] = ()


class _Sets:
    """The groups of one secondary whose CPU sets are known, held open."""

    def __init__(self, hierarchy: cgroups.Hierarchy, guest: Secondary
                 ) -> None:
        """Open them.

        :raises CgroupError: if they are not surely the guest's alone.
        """
        self.path = cgroup_handles.base_of(hierarchy, guest, 'cpuset')
        scope = cgroup_handles.scope_of(self.path)
        self.v1 = hierarchy.version_of('cpuset') == 1
        self._above = list(_above(scope, hierarchy.root('cpuset')))
        #: The guest's topmost group as '', and those of its threads.
        self.groups: dict[str, cgroups.Group] = {}
        self._base = cgroups.Group(self.path)
        try:
            self.groups[''] = cgroups.Group(scope)
            for name in self._named():
                self.groups[name] = cgroups.Group(f'{self.path}/{name}')
            cgroup_handles.check_own(hierarchy, guest, 'cpuset', self.path)
        except cgroups.CgroupError:
            self.close()
            raise

    def _named(self) -> set[str]:
        return {name for name in self._base.children()
                if cgroup_handles.SERVICE.fullmatch(name)
                or cgroup_handles.VCPU.fullmatch(name)}

    def are_all(self) -> bool:
        """Tell whether libvirt has made no further groups meanwhile.

        :raises OSError: if the groups are gone.
        """
        return self._named() | {''} == self.groups.keys()

    def read(self, name: str) -> str:
        """Return the set of a group, '' if it names none.

        :raises OSError: if it has no such file.
        """
        try:
            return self.groups[name].read(_FILE)
        except FileNotFoundError:
            if name and not self.v1:
                return ''       # it has what the group above it has
            raise

    def allowed(self, named: str) -> Cpus:
        """Return the CPUs that a set names, or those of the groups above.

        :raises CgroupError: if these do not say.
        """
        if cpus := kernel_files.parse_cpus(named, f'{self.path}/{_FILE}'):
            return cpus
        for path in self._above:
            with contextlib.suppress(cgroups.CgroupError), contextlib.closing(
                    cgroups.Group(path)) as group:
                if cpus := cgroups.effective_cpus(group):
                    return cpus
        raise cgroups.CgroupError(
            f'no group above {self.path} says which CPUs it has')

    def close(self) -> None:
        """Let go of all of them."""
        self._base.close()
        for group in self.groups.values():
            group.close()


def _above(path: str, root: str) -> Iterator[str]:
    """Yield the groups above one, up to the topmost that we can see."""
    while path != root and path.startswith(root):
        path = os.path.dirname(path)
        yield path


class DedicatedCpus:
    """Narrows the CPU sets of secondaries; safe for threads.

    With ``dry_run`` it logs what it would write instead.
    """

    def __init__(self, hierarchy: cgroups.Hierarchy,
                 store: agent_store.StateStore, controllers: Controllers,
                 dry_run: bool = False) -> None:
        self._hierarchy = hierarchy
        self._store = store
        self._controllers = controllers
        self._dry_run = dry_run
        self._lock = threading.Lock()
        self._sets: dict[str, _Sets] = {}
        self._said = _from_state(store.load(STATE))
        self._problems = Problems(functools.partial(
            LOG.error, '%s may run on CPUs of primaries: %s'))
        self._masks: dict[tuple[int, int], pins.Pins] = {}
        self._looked_at = 0.0
        #: The CPUs that primaries have for themselves, None until that is
        #: known: an agent that has just started widens nothing.
        self.own: Cpus | None = None

    @property
    def problems(self) -> dict[str, str]:
        """Why secondaries may run on CPUs of primaries, by UUID."""
        with self._lock:
            return self._problems.present()

    # -- the CPUs of primaries ---------------------------------------------
    def look(self, primaries: Iterable[Primary],
             guests: Iterable[Secondary], now: float | None = None) -> None:
        """Find the CPUs that primaries have for themselves.

        :param guests: the secondaries; sets that they were given to float
            over are no primary's own.
        """
        now = time.monotonic() if now is None else now
        known = {(one.pid, one.started): one for one in primaries}
        if (known.keys() != self._masks.keys()
                or now - self._looked_at > _LOOK_S):
            self._looked_at = now
            self._masks = {key: pins.read_threads(one.pid,
                                                  self._hierarchy.proc)
                           for key, one in known.items()}
        with self._lock:
            own = self._own_cpus(known, guests)
        if own != (self.own or frozenset()):
            LOG.info('CPUs that primaries have for themselves: %s',
                     kernel_files.format_cpus(own) or 'none')
        self.own = own

    def _own_cpus(self, primaries: Mapping[tuple[int, int], Primary],
                  guests: Iterable[Secondary]) -> Cpus:
        given = {kernel_files.parse_cpus(guest.cpus, guest.uuid)
                 for guest in guests}
        own = frozenset[int]().union(*(
            pins.own_cpus(one.pins, given) for one in primaries.values()))
        if any(pins.own_cpus(one, given) for one in self._masks.values()):
            # A thread that may run on all that there is is not pinned.
            floated = given | self._floated(guests)
            own = own.union(*(pins.own_cpus(one, floated)
                              for one in self._masks.values()))
        return own

    def _floated(self, guests: Iterable[Secondary]) -> set[Cpus]:
        """Return the sets over which guests float that are pinned nowhere."""
        # What is pinned nowhere has the mask of the first process, which the
        # kernel's isolcpus and systemd's CPUAffinity narrow.
        found = set(pins.read_threads(1, self._hierarchy.proc).others)
        with contextlib.suppress(ValueError, cgroups.CgroupError), (
                contextlib.closing(cgroups.Group(
                    self._hierarchy.root('cpuset')))) as root:
            found.add(cgroups.effective_cpus(root))
        for guest in guests:
            with contextlib.suppress(OSError, ValueError,
                                     cgroups.CgroupError):
                said = self._said.get(cgroup_handles.key_of(guest), {}).get('')
                sets = self._opened(guest)
                found.add(sets.allowed(said.first if said
                                       else sets.read('')))
        return found

    # -- the sets of secondaries -------------------------------------------
    def keep(self, guests: Iterable[Secondary]) -> None:
        """Take the CPUs of primaries out of the sets of secondaries.

        Where that cannot be done, or where no CPU is left, ``problems`` says
        so.
        """
        with self._lock:
            own = self.own
            if own is None:
                return
            for guest in guests:
                if own or cgroup_handles.key_of(guest) in self._said:
                    self._keep(guest, own)
                else:
                    self._problems.solved(guest.uuid)

    def _keep(self, guest: Secondary, own: Cpus) -> None:
        try:
            try:
                self._narrow(guest, own)
            except OSError:
                # No controller, or libvirt has made the groups anew.
                self._close(guest)
                self._controllers.hand_on(cgroup_handles.base_of(
                    self._hierarchy, guest, 'cpuset'), 'cpuset')
                self._narrow(guest, own)
        except (OSError, ValueError, cgroups.CgroupError, NoCpuLeft) as exc:
            if not isinstance(exc, NoCpuLeft):
                self._close(guest)
            if cgroup_handles.lives(
                cgroup_handles.key_of(guest), self._hierarchy.proc):
                self._problems.note(guest.uuid, kernel_files.explain(exc))
        else:
            self._problems.solved(guest.uuid)

    def _narrow(self, guest: Secondary, own: Cpus) -> None:
        """Give each group the CPUs that it had at first, without some.

        :raises OSError: if the kernel refuses, or does not do it.
        :raises NoCpuLeft: if there is none; nothing is written then.
        """
        sets, key = self._opened(guest), cgroup_handles.key_of(guest)
        known = self._said.get(key, {})
        now = {name: sets.read(name) for name in sets.groups}
        wanted, said = {}, {}
        for name, text in now.items():
            said[name] = _heard(
                known.get(name), text, sets,
                known.get('') if name and not guest.cpus else None)
            allowed = sets.allowed(said[name].first)
            if allowed <= own:
                raise NoCpuLeft(
                    f'{sets.groups[name].path}/{_FILE}: primaries have all '
                    f'of the CPUs {kernel_files.format_cpus(allowed)}')
            wanted[name] = (kernel_files.format_cpus(allowed - own)
                            if allowed & own else said[name].first)
        writes = _writes(sets, now, wanted)
        if any(now[name] != value for name, value in writes):
            # On disk before it is in force.
            self._said[key] = {
                name: said[name]._replace(ours=said[name].ours + tuple(
                    value for one, value in writes if one == name))
                for name in dict(writes)}
            self._save()
            for name, value in writes:
                self._write(sets.groups[name], value)
        if key in self._said:
            self._said[key] = {name: one._replace(ours=(wanted[name],))
                               for name, one in self._said[key].items()
                               if name in wanted}
        if not own:
            self._forget_said(key)

    def _write(self, group: cgroups.Group, value: str) -> None:
        """Write the set of a verified secondary's group.

        :raises OSError: if the kernel refuses, or does not do it.
        """
        if group.read(_FILE) == value:
            return
        if self._dry_run:
            LOG.info('Would write %(value)s to %(path)s/%(name)s', {
                'value': value, 'path': group.path, 'name': _FILE})
        else:
            cgroup_handles.set_file(group, _FILE, value)

    def _opened(self, guest: Secondary) -> _Sets:
        key = cgroup_handles.key_of(guest)
        if key in self._sets and not self._sets[key].are_all():
            self._close(guest)
        if key not in self._sets:
            self._sets[key] = _Sets(self._hierarchy, guest)
        return self._sets[key]

    def _close(self, guest: Secondary) -> None:
        sets = self._sets.pop(cgroup_handles.key_of(guest), None)
        if sets is not None:
            sets.close()

    # -- the end -----------------------------------------------------------
    def release(self, guest: Secondary) -> bool:
        """Give a guest back the CPUs that it had at first."""
        with self._lock:
            if cgroup_handles.key_of(guest) not in self._said:
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
        """Let go of guests that are not there any more."""
        guests = list(alive)
        keys = {cgroup_handles.key_of(guest) for guest in guests}
        uuids = {guest.uuid for guest in guests}
        with self._lock:
            for key in self._sets.keys() - keys:
                self._sets.pop(key).close()
            for key in self._said.keys() - keys:
                # It may have come since the caller looked.
                if not cgroup_handles.lives(key, self._hierarchy.proc):
                    self._forget_said(key)
            self._problems.keep(uuids)

    def _forget_said(self, key: str) -> None:
        if self._said.pop(key, None) is not None:
            self._save()

    def _save(self) -> None:
        self._store.save(STATE, {'guests': self._said})


def _writes(sets: _Sets, now: Mapping[str, str],
            wanted: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what to write to which group, in this order.

    In version 2 the topmost bounds all below it.  In version 1 it must always
    have what those below it have.
    """
    if not sets.v1:
        return [('', wanted[''])]
    both = sets.allowed(now['']) | sets.allowed(wanted[''])
    return [('', kernel_files.format_cpus(both)),
            *((name, wanted[name]) for name in sorted(wanted) if name),
            ('', wanted[''])]


def _heard(said: _Said | None, now: str, sets: _Sets,
           copied: _Said | None) -> _Said:
    """Return what is known of a file that says something now.

    A later value of another program is where it goes back to, if that is
    no more than what was there before.

    :param copied: what is known of the group above, whose set libvirt copies
        into a group that it makes, narrowed or not; None if the domain names
        a set of its own.
    """
    if said is None:
        return _Said(copied.first if copied and now in copied.ours else now)
    if now not in (said.first, *said.ours) and (
            sets.allowed(now) <= sets.allowed(said.first)):
        return _Said(now)
    return said


def _from_state(state: Mapping[str, typing.Any]
                ) -> dict[str, dict[str, _Said]]:
    """Return what an agent has recorded; what is spoilt is left out."""
    guests = state.get('guests', {})
    found: dict[str, dict[str, _Said]] = {}
    for key, files in guests.items() if isinstance(guests, dict) else ():
        if not isinstance(files, dict):
            continue
        for name, entry in files.items():
            try:
                first, ours = entry
                for text in (first, *ours):
                    kernel_files.parse_cpus(text, STATE)
            except (TypeError, ValueError, AttributeError):
                LOG.error('Passing over a record of %s that cannot be read',
                          STATE)
                continue
            found.setdefault(key, {})[name] = _Said(first, tuple(ours))
    return found
