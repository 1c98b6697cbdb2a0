"""Limits and priority of secondaries, by writing their cgroup files.

Direct writes take a tenth of a millisecond and need neither libvirtd nor its
job lock.  Everything that is written goes through ``Actuator._write``, which
knows two kinds of groups only: those of verified secondaries, and libvirt's
machine slice while nothing but secondaries is in it.
"""

from collections.abc import Iterable, Sequence
import dataclasses
import errno
import math
import os
import re
import signal
import threading

from oslo_log import log as logging

from secondary_scheduler.agent import cgroups, processes
from secondary_scheduler.agent import store as agent_store
from secondary_scheduler.agent.cgroups import Limit, parse_limit
from secondary_scheduler.agent.domains import Secondary

LOG = logging.getLogger(__name__)

STATE = 'limits.json'

#: The kernel grants no quota below 1 ms a period; 100 ms is the longest
#: period at which a throttled vCPU does not stall QEMU for too long.
LEAST_QUOTA_US = 1000
LONG_PERIOD_US = 100_000

_SERVICE = re.compile(r'emulator|iothread\d+')
_VCPU = re.compile(r'vcpu\d+')
_SLICE = re.compile(r'machine(-[\w\\-]+)?(\.slice|\.partition)?')
_WRITABLE = re.compile(
    r'((vcpu\d+|emulator|iothread\d+)/'
    r'(cpu\.cfs_quota_us|cpu\.cfs_period_us|cpu\.max))'
    r'|cpu\.idle|cpu\.shares|cpu\.weight|oom_score_adj'
    r'|memory\.(soft_limit_in_bytes|high)')

#: The kernel ends those first, whatever they hold.
_FIRST_TO_GO = '1000'

#: What a guest that takes no more memory may take all the same, in bytes: a
#: suspend and a migration have buffers.
_MEMORY_SLACK = 32 << 20


class NotSecondary(Exception):
    """Somebody tried to write where only primaries may be."""


@dataclasses.dataclass
class _Grip:
    """The groups of one secondary, and its process, held open.

    ``scope`` is the group among whose siblings priority acts, ``base`` the
    one that holds vcpuN, emulator and iothreadN; they differ under systemd.
    ``memory`` is the one that its memory is charged to, if there is one.
    """

    guest: Secondary
    scope: cgroups.Group
    base: cgroups.Group
    accounting: cgroups.Group
    process: cgroups.Group
    memory: cgroups.Group | None

    def close(self) -> None:
        for group in (self.scope, self.base, self.accounting, self.process,
                      self.memory):
            if group is not None:
                group.close()


class Actuator:
    """Writes limits; ``dry_run`` logs what it would write instead."""

    def __init__(self, hierarchy: cgroups.Hierarchy,
                 store: agent_store.Store, period_us: int = 20_000,
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
        self._grips: dict[tuple[str, int, int], _Grip] = {}
        self._slice: cgroups.Group | None = None
        self._problems: dict[str, str] = {}
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
        :raises OSError: if the kernel refuses.
        """
        mine = any(group in (grip.scope, grip.base, grip.process,
                             grip.memory)
                   for grip in self._grips.values())
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
        fd = os.open(name, os.O_WRONLY | os.O_TRUNC, dir_fd=group.fd)
        try:
            os.write(fd, value.encode())
        finally:
            os.close(fd)

    # -- getting hold of a guest -------------------------------------------
    def _grip(self, guest: Secondary) -> _Grip | None:
        key = guest.uuid, guest.pid, guest.started
        with self._lock:
            if key not in self._grips:
                try:
                    self._grips[key] = self._open(guest)
                    self._problems.pop(guest.uuid, None)
                    self._recall(self._grips[key])
                except cgroups.CgroupError as exc:
                    if self._problems.get(guest.uuid) != str(exc):
                        LOG.warning('Cannot limit %(uuid)s: %(reason)s', {
                            'uuid': guest.uuid, 'reason': exc})
                    self._problems[guest.uuid] = str(exc)
                    return None
            return self._grips[key]

    def _open(self, guest: Secondary) -> _Grip:
        base = self._base(guest, 'cpu')
        scope = (os.path.dirname(base)
                 if os.path.basename(base) == 'libvirt' else base)
        opened: list[cgroups.Group] = []
        try:
            for path in (scope, base, self._base(guest, 'cpuacct'),
                         f'{self._hierarchy.proc}/{guest.pid}'):
                opened.append(cgroups.Group(path))
            memory = self._memory_group(guest, scope)
            if memory is not None:
                opened.append(memory)
            # Only if the process outlived all this were the groups its own.
            if (processes.start_time(guest.pid, self._hierarchy.proc)
                    != guest.started or self._base(guest, 'cpu') != base):
                raise cgroups.CgroupError('its process has just ended')
        except cgroups.CgroupError:
            for group in opened:
                group.close()
            raise
        return _Grip(guest, *opened[:4], memory=memory)

    def _memory_group(self, guest: Secondary, scope: str
                      ) -> cgroups.Group | None:
        """Return the group that a guest's memory is charged to, if known.

        Version 1 has none for the threads of a guest.
        """
        try:
            if not self._v1:
                return cgroups.Group(scope)
            path = self._hierarchy.directory(guest.pid, 'memory')
            self._check_name(guest, path)
            return cgroups.Group(path)
        except cgroups.CgroupError:
            return None

    def _recall(self, grip: _Grip) -> None:
        """Make up what was there before us if the record of it is lost.

        That we were here its process tells.  Our own limits must not be taken
        for the guest's: it would never get above them again.
        """
        key = _key_of(grip.guest)
        try:
            if (key in self._first
                    or grip.process.read('oom_score_adj') != _FIRST_TO_GO):
                return
        except OSError:
            return
        LOG.warning('What limits %s had before this agent came is not on '
                    'disk any more; it is taken to have had none',
                    grip.guest.uuid)
        self._first[key] = {
            'oom': '0', 'weight': '1024' if self._v1 else '100',
            **dict.fromkeys(self._threads(grip, _VCPU)
                            + self._threads(grip, _SERVICE),
                            _text((None, LONG_PERIOD_US)))}
        self._save()

    def _base(self, guest: Secondary, controller: str) -> str:
        """Return the directory that holds a guest's vcpuN and emulator.

        :raises CgroupError: if it is not surely this guest's alone: without
            cgroups of its own, a guest is in libvirtd's.
        """
        path = self._hierarchy.directory(guest.pid, controller)
        if not _SERVICE.fullmatch(os.path.basename(path)):
            raise cgroups.CgroupError(f'{path} is no guest\'s own group')
        base = os.path.dirname(path)
        self._check_name(guest, base)
        return base

    @staticmethod
    def _check_name(guest: Secondary, base: str) -> None:
        """Make sure that a group is named after a guest.

        :raises CgroupError: if it is not.
        """
        name = os.path.basename(base)
        if name == 'libvirt':
            name = os.path.basename(os.path.dirname(base))
        dash = r'(?:-|\\x2d)'
        if not re.match(rf'(?:machine-)?qemu{dash}{guest.id}{dash}', name):
            raise cgroups.CgroupError(
                f'{base} is not named after domain {guest.id}')

    def forget(self, alive: Iterable[Secondary]) -> None:
        """Let go of the guests that are not there any more.

        What a guest's files said at first is kept while its process lives:
        it may have come since the caller looked, and what we have written
        by now must never be taken for what was there before us.
        """
        keep = {(guest.uuid, guest.pid, guest.started) for guest in alive}
        with self._lock:
            gone = [key for key in self._grips if key not in keep]
            if gone:
                self._note_left()
            for key in gone:
                self._grips.pop(key).close()
            over = [name for name in
                    set(self._first) - {_key(*key) for key in keep}
                    if not self._lives(name)]
            if over:
                for name in over:
                    del self._first[name]
                self._ending.difference_update(over)
                self._save()
            uuids = {key[0] for key in keep}
            for uuid in set(self._problems) - uuids:
                del self._problems[uuid]

    def _note_left(self) -> None:
        """Note in which groups threads of secondaries are ending.

        At the floor that may take seconds, and nobody else is in them.
        """
        left = self._left | {grip.scope.path for grip in self._grips.values()
                             if not self._lives(_key_of(grip.guest))}
        self._left = {
            path for path in left if os.path.isdir(path)
            and not cgroups.is_deserted(path, self._hierarchy.version)}

    def _lives(self, name: str) -> bool:
        try:
            _, pid, started = name.split()
            return processes.start_time(
                int(pid), self._hierarchy.proc) == int(started)
        except ValueError:      # the file was spoilt
            return False

    @property
    def problems(self) -> dict[str, str]:
        """Why secondaries cannot be limited, by UUID."""
        with self._lock:
            return dict(self._problems)

    def usage_ns(self, guest: Secondary) -> int | None:
        """Return a guest's CPU time in nanoseconds, None if unknown."""
        with self._lock:
            grip = self._grip(guest)
            if grip is None:
                return None
            try:
                return cgroups.usage_ns(grip.accounting,
                                        self._hierarchy.version)
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
            grip = self._grip(guest)
            if grip is None:
                return False
            vcpus = self._threads(grip, _VCPU)
            ratio = percent / 100 * capacity / max(1, len(vcpus))
            # A version 1 group may not be given more than its parent has.
            ratio = min(ratio, 1.0, capacity)
            done = [self._limit(grip, name, self._quota(ratio))
                    for name in vcpus]
            return self._lift(grip) and bool(done) and all(done)

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
            grip = self._grip(guest)
            if grip is None:
                return False
            vcpus = self._threads(grip, _VCPU)
            done = [self._limit(grip, name,
                                (LEAST_QUOTA_US, self._floor_us))
                    for name in vcpus]
            if service:
                done += [self._limit(grip, name,
                                     (self._service_us, LONG_PERIOD_US))
                         for name in self._threads(grip, _SERVICE)]
            else:
                done.append(self._lift(grip))
            return bool(vcpus) and all(done)

    def lift_emulator(self, guest: Secondary) -> bool:
        """Let emulator and I/O threads run, for an operation of Nova's."""
        with self._lock:
            grip = self._grip(guest)
            return grip is not None and self._lift(grip)

    def _lift(self, grip: _Grip) -> bool:
        names = self._threads(grip, _SERVICE)
        if self.service_cpus is not None:
            limit = self._quota(self.service_cpus)
            return all([self._limit(grip, name, limit) for name in names])
        return self._restore(grip, names)

    def _restore(self, grip: _Grip, names: list[str]) -> bool:
        """Give threads back the limits that they had at first."""
        first = self._first.get(_key_of(grip.guest), {})
        return all([self._limit(grip, name, parse_limit(first[name]))
                    for name in names if name in first])

    def release(self, guest: Secondary) -> bool:
        """Give a guest back the limits and the priority it had at first."""
        with self._lock:
            grip = self._grip(guest)
            if grip is None:
                return False
            done = self._restore(grip, self._threads(grip, _VCPU)
                                 + self._threads(grip, _SERVICE))
            first = self._first.get(_key_of(guest), {})
            if 'weight' in first:
                done = self._raise_priority(grip.scope,
                                            first['weight']) and done
            done = self._relax_memory(grip) and done
            return self._spare(grip, first.get('oom')) and done

    def _spare(self, grip: _Grip, score: str | None) -> bool:
        """Undo a sacrifice."""
        try:
            if score is not None:
                self._write(grip.process, 'oom_score_adj', score)
        except OSError as exc:
            LOG.warning('Cannot restore oom_score_adj of %(uuid)s: %(reason)s',
                        {'uuid': grip.guest.uuid, 'reason': exc})
            return False
        return True

    @staticmethod
    def _threads(grip: _Grip, kind: re.Pattern[str]) -> list[str]:
        try:
            return [name for name in grip.base.children()
                    if kind.fullmatch(name)]
        except OSError:
            return []

    def _current(self, grip: _Grip, name: str) -> Limit:
        return cgroups.read_limit(grip.base, self._hierarchy.version, name)

    def _limit(self, grip: _Grip, name: str, limit: Limit) -> bool:
        """Set one thread group's limit unless the kernel has it already."""
        if _key_of(grip.guest) in self._ending:
            return True
        try:
            now = self._current(grip, name)
            first = self._first.setdefault(_key_of(grip.guest), {})
            if name not in first:
                first[name] = _text(now)
                self._save()
            limit = _lower(limit, parse_limit(first[name]))
            if now != limit:
                self._set(grip, name, now, limit)
        except (OSError, ValueError) as exc:
            # A guest that has just ended, mostly.
            LOG.info('No limit for %(name)s of %(uuid)s: %(reason)s', {
                'name': name, 'uuid': grip.guest.uuid, 'reason': exc})
            return False
        return True

    def _set(self, grip: _Grip, name: str, now: Limit, limit: Limit) -> None:
        if not self._v1:
            self._write(grip.base, f'{name}/cpu.max', _text(limit))
            return
        try:
            self._set_v1(grip, name, now, limit)
        except OSError as exc:
            if exc.errno != errno.EINVAL:
                raise
            # More than the parent has.  The floor fits anywhere.
            above = [cgroups.bandwidth(group, 1)
                     for group in (grip.base, grip.scope)]
            ratio = min((value for value in above if value), default=0.0)
            self._set_v1(grip, name, self._current(grip, name),
                         self._quota(ratio))

    def _set_v1(self, grip: _Grip, name: str, now: Limit,
                limit: Limit) -> None:
        quota = f'{name}/cpu.cfs_quota_us', str(limit[0] or -1)
        period = f'{name}/cpu.cfs_period_us', str(limit[1])
        # Between the two writes the limit must not exceed the new or the
        # old one, or the kernel may refuse it.
        order = (period, quota) if limit[1] > now[1] else (quota, period)
        for file, value in order:
            self._write(grip.base, file, value)

    # -- priority ----------------------------------------------------------
    def prioritise(self, guests: Sequence[Secondary]) -> None:
        """Give secondaries the lowest priority that can be had.

        First the machine slice is made an ordinary one unless nothing but
        these secondaries is in it: a primary that has just appeared must not
        wait.  Then each secondary goes behind its siblings.
        """
        with self._lock:
            grips = [grip for guest in guests if (grip := self._grip(guest))]
            service = self._guard_slice(grips)
            for grip in grips:
                self._sacrifice(grip)
            if not self._cpu_idle:
                return
            done = [self._idle(grip) for grip in grips]
            self.effective = {
                'vm': len(grips) == len(guests) and all(done),
                'service': service}

    def _sacrifice(self, grip: _Grip) -> None:
        """Have the kernel end a secondary before anything of a primary's.

        Where memory runs out although policies hold it, it chooses by size.
        """
        try:
            first = self._first.setdefault(_key_of(grip.guest), {})
            if 'oom' not in first:
                first['oom'] = grip.process.read('oom_score_adj')
                self._save()
            self._write(grip.process, 'oom_score_adj', _FIRST_TO_GO)
        except OSError as exc:
            LOG.info('The kernel may spare %(uuid)s: %(reason)s', {
                'uuid': grip.guest.uuid, 'reason': exc})

    def _guard_slice(self, grips: Sequence[_Grip]) -> bool:
        """Set the slice's priority; tell whether it is the lowest."""
        parents = {os.path.dirname(grip.scope.path) for grip in grips}
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
            known = {os.path.basename(grip.scope.path) for grip in grips}
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
        if self._slice is not None and self._slice.path != path:
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
                if _SLICE.fullmatch(os.path.basename(path)):
                    self._raise_priority(self._hold_slice(path),
                                         self._idle_slice['weight'])
            except cgroups.CgroupError as exc:
                LOG.info('The machine slice is gone: %s', exc)
            self._idle_slice = {}
            self._save()

    @property
    def _weight_file(self) -> str:
        return 'cpu.shares' if self._v1 else 'cpu.weight'

    def _idle(self, grip: _Grip) -> bool:
        """Put one guest behind its siblings; tell whether it is."""
        if _key_of(grip.guest) in self._ending:
            return True
        try:
            first = self._first.setdefault(_key_of(grip.guest), {})
            if 'weight' not in first:
                first['weight'] = grip.scope.read(self._weight_file)
                self._save()
            if grip.scope.has('cpu.idle'):
                self._write(grip.scope, 'cpu.idle', '1')
            else:
                self._write(grip.scope, self._weight_file,
                            '2' if self._v1 else '1')
        except (OSError, ValueError) as exc:
            LOG.info('No priority for %(uuid)s: %(reason)s', {
                'uuid': grip.guest.uuid, 'reason': exc})
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
    def _memory_file(self) -> str:
        return 'memory.soft_limit_in_bytes' if self._v1 else 'memory.high'

    def press_memory(self, guest: Secondary) -> bool:
        """Have the kernel take memory back from a guest before others.

        Version 1 knows whose pages go first, version 2 whom to hold up who
        takes more.  False if it cannot be had.
        """
        with self._lock:
            grip = self._grip(guest)
            if grip is None or grip.memory is None:
                return False
            try:
                now = grip.memory.read(self._memory_file)
                first = self._first.setdefault(_key_of(guest), {})
                if 'memory' not in first:
                    first['memory'] = now
                    self._save()
                if now != first['memory']:
                    return True     # once is enough, or it would ratchet
                self._write(grip.memory, self._memory_file, '0' if self._v1
                            else str(self._memory_limit(grip.memory, now)))
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
            grip = self._grip(guest)
            return grip is not None and self._relax_memory(grip)

    def _relax_memory(self, grip: _Grip) -> bool:
        first = self._first.get(_key_of(grip.guest), {})
        try:
            if 'memory' in first and grip.memory is not None:
                self._write(grip.memory, self._memory_file, first['memory'])
        except OSError as exc:
            LOG.warning('Cannot restore the memory limit of %(uuid)s: '
                        '%(reason)s', {'uuid': grip.guest.uuid,
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
            grip = self._grip(guest)
            if grip is None:
                return
            self._restore(grip, self._threads(grip, _VCPU)
                          + self._threads(grip, _SERVICE))
            weight = self._first.get(_key_of(guest), {}).get('weight')
            if weight is not None:
                self._raise_priority(grip.scope, weight)
            self._ending.add(_key_of(guest))

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
    if not (_VCPU.fullmatch(name) or _SERVICE.fullmatch(name)):
        return True
    try:
        parse_limit(value)
    except ValueError:
        return False
    return True


def _key(uuid: str, pid: int, started: int) -> str:
    return f'{uuid} {pid} {started}'


def _key_of(guest: Secondary) -> str:
    return _key(guest.uuid, guest.pid, guest.started)


def _text(limit: Limit) -> str:
    return f'{"max" if limit[0] is None else limit[0]} {limit[1]}'


def _lower(limit: Limit, first: Limit) -> Limit:
    """Return the lower of two limits: a flavor's own is never exceeded."""
    if limit[0] is None or first[0] is None:
        return first if limit[0] is None else limit
    return min(limit, first, key=lambda one: (one[0] or 0) / one[1])
