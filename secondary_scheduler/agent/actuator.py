"""Limits and priority of secondaries, by writing their cgroup files.

Direct writes take a tenth of a millisecond and need neither libvirtd nor its
job lock.  Everything that is written goes through ``Actuator._write``, which
knows two kinds of groups only: those of verified secondaries, and libvirt's
machine slice while nothing but secondaries is in it.  (``Controllers`` hands
controllers on to the former.)

A limit counts once the kernel says it.  A guest of which it does not is named
in ``problems``, with the file, and is not at its floor, whatever was tried.
"""

from collections.abc import Iterable, Sequence
import errno
import functools
import math
import os
import re
import signal
import threading

from oslo_log import log as logging

from secondary_scheduler.agent import cgroups, processes
from secondary_scheduler.agent import store as agent_store
from secondary_scheduler.agent.cgroup_handles import (
    SERVICE,
    VCPU,
    CgroupHandles,
    NotSecondary,
    key_of,
    lives,
    open_handles,
    process_key,
    set_file,
)
from secondary_scheduler.agent.cgroups import Limit, parse_limit
from secondary_scheduler.agent.controllers import Controllers
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.kernel_files import explain
from secondary_scheduler.agent.problems import Problems

LOG = logging.getLogger(__name__)

STATE = 'limits.json'

#: The kernel grants no quota below 1 ms a period; 100 ms is the longest
#: period at which a throttled vCPU does not stall QEMU for too long.
LEAST_QUOTA_US = 1000
LONG_PERIOD_US = 100_000

_SLICE = re.compile(r'machine(-[\w\\-]+)?(\.slice|\.partition)?')
_WRITABLE = re.compile(
    r'((vcpu\d+|emulator|iothread\d+)/'
    r'(cpu\.cfs_quota_us|cpu\.cfs_period_us|cpu\.max))'
    r'|cpu\.idle|cpu\.shares|cpu\.weight|oom_score_adj'
    r'|memory\.(soft_limit_in_bytes|high)|cgroup\.freeze')
#: The freezer of version 2; it needs no controller.
_FREEZE = 'cgroup.freeze'

#: The kernel ends those first, whatever they hold.
_FIRST_TO_GO = '1000'

#: What a guest that takes no more memory may take all the same, in bytes: a
#: suspend and a migration have buffers.
_MEMORY_SLACK = 32 << 20


class Actuator:
    """Writes limits; ``dry_run`` logs what it would write instead."""

    def __init__(self, hierarchy: cgroups.Hierarchy,
                 store: agent_store.StateStore, period_us: int = 20_000,
                 service_us: int = 10_000, cpu_idle: bool = True,
                 dry_run: bool = False,
                 floor_us: int = LONG_PERIOD_US) -> None:
        self._hierarchy = hierarchy
        self._v1 = hierarchy.version == 1
        self._store = store
        self._period_us = period_us
        self._service_us = service_us
        self._floor_us = floor_us
        self._cpu_idle = cpu_idle
        self._dry_run = dry_run
        self._lock = threading.RLock()
        self._open_handles: dict[tuple[str, int, int], CgroupHandles] = {}
        self._slice: cgroups.Group | None = None
        self._problems = Problems(functools.partial(
            LOG.error, 'Cannot limit %s: %s'))
        self.controllers = Controllers(hierarchy, store, dry_run)
        state = store.load(STATE)
        #: What the files said before our first write, by guest and file.
        guests = state.get('guests', {})
        self._first: dict[str, dict[str, str]] = {
            guest: {name: value for name, value in _texts(files).items()
                    if _is_first(name, value)}
            for guest, files in guests.items()} if isinstance(
                guests, dict) else {}
        #: Path and weight of the slice that we gave the lowest priority.
        self._idle_slice = _texts(state.get('slice', {}))
        if not self._idle_slice.keys() >= {'path', 'weight'}:
            self._idle_slice = {}
        if state and state != {'guests': self._first,
                               'slice': self._idle_slice}:
            LOG.error('Parts of %s cannot be read, going on without: guests '
                      'may keep limits of ours', store.path(STATE))
        #: Who was killed, and needs CPU to end.
        self._ending: set[str] = set()
        #: Who has its limits back.
        self._released: set[str] = set()
        #: Groups of secondaries whose threads are ending.
        self._left: set[str] = set()
        self.effective: dict[str, bool] = {'vm': False, 'service': False}
        #: CPUs that a guest's emulator and I/O threads may use when it is
        #: not at the floor; None leaves them the limits they had.
        self.service_cpus: float | None = None

    # -- the one place that writes -----------------------------------------
    def _write(self, group: cgroups.Group, name: str, value: str) -> None:
        """Write a file of a known group, if it says something else.

        :raises NotSecondary: if the group is no verified secondary's.
        :raises OSError: if the kernel refuses, or does not do it.
        """
        mine = any(group in (handles.scope, handles.base, handles.process,
                             handles.memory)
                   for handles in self._open_handles.values())
        if not (mine or (group is self._slice and name.startswith('cpu.'))):
            raise NotSecondary(f'refused to write {name} of {group.path}')
        if not _WRITABLE.fullmatch(name):
            raise NotSecondary(f'refused to write the file {name}')
        if group.read(name) == value:
            return
        if self._dry_run:
            LOG.info('Would write %(value)s to %(path)s/%(name)s', {
                'value': value, 'path': group.path, 'name': name})
            return
        set_file(group, name, value)

    # -- getting hold of a guest -------------------------------------------
    def _handles_of(self, guest: Secondary) -> CgroupHandles | None:
        key = guest.uuid, guest.pid, guest.started
        with self._lock:
            if key not in self._open_handles:
                try:
                    self._open_handles[key] = open_handles(
                        self._hierarchy, guest)
                    self._problems.solved(guest.uuid)
                    self._recall(self._open_handles[key])
                except cgroups.CgroupError as exc:
                    self._problems.note(guest.uuid, explain(exc))
                    return None
            return self._open_handles[key]

    def _recall(self, handles: CgroupHandles) -> None:
        """Make up what was there before us if the record of it is lost.

        That we were here its process tells.  Our own limits must not be taken
        for the guest's: it would never get above them again.
        """
        key = key_of(handles.guest)
        try:
            if (key in self._first
                    or handles.process.read('oom_score_adj') != _FIRST_TO_GO):
                return
        except OSError:
            return
        LOG.warning('What limits %s had before this agent came is not on '
                    'disk any more; it is taken to have had none',
                    handles.guest.uuid)
        self._first[key] = {
            'oom': '0', 'weight': '1024' if self._v1 else '100',
            **dict.fromkeys(self._threads(handles, VCPU)
                            + self._threads(handles, SERVICE),
                            _text((None, LONG_PERIOD_US)))}
        self._save()

    def forget(self, alive: Iterable[Secondary]) -> None:
        """Let go of the guests that are not there any more.

        What a guest's files said at first is kept while its process lives:
        it may have come since the caller looked, and what we have written
        by now must never be taken for what was there before us.
        """
        keep = {(guest.uuid, guest.pid, guest.started) for guest in alive}
        with self._lock:
            gone = [key for key in self._open_handles if key not in keep]
            if gone:
                self._note_left()
            for key in gone:
                self._open_handles.pop(key).close()
            over = [name for name in
                    set(self._first) - {process_key(*key) for key in keep}
                    if not self._lives(name)]
            if over:
                for name in over:
                    del self._first[name]
                self._ending.difference_update(over)
                self._save()
            self._problems.keep(key[0] for key in keep)

    def _note_left(self) -> None:
        """Note in which groups threads of secondaries are ending.

        At the floor that may take seconds, and nobody else is in them.
        """
        left = self._left | {
            handles.scope.path
            for handles in self._open_handles.values()
            if not self._lives(key_of(handles.guest))
        }
        self._left = {
            path for path in left if os.path.isdir(path)
            and not cgroups.is_deserted(path, self._hierarchy.version)}

    def _lives(self, name: str) -> bool:
        return lives(name, self._hierarchy.proc)

    @property
    def problems(self) -> dict[str, str]:
        """Why secondaries cannot be limited, by UUID."""
        with self._lock:
            return self._problems.present()

    def is_limited(self, uuid: str) -> bool:
        """Tell whether what a guest was last limited to is in force.

        One that is frozen uses nothing.
        """
        with self._lock:
            return uuid not in self._problems or any(
                handles.guest.uuid == uuid and self._is_frozen(handles)
                for handles in self._open_handles.values())

    def usage_ns(self, guest: Secondary) -> int | None:
        """Return a guest's CPU time in nanoseconds, None if unknown."""
        with self._lock:
            handles = self._handles_of(guest)
            if handles is None:
                return None
            try:
                return cgroups.usage_ns(
                    handles.accounting, self._hierarchy.version_of('cpuacct'))
            except (OSError, ValueError):
                return None

    # -- bandwidth ---------------------------------------------------------
    def set_share(self, guest: Secondary, percent: float,
                  capacity: float) -> bool:
        """Cap a guest's vCPUs at a percentage of the host.

        ``capacity`` is the host's in CPUs.  Emulator and I/O threads may
        use ``service_cpus``.  False if the guest cannot be limited.
        """
        with self._lock:
            handles = self._handles_of(guest)
            if handles is None:
                return False
            vcpus = self._threads(handles, VCPU)
            ratio = percent / 100 * capacity / max(1, len(vcpus))
            # A version 1 group may not be given more than its parent has.
            ratio = min(ratio, 1.0, capacity)
            limits = dict.fromkeys(vcpus, self._quota(ratio))
            self._thaw(handles)
            return self._set_limits(
                handles, {**limits, **self._lifted(handles)})

    def _quota(self, ratio: float) -> Limit:
        """Return the limit of this ratio with the shortest period allowed."""
        period = max(self._period_us, LEAST_QUOTA_US / max(ratio, 1e-9))
        period = math.ceil(min(period, LONG_PERIOD_US))
        return max(int(ratio * period), LEAST_QUOTA_US), period

    def floor(self, guest: Secondary, service: bool = True) -> bool:
        """Take a guest to its floor: 1 ms in ``floor_us`` for each vCPU.

        ``service`` takes emulator and I/O threads to their floor as well;
        otherwise they may use ``service_cpus``.  False if the guest cannot
        be limited.
        """
        with self._lock:
            handles = self._handles_of(guest)
            if handles is None:
                return False
            limits: dict[str, Limit] = dict.fromkeys(
                self._threads(handles, VCPU), (LEAST_QUOTA_US, self._floor_us))
            if service:
                limits |= dict.fromkeys(self._threads(handles, SERVICE),
                                        (self._service_us, LONG_PERIOD_US))
            else:
                limits |= self._lifted(handles)
            done = self._set_limits(handles, limits)
            if done or not service:
                self._thaw(handles)
            return done or (service and self._freeze(handles))

    def lift_emulator(self, guest: Secondary) -> bool:
        """Let emulator and I/O threads run, for an operation of Nova's."""
        with self._lock:
            handles = self._handles_of(guest)
            if handles is None:
                return False
            self._thaw(handles)
            return not any([self._limit(handles, name, limit) for name, limit
                            in self._lifted(handles).items()])

    def _lifted(self, handles: CgroupHandles) -> dict[str, Limit]:
        """Return the limits of a guest's emulator and I/O threads."""
        names = self._threads(handles, SERVICE)
        if self.service_cpus is not None:
            return dict.fromkeys(names, self._quota(self.service_cpus))
        return self._at_first(handles, names)

    def _at_first(self, handles: CgroupHandles,
                  names: list[str]) -> dict[str, Limit]:
        """Return the limits that threads had at first."""
        first = self._first.get(key_of(handles.guest), {})
        return {name: parse_limit(first[name]) for name in names
                if name in first}

    def _restore(self, handles: CgroupHandles, names: list[str]) -> bool:
        """Give threads back the limits that they had at first."""
        return not any([self._limit(handles, name, limit) for name, limit
                        in self._at_first(handles, names).items()])

    def _set_limits(self, handles: CgroupHandles,
                    limits: dict[str, Limit]) -> bool:
        """Set limits of all of a guest's threads; tell whether they hold.

        Where the controller is missing it is asked for, once in a while.
        """
        if key_of(handles.guest) in self._ending:
            return True
        problem = self._try_limits(handles, limits)
        if problem and self.controllers.hand_on(handles.base.path, 'cpu'):
            problem = self._try_limits(handles, limits)
        if problem is None:
            self._problems.solved(handles.guest.uuid)
        elif self._lives(key_of(handles.guest)):
            self._problems.note(handles.guest.uuid, explain(problem))
        return problem is None

    def _try_limits(self, handles: CgroupHandles, limits: dict[str, Limit]
                    ) -> Exception | None:
        """Set limits of threads; return what first kept one from holding."""
        missing = {f'vcpu{number}' for number in range(
            max(1, handles.guest.vcpus))} - limits.keys()
        problems = [self._limit(handles, name, limit)
                    for name, limit in limits.items()]
        if missing:
            problems.append(FileNotFoundError(
                errno.ENOENT, 'there is no such group of threads',
                f'{handles.base.path}/{min(missing)}'))
        return next(filter(None, problems), None)

    # -- the freezer -------------------------------------------------------
    def _freeze(self, handles: CgroupHandles) -> bool:
        """Hold a guest still as a whole, where it cannot be limited.

        Nova sees nothing of it, but no operation of Nova's would end.
        """
        try:
            first = self._first.setdefault(key_of(handles.guest), {})
            if _FREEZE not in first:
                first[_FREEZE] = handles.scope.read(_FREEZE)
                self._save()
            self._write(handles.scope, _FREEZE, '1')
            frozen = self._is_frozen(handles)
        except (OSError, ValueError) as exc:
            LOG.info('%(uuid)s cannot be frozen either: %(reason)s', {
                'uuid': handles.guest.uuid, 'reason': explain(exc)})
            return False
        return frozen

    def _is_frozen(self, handles: CgroupHandles) -> bool:
        if _FREEZE not in self._first.get(key_of(handles.guest), {}):
            return False    # not by us, and it need not be asked
        try:
            return handles.scope.read(_FREEZE) == '1'
        except (OSError, ValueError):
            return False

    def _thaw(self, handles: CgroupHandles) -> bool:
        """Undo ``_freeze``."""
        first = self._first.get(key_of(handles.guest), {})
        try:
            if _FREEZE in first:
                self._write(handles.scope, _FREEZE, first[_FREEZE])
        except (OSError, ValueError) as exc:
            LOG.warning('Cannot thaw %(uuid)s: %(reason)s', {
                'uuid': handles.guest.uuid, 'reason': exc})
            return False
        return True

    def release(self, guest: Secondary) -> bool:
        """Give a guest back the limits and the priority it had at first."""
        with self._lock:
            handles = self._handles_of(guest)
            if handles is None:
                return False
            done = self._thaw(handles)
            done = self._restore(handles, self._threads(handles, VCPU)
                                 + self._threads(handles, SERVICE)) and done
            first = self._first.get(key_of(guest), {})
            if 'weight' in first:
                done = self._raise_priority(handles.scope,
                                            first['weight']) and done
            done = self._relax_memory(handles) and done
            done = self._spare(handles, first.get('oom')) and done
            return self._take_back(handles) and done

    def _take_back(self, handles: CgroupHandles) -> bool:
        """Undo what was handed on; in shared groups, with the last guest."""
        self._released.add(key_of(handles.guest))
        needed = any(self._lives(name)
                     for name in self._first.keys() - self._released)
        return self.controllers.take_back(handles.scope.path if needed else '')

    def _spare(self, handles: CgroupHandles, score: str | None) -> bool:
        """Undo a sacrifice."""
        try:
            if score is not None:
                self._write(handles.process, 'oom_score_adj', score)
        except OSError as exc:
            LOG.warning('Cannot restore oom_score_adj of %(uuid)s: %(reason)s',
                        {'uuid': handles.guest.uuid, 'reason': exc})
            return False
        return True

    @staticmethod
    def _threads(handles: CgroupHandles, kind: re.Pattern[str]) -> list[str]:
        try:
            return [name for name in handles.base.children()
                    if kind.fullmatch(name)]
        except OSError:
            return []

    def _current(self, handles: CgroupHandles, name: str) -> Limit:
        return cgroups.read_limit(handles.base, self._hierarchy.version, name)

    def _limit(self, handles: CgroupHandles, name: str, limit: Limit
               ) -> Exception | None:
        """Set one thread group's limit unless the kernel has it already.

        :returns: why it is not in force, None if it is.
        """
        if key_of(handles.guest) in self._ending:
            return None
        try:
            now = self._current(handles, name)
            first = self._first.setdefault(key_of(handles.guest), {})
            if name not in first:
                first[name] = _text(now)
                self._save()
            limit = _lower(limit, parse_limit(first[name]))
            if now != limit:
                self._set(handles, name, now, limit)
        except (OSError, ValueError) as exc:
            # A guest that has just ended, mostly.
            LOG.info('No limit for %(name)s of %(uuid)s: %(reason)s', {
                'name': name, 'uuid': handles.guest.uuid,
                'reason': explain(exc)})
            return exc
        return None

    def _set(self, handles: CgroupHandles, name: str,
             now: Limit, limit: Limit) -> None:
        if not self._v1:
            self._write(handles.base, f'{name}/cpu.max', _text(limit))
            return
        try:
            self._set_v1(handles, name, now, limit)
        except OSError as exc:
            if exc.errno != errno.EINVAL:
                raise
            # More than the parent has.  The floor fits anywhere.
            above = [cgroups.bandwidth(group, 1)
                     for group in (handles.base, handles.scope)]
            ratio = min((value for value in above if value), default=0.0)
            self._set_v1(handles, name, self._current(handles, name),
                         self._quota(ratio))

    def _set_v1(self, handles: CgroupHandles, name: str, now: Limit,
                limit: Limit) -> None:
        quota = f'{name}/cpu.cfs_quota_us', str(limit[0] or -1)
        period = f'{name}/cpu.cfs_period_us', str(limit[1])
        # Between the two writes the limit must not exceed the new or the
        # old one, or the kernel may refuse it.
        order = (period, quota) if limit[1] > now[1] else (quota, period)
        for file, value in order:
            self._write(handles.base, file, value)

    # -- priority ----------------------------------------------------------
    def prioritise(self, guests: Sequence[Secondary]) -> None:
        """Give secondaries the lowest priority that can be had.

        First the machine slice is made an ordinary one unless nothing but
        these secondaries is in it: a primary that has just appeared must not
        wait.  Then each secondary goes behind its siblings.
        """
        with self._lock:
            all_handles = [
    handles for guest in guests if (
        handles := self._handles_of(guest))]
            service = self._guard_slice(all_handles)
            for handles in all_handles:
                self._sacrifice(handles)
            if not self._cpu_idle:
                return
            done = [self._idle(handles) for handles in all_handles]
            self.effective = {
                'vm': len(all_handles) == len(guests) and all(done),
                'service': service}

    def _sacrifice(self, handles: CgroupHandles) -> None:
        """Have the kernel end a secondary before anything of a primary's.

        Where memory runs out although policies hold it, it chooses by size.
        """
        try:
            first = self._first.setdefault(key_of(handles.guest), {})
            if 'oom' not in first:
                first['oom'] = handles.process.read('oom_score_adj')
                self._save()
            self._write(handles.process, 'oom_score_adj', _FIRST_TO_GO)
        except OSError as exc:
            LOG.info('The kernel may spare %(uuid)s: %(reason)s', {
                'uuid': handles.guest.uuid, 'reason': exc})

    def _guard_slice(self, all_handles: Sequence[CgroupHandles]) -> bool:
        """Set the slice's priority; tell whether it is the lowest."""
        parents = {os.path.dirname(handles.scope.path)
                   for handles in all_handles}
        if self._idle_slice and parents != {self._idle_slice['path']}:
            self.free_slice()
        if len(parents) != 1 or not self._cpu_idle:
            return False
        path = parents.pop()
        if (not _SLICE.fullmatch(os.path.basename(path))
                or path == self._hierarchy.root('cpu')):
            return False
        try:
            group = self._hold_slice(path)
            known = {os.path.basename(handles.scope.path)
                     for handles in all_handles}
            others = set(group.children()) - known
            if others:
                self._note_left()
                others -= set(map(os.path.basename, self._left))
            if not group.read('cgroup.procs') and all(
                    cgroups.is_deserted(f'{path}/{name}',
                                        self._hierarchy.version)
                    for name in others):
                return self._idle_on(group)
        except (OSError, cgroups.CgroupError) as exc:
            LOG.warning('Machine slice %(path)s: %(reason)s',
                        {'path': path, 'reason': exc})
        self.free_slice()
        return False

    def _hold_slice(self, path: str) -> cgroups.Group:
        if self._slice is not None and (self._slice.path != path
                                        or not self._slice.is_current()):
            self._slice.close()
            self._slice = None
        if self._slice is None:
            self._slice = cgroups.Group(path)
        return self._slice

    def _idle_on(self, group: cgroups.Group) -> bool:
        if not group.has('cpu.idle'):
            return False    # a weight of 1 would starve primaries to come
        if group.read('cpu.idle') == '1':
            return True
        self._idle_slice = {'path': group.path,
                            'weight': group.read(self._weight_file)}
        self._save()
        self._write(group, 'cpu.idle', '1')
        return True

    def free_slice(self) -> None:
        """Make the machine slice an ordinary group again, if we changed it.

        A primary guest must find it so, and nobody watches for one when the
        agent is gone.
        """
        with self._lock:
            if not self._idle_slice:
                return
            path = self._idle_slice['path']
            try:
                if (_SLICE.fullmatch(os.path.basename(path))
                        and not self._raise_priority(
                            self._hold_slice(path),
                            self._idle_slice['weight'])):
                    return      # the next step tries again
            except cgroups.CgroupError as exc:
                LOG.info('The machine slice is gone: %s', exc)
            self._idle_slice = {}
            self._save()

    @property
    def _weight_file(self) -> str:
        return 'cpu.shares' if self._v1 else 'cpu.weight'

    def _idle(self, handles: CgroupHandles) -> bool:
        """Put one guest behind its siblings; tell whether it is."""
        if key_of(handles.guest) in self._ending:
            return True
        try:
            first = self._first.setdefault(key_of(handles.guest), {})
            if 'weight' not in first:
                first['weight'] = handles.scope.read(self._weight_file)
                self._save()
            if handles.scope.has('cpu.idle'):
                self._write(handles.scope, 'cpu.idle', '1')
            else:
                self._write(handles.scope, self._weight_file,
                            '2' if self._v1 else '1')
        except (OSError, ValueError) as exc:
            LOG.info('No priority for %(uuid)s: %(reason)s', {
                'uuid': handles.guest.uuid, 'reason': exc})
            return False
        return True

    def _raise_priority(self, group: cgroups.Group, weight: str) -> bool:
        """Undo the lowest priority; the kernel forgets the weight by it."""
        try:
            if group.has('cpu.idle'):
                self._write(group, 'cpu.idle', '0')
            self._write(group, self._weight_file, weight)
        except OSError as exc:
            LOG.warning('Cannot restore the priority of %(path)s: %(why)s',
                        {'path': group.path, 'why': exc})
            return False
        return True

    # -- memory ------------------------------------------------------------
    @property
    def _memory_v1(self) -> bool:
        return self._hierarchy.version_of('memory') == 1

    @property
    def _memory_file(self) -> str:
        return ('memory.soft_limit_in_bytes' if self._memory_v1
                else 'memory.high')

    def press_memory(self, guest: Secondary) -> bool:
        """Have the kernel take memory back from a guest before others.

        Version 1 knows whose pages go first, version 2 whom to hold up who
        takes more.  False if it cannot be had.
        """
        with self._lock:
            handles = self._handles_of(guest)
            if handles is None or handles.memory is None:
                return False
            try:
                now = handles.memory.read(self._memory_file)
                first = self._first.setdefault(key_of(guest), {})
                if 'memory' not in first:
                    first['memory'] = now
                    self._save()
                if now != first['memory']:
                    return True     # once is enough, or it would ratchet
                self._write(
                    handles.memory, self._memory_file, '0' if self._memory_v1
                    else str(self._memory_limit(handles.memory, now)))
            except (OSError, ValueError) as exc:
                LOG.info('No limit on the memory of %(uuid)s: %(reason)s', {
                    'uuid': guest.uuid, 'reason': exc})
                return False
            return True

    @staticmethod
    def _memory_limit(group: cgroups.Group, now: str) -> int | str:
        """Return what a guest holds and some, in whole pages."""
        limit = (int(group.read('memory.current')) + _MEMORY_SLACK) & ~0xffff
        return now if now != 'max' and int(now) < limit else limit

    def relax_memory(self, guest: Secondary) -> bool:
        """Undo ``press_memory``."""
        with self._lock:
            handles = self._handles_of(guest)
            return handles is not None and self._relax_memory(handles)

    def _relax_memory(self, handles: CgroupHandles) -> bool:
        first = self._first.get(key_of(handles.guest), {})
        try:
            if 'memory' in first and handles.memory is not None:
                self._write(handles.memory, self._memory_file, first['memory'])
        except OSError as exc:
            LOG.warning('Cannot restore the memory limit of %(uuid)s: '
                        '%(reason)s', {'uuid': handles.guest.uuid,
                                       'reason': exc})
            return False
        return True

    # -- the end -----------------------------------------------------------
    def kill(self, guest: Secondary) -> bool:
        """End a guest's QEMU, and surely no other process.

        False if it was not ended: it is not the guest's any more, or the
        kernel refused.
        """
        proc = self._hierarchy.proc
        if self._dry_run:
            LOG.info('Would kill the QEMU of %s', guest.uuid)
            return False
        try:
            fd = os.pidfd_open(guest.pid)
        except OSError:
            return False
        try:
            # The descriptor is of whoever has the number now; is it still
            # the guest?
            if processes.start_time(guest.pid, proc) != guest.started or (
                    not processes.is_guest(guest.pid, guest.uuid, guest.name,
                                           proc)):
                return False
            signal.pidfd_send_signal(fd, signal.SIGKILL)
            processes.take_memory(fd)
        except OSError as exc:
            LOG.error('Cannot kill the QEMU of %(uuid)s: %(reason)s',
                      {'uuid': guest.uuid, 'reason': exc})
            return False
        finally:
            os.close(fd)
        LOG.warning('Killed the QEMU of secondary %s', guest.uuid)
        self._let_end(guest)
        return True

    def _let_end(self, guest: Secondary) -> None:
        """Give a process that ends the CPU that this takes, until it has.

        Its threads give back what it has, at the floor a hundred times slower.
        """
        with self._lock:
            handles = self._handles_of(guest)
            if handles is None:
                return
            self._thaw(handles)
            self._restore(handles, self._threads(handles, VCPU)
                          + self._threads(handles, SERVICE))
            weight = self._first.get(key_of(guest), {}).get('weight')
            if weight is not None:
                self._raise_priority(handles.scope, weight)
            self._ending.add(key_of(guest))

    def _save(self) -> None:
        self._store.save(STATE, {'guests': self._first,
                                 'slice': self._idle_slice})


def _texts(data: object) -> dict[str, str]:
    """Return what of a state file's object is text that files may hold."""
    if not isinstance(data, dict):
        return {}
    return {name: value for name, value in data.items()
            if isinstance(value, str) and value.isascii()}


def _is_first(name: str, value: str) -> bool:
    """Tell whether a file of a guest's can have said this at first."""
    if not (VCPU.fullmatch(name) or SERVICE.fullmatch(name)):
        return True
    try:
        parse_limit(value)
    except ValueError:
        return False
    return True


def _text(limit: Limit) -> str:
    return f'{"max" if limit[0] is None else limit[0]} {limit[1]}'


def _lower(limit: Limit, first: Limit) -> Limit:
    """Return the lower of two limits: a flavor's own is never exceeded."""
    if limit[0] is None or first[0] is None:
        return first if limit[0] is None else limit
    return min(limit, first, key=lambda one: (one[0] or 0) / one[1])
