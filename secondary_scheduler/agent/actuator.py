# SPDX-License-Identifier: Apache-2.0

"""Limits and priority of secondaries, set through their control groups.

``GuestCgroups`` verifies and writes the groups, ``CpuLimits``, ``Priority``
and ``MemoryLimits`` decide which values to write.
"""

from collections.abc import Iterable, Sequence

from oslo_log import log as logging

from secondary_scheduler.agent import cgroups, processes
from secondary_scheduler.agent import store as agent_store
from secondary_scheduler.agent.cgroup_handles import CgroupHandles, key_of
from secondary_scheduler.agent.cgroups import LONG_PERIOD_US
from secondary_scheduler.agent.controllers import Controllers
from secondary_scheduler.agent.cpu_limits import CpuLimits
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.guest_cgroups import GuestCgroups
from secondary_scheduler.agent.memory_limits import MemoryLimits
from secondary_scheduler.agent.priority import Priority

LOG = logging.getLogger(__name__)


class Actuator:
    """Facade of all that sets limits; safe for threads.

    Its methods return False if the guest is no verified secondary any more,
    or if the kernel refuses.  With ``dry_run``, changes are only logged.
    """

    def __init__(self, hierarchy: cgroups.Hierarchy,
                 store: agent_store.StateStore, period_us: int = 20_000,
                 emulator_us: int = 10_000, cpu_idle: bool = True,
                 dry_run: bool = False,
                 floor_us: int = LONG_PERIOD_US) -> None:
        self._hierarchy = hierarchy
        self._dry_run = dry_run
        self.groups = GuestCgroups(hierarchy, store, dry_run)
        self.controllers = Controllers(hierarchy, store, dry_run)
        self._cpu = CpuLimits(self.groups, self.controllers, period_us,
                              emulator_us, floor_us)
        self._priority = Priority(self.groups, cpu_idle)
        self._memory = MemoryLimits(self.groups)
        #: Keys of processes with restored original limits.
        self._released: set[str] = set()

    # -- state -------------------------------------------------------------
    @property
    def problems(self) -> dict[str, str]:
        """Reasons why secondaries cannot be limited, by UUID."""
        with self.groups.lock:
            return self.groups.problems.present()

    @property
    def effective(self) -> dict[str, bool]:
        """See ``Priority.effective``."""
        return self._priority.effective

    def is_limited(self, uuid: str) -> bool:
        """See ``CpuLimits.is_limited``."""
        return self._cpu.is_limited(uuid)

    def usage_ns(self, guest: Secondary) -> int | None:
        """Return a guest's CPU time in nanoseconds, None if unknown."""
        with self.groups.lock:
            handles = self.groups.handles_of(guest)
            if handles is None:
                return None
            try:
                return cgroups.usage_ns(
                    handles.accounting, self._hierarchy.version_of('cpuacct'))
            except (OSError, ValueError):
                return None

    def forget(self, alive: Iterable[Secondary]) -> None:
        """See ``GuestCgroups.forget``."""
        self.groups.forget(alive)

    # -- CPU limits --------------------------------------------------------
    @property
    def emulator_cpus(self) -> float | None:
        """See ``CpuLimits.emulator_cpus``."""
        return self._cpu.emulator_cpus

    @emulator_cpus.setter
    def emulator_cpus(self, cpus: float | None) -> None:
        self._cpu.emulator_cpus = cpus

    def set_share(self, guest: Secondary, percent: float,
                  capacity: float) -> bool:
        """See ``CpuLimits.set_share``."""
        self._released.discard(key_of(guest))
        return self._cpu.set_share(guest, percent, capacity)

    def floor(self, guest: Secondary, emulator: bool = True) -> bool:
        """See ``CpuLimits.floor``."""
        self._released.discard(key_of(guest))
        return self._cpu.floor(guest, emulator)

    def lift_emulator(self, guest: Secondary) -> bool:
        """See ``CpuLimits.lift_emulator``."""
        return self._cpu.lift_emulator(guest)

    # -- priority and memory -----------------------------------------------
    def prioritise(self, guests: Sequence[Secondary]) -> None:
        """See ``Priority.prioritise``."""
        self._priority.prioritise(guests)

    def free_slice(self) -> None:
        """See ``Priority.free_slice``."""
        self._priority.free_slice()

    def press_memory(self, guest: Secondary) -> bool:
        """See ``MemoryLimits.press``."""
        return self._memory.press(guest)

    def relax_memory(self, guest: Secondary) -> bool:
        """See ``MemoryLimits.relax``."""
        return self._memory.relax(guest)

    # -- release and kill --------------------------------------------------
    def release(self, guest: Secondary) -> bool:
        """Restore the original limits and priority of a guest."""
        with self.groups.lock:
            handles = self.groups.handles_of(guest)
            if handles is None:
                return False
            done = self._cpu.restore(handles)
            done = self._priority.restore_weight(handles) and done
            done = self._memory.restore(handles) and done
            done = self._priority.restore_oom_score(handles) and done
            return self._disable_controllers(handles) and done

    def _disable_controllers(self, handles: CgroupHandles) -> bool:
        """Disable the controllers that were enabled for a guest.

        In groups shared with other guests that waits for the last of them.
        """
        self._released.add(key_of(handles.guest))
        needed = any(self.groups.lives(name) for name
                     in self.groups.originals.keys() - self._released)
        return self.controllers.disable_controllers(
            handles.scope.path if needed else '')

    def kill(self, guest: Secondary) -> bool:
        """Kill the QEMU process of a guest, and never another process.

        :returns: False if it was not killed, because the process is not this
            guest's any more or because the kernel refused.
        """
        if self._dry_run:
            LOG.info('Would kill the QEMU of %s', guest.uuid)
            return False
        if not processes.kill_guest(guest.pid, guest.started, guest.uuid,
                                    guest.name, self._hierarchy.proc):
            return False
        LOG.warning('Killed the QEMU of secondary %s', guest.uuid)
        self._unlimit_killed(guest)
        return True

    def _unlimit_killed(self, guest: Secondary) -> None:
        """Let a killed process have the CPU time that it needs to exit.

        Its threads free its memory, at the floor a hundred times slower.
        """
        with self.groups.lock:
            handles = self.groups.handles_of(guest)
            if handles is None:
                return
            self._cpu.restore(handles)
            self._priority.restore_weight(handles)
            self.groups.killed.add(key_of(guest))
