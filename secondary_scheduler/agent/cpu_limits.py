# SPDX-License-Identifier: Apache-2.0

"""CPU bandwidth limits of secondaries: shares of the host, and the floor.

A limit counts as in force once it is read back from the kernel.  If a limit
of a guest is not in force, ``problems`` names the file.  Such a guest never
counts as being at its floor, unless it is frozen.
"""

import errno
import math

from oslo_log import log as logging

from secondary_scheduler.agent import cgroups
from secondary_scheduler.agent.cgroup_handles import (
    EMULATOR,
    VCPU,
    CgroupHandles,
    key_of,
)
from secondary_scheduler.agent.cgroups import (
    LEAST_QUOTA_US,
    LONG_PERIOD_US,
    Limit,
    format_limit,
    parse_limit,
)
from secondary_scheduler.agent.controllers import Controllers
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.freezer import Freezer
from secondary_scheduler.agent.guest_cgroups import GuestCgroups, threads
from secondary_scheduler.agent.kernel_files import explain

LOG = logging.getLogger(__name__)


class CpuLimits:
    """Sets CPU limits of secondaries; safe for threads.

    :param period_us: the shortest period of a limit.
    :param emulator_us: quota of the emulator and of each I/O thread at the
        floor, in each period of 100 ms.
    :param floor_us: the period of a vCPU's limit at the floor.
    """

    def __init__(self, groups: GuestCgroups, controllers: Controllers,
                 period_us: int, emulator_us: int, floor_us: int) -> None:
        self._groups = groups
        self._controllers = controllers
        self._freezer = Freezer(groups)
        self._period_us = period_us
        self._emulator_us = emulator_us
        self._floor_us = floor_us
        #: CPUs that the emulator and each I/O thread of a guest may use,
        #: except at the floor without an operation; None leaves them their
        #: original limits.
        self.emulator_cpus: float | None = None

    def is_limited(self, uuid: str) -> bool:
        """Return whether the last limits set for a guest are in force.

        A frozen guest counts as limited, since it uses no CPU.
        """
        with self._groups.lock:
            return uuid not in self._groups.problems or any(
                handles.guest.uuid == uuid
                and self._freezer.is_frozen(handles)
                for handles in self._groups.opened())

    # -- limits of a guest -------------------------------------------------
    def set_share(self, guest: Secondary, percent: float,
                  capacity: float) -> bool:
        """Limit a guest's vCPUs to a percentage of the host.

        Emulator and I/O threads may use ``emulator_cpus``.

        :param capacity: of the host, in CPUs.
        :returns: False if the guest cannot be limited.
        """
        with self._groups.lock:
            handles = self._groups.handles_of(guest)
            if handles is None:
                return False
            vcpus = threads(handles, VCPU)
            ratio = percent / 100 * capacity / max(1, len(vcpus))
            # The kernel refuses a version 1 group more than its parent has.
            ratio = min(ratio, 1.0, capacity)
            limits = dict.fromkeys(vcpus, self._quota(ratio))
            self._freezer.thaw(handles)
            return self._set_limits(
                handles, {**limits, **self._lifted(handles)})

    def _quota(self, ratio: float) -> Limit:
        """Return the limit of this ratio with the shortest period allowed."""
        period = max(self._period_us, LEAST_QUOTA_US / max(ratio, 1e-9))
        period = math.ceil(min(period, LONG_PERIOD_US))
        return max(int(ratio * period), LEAST_QUOTA_US), period

    def floor(self, guest: Secondary, emulator: bool = True) -> bool:
        """Take a guest to its floor: 1 ms in ``floor_us`` for each vCPU.

        Where its threads cannot be limited, the whole guest is frozen,
        unless ``emulator`` is false.

        :param emulator: whether to take emulator and I/O threads to their
            floor as well.  Otherwise they may use ``emulator_cpus``, as an
            operation of Nova needs.
        :returns: False if the guest cannot be limited.
        """
        with self._groups.lock:
            handles = self._groups.handles_of(guest)
            if handles is None:
                return False
            limits: dict[str, Limit] = dict.fromkeys(
                threads(handles, VCPU), (LEAST_QUOTA_US, self._floor_us))
            if emulator:
                limits |= dict.fromkeys(threads(handles, EMULATOR),
                                        (self._emulator_us, LONG_PERIOD_US))
            else:
                limits |= self._lifted(handles)
            done = self._set_limits(handles, limits)
            if done or not emulator:
                self._freezer.thaw(handles)
            return done or (emulator and self._freezer.freeze(handles))

    def lift_emulator(self, guest: Secondary) -> bool:
        """Let emulator and I/O threads run, for an operation of Nova."""
        with self._groups.lock:
            handles = self._groups.handles_of(guest)
            if handles is None:
                return False
            self._freezer.thaw(handles)
            return not any([self._limit(handles, name, limit) for name, limit
                            in self._lifted(handles).items()])

    def restore(self, handles: CgroupHandles) -> bool:
        """Thaw a guest and restore the original limits of its threads.

        :returns: whether all of that succeeded.
        """
        thawed = self._freezer.thaw(handles)
        return self._restore_limits(
            handles, threads(handles, VCPU)
            + threads(handles, EMULATOR)) and thawed

    def _lifted(self, handles: CgroupHandles) -> dict[str, Limit]:
        """Return the limits of emulator and I/O threads above the floor."""
        names = threads(handles, EMULATOR)
        if self.emulator_cpus is not None:
            return dict.fromkeys(names, self._quota(self.emulator_cpus))
        return self._original_limits(handles, names)

    def _original_limits(self, handles: CgroupHandles,
                         names: list[str]) -> dict[str, Limit]:
        originals = self._groups.originals.get(key_of(handles.guest), {})
        return {name: parse_limit(originals[name]) for name in names
                if name in originals}

    def _restore_limits(self, handles: CgroupHandles,
                        names: list[str]) -> bool:
        return not any([self._limit(handles, name, limit) for name, limit
                        in self._original_limits(handles, names).items()])

    # -- limits of its threads ---------------------------------------------
    def _set_limits(self, handles: CgroupHandles,
                    limits: dict[str, Limit]) -> bool:
        """Set limits of all threads; return whether they are in force.

        If they are not, the ``cpu`` controller may be missing; then it is
        enabled, at most once in a few seconds, and the limits are set again.
        """
        if key_of(handles.guest) in self._groups.killed:
            return True
        problem = self._try_limits(handles, limits)
        if problem and self._controllers.enable_controller(
                handles.base.path, 'cpu'):
            problem = self._try_limits(handles, limits)
        if problem is None:
            self._groups.problems.clear(handles.guest.uuid)
        elif self._groups.lives(key_of(handles.guest)):
            self._groups.problems.note(handles.guest.uuid, explain(problem))
        return problem is None

    def _try_limits(self, handles: CgroupHandles, limits: dict[str, Limit]
                    ) -> Exception | None:
        """Set limits of all threads; return the first problem, if any."""
        missing = {f'vcpu{number}' for number in range(
            max(1, handles.guest.vcpus))} - limits.keys()
        problems = [self._limit(handles, name, limit)
                    for name, limit in limits.items()]
        if missing:
            problems.append(FileNotFoundError(
                errno.ENOENT, 'there is no such group of threads',
                f'{handles.base.path}/{min(missing)}'))
        return next(filter(None, problems), None)

    def _current(self, handles: CgroupHandles, name: str) -> Limit:
        return cgroups.read_limit(handles.base,
                                  self._groups.hierarchy.version, name)

    def _limit(self, handles: CgroupHandles, name: str, limit: Limit
               ) -> Exception | None:
        """Set the limit of one thread group, unless it is in force already.

        :returns: the reason if it is not in force, None if it is.
        """
        if key_of(handles.guest) in self._groups.killed:
            return None
        try:
            now = self._current(handles, name)
            originals = self._groups.originals.setdefault(
                key_of(handles.guest), {})
            if name not in originals:
                originals[name] = format_limit(now)
                self._groups.save()
            limit = _lower(limit, parse_limit(originals[name]))
            if now != limit:
                self._set(handles, name, now, limit)
        except (OSError, ValueError) as exc:
            # Mostly the guest has just ended.
            LOG.info('No limit for %(name)s of %(uuid)s: %(reason)s', {
                'name': name, 'uuid': handles.guest.uuid,
                'reason': explain(exc)})
            return exc
        return None

    def _set(self, handles: CgroupHandles, name: str,
             now: Limit, limit: Limit) -> None:
        if not self._groups.v1:
            self._groups.write(handles.base, f'{name}/cpu.max',
                               format_limit(limit))
            return
        try:
            self._set_v1(handles, name, now, limit)
        except OSError as exc:
            if exc.errno != errno.EINVAL:
                raise
            # The limit exceeds that of the parent: set the parent's.  The
            # limit of the floor is never too high for a parent.
            above = [cgroups.bandwidth(group, 1)
                     for group in (handles.base, handles.scope)]
            ratio = min((value for value in above if value), default=0.0)
            self._set_v1(handles, name, self._current(handles, name),
                         self._quota(ratio))

    def _set_v1(self, handles: CgroupHandles, name: str, now: Limit,
                limit: Limit) -> None:
        quota = (f'{name}/cpu.cfs_quota_us',
                 str(-1 if limit[0] is None else limit[0]))
        period = f'{name}/cpu.cfs_period_us', str(limit[1])
        # Between the two writes the limit must exceed neither the old nor
        # the new one, or the kernel may refuse it.
        order = (period, quota) if limit[1] > now[1] else (quota, period)
        for file, value in order:
            self._groups.write(handles.base, file, value)


def _lower(limit: Limit, original: Limit) -> Limit:
    """Return the lower of two limits: a flavor's limit is never exceeded."""
    if limit[0] is None or original[0] is None:
        return original if limit[0] is None else limit
    return min(limit, original, key=lambda one: (one[0] or 0) / one[1])
