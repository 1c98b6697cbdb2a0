# SPDX-License-Identifier: Apache-2.0

"""Limits that make the kernel reclaim the memory of secondaries first."""

from oslo_log import log as logging

from secondary_scheduler.agent import cgroups
from secondary_scheduler.agent.cgroup_handles import CgroupHandles, key_of
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.guest_cgroups import GuestCgroups

LOG = logging.getLogger(__name__)

#: Bytes by which the memory of a pressed guest may still grow: a suspend and
#: a migration need buffers.
_SLACK = 32 << 20


class MemoryLimits:
    """Sets and restores memory limits of secondaries; safe for threads."""

    def __init__(self, groups: GuestCgroups) -> None:
        self._groups = groups

    @property
    def _v1(self) -> bool:
        return self._groups.hierarchy.version_of('memory') == 1

    @property
    def _file(self) -> str:
        return 'memory.soft_limit_in_bytes' if self._v1 else 'memory.high'

    def press(self, guest: Secondary) -> bool:
        """Make the kernel reclaim the memory of a guest before others'.

        Version 1: soft limit 0, so that its pages are reclaimed first.
        Version 2: ``memory.high``, so that its further growth is throttled.

        :returns: False if the limit cannot be set.
        """
        with self._groups.lock:
            handles = self._groups.handles_of(guest)
            if handles is None or handles.memory is None:
                return False
            try:
                now = handles.memory.read(self._file)
                originals = self._groups.originals.setdefault(
                    key_of(guest), {})
                if 'memory' not in originals:
                    originals['memory'] = now
                    self._groups.save()
                if now != originals['memory']:
                    return True     # set once, or the limit would creep up
                self._groups.write(
                    handles.memory, self._file, '0' if self._v1
                    else str(self._limit(handles.memory, now)))
            except (OSError, ValueError) as exc:
                LOG.info('No limit on the memory of %(uuid)s: %(reason)s', {
                    'uuid': guest.uuid, 'reason': exc})
                return False
            return True

    @staticmethod
    def _limit(group: cgroups.Group, now: str) -> int | str:
        """Return the memory used and the slack, in whole pages.

        A present limit below that stays as it is.
        """
        limit = (int(group.read('memory.current')) + _SLACK) & ~0xffff
        return now if now != 'max' and int(now) < limit else limit

    def relax(self, guest: Secondary) -> bool:
        """Undo ``press``."""
        with self._groups.lock:
            handles = self._groups.handles_of(guest)
            return handles is not None and self.restore(handles)

    def restore(self, handles: CgroupHandles) -> bool:
        """Restore the original limit; return whether that succeeded."""
        originals = self._groups.originals.get(key_of(handles.guest), {})
        try:
            if 'memory' in originals and handles.memory is not None:
                self._groups.write(handles.memory, self._file,
                                   originals['memory'])
        except OSError as exc:
            LOG.warning('Cannot restore the memory limit of %(uuid)s: '
                        '%(reason)s', {'uuid': handles.guest.uuid,
                                       'reason': exc})
            return False
        return True
