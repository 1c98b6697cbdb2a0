# SPDX-License-Identifier: Apache-2.0

"""Freezing of whole secondaries, where their threads cannot be limited."""

from oslo_log import log as logging

from secondary_scheduler.agent.cgroup_handles import CgroupHandles, key_of
from secondary_scheduler.agent.guest_cgroups import FREEZE_FILE, GuestCgroups
from secondary_scheduler.agent.kernel_files import explain

LOG = logging.getLogger(__name__)


class Freezer:
    """Freezes and thaws secondaries; callers hold the lock of ``groups``."""

    def __init__(self, groups: GuestCgroups) -> None:
        self._groups = groups

    def freeze(self, handles: CgroupHandles) -> bool:
        """Stop all threads of a guest; return whether they are stopped.

        Nova does not notice it, but an operation of Nova on a frozen guest
        would never end.
        """
        try:
            originals = self._groups.originals.setdefault(
                key_of(handles.guest), {})
            if FREEZE_FILE not in originals:
                originals[FREEZE_FILE] = handles.scope.read(FREEZE_FILE)
                self._groups.save()
            self._groups.write(handles.scope, FREEZE_FILE, '1')
            frozen = self.is_frozen(handles)
        except (OSError, ValueError) as exc:
            LOG.info('%(uuid)s cannot be frozen either: %(reason)s', {
                'uuid': handles.guest.uuid, 'reason': explain(exc)})
            return False
        return frozen

    def is_frozen(self, handles: CgroupHandles) -> bool:
        """Return whether this agent or an earlier one has frozen a guest."""
        if FREEZE_FILE not in self._groups.originals.get(
                key_of(handles.guest), {}):
            return False    # no agent has written the file: do not read it
        try:
            return handles.scope.read(FREEZE_FILE) == '1'
        except (OSError, ValueError):
            return False

    def thaw(self, handles: CgroupHandles) -> bool:
        """Undo ``freeze``; return whether that succeeded."""
        originals = self._groups.originals.get(key_of(handles.guest), {})
        try:
            if FREEZE_FILE in originals:
                self._groups.write(handles.scope, FREEZE_FILE,
                                   originals[FREEZE_FILE])
        except (OSError, ValueError) as exc:
            LOG.warning('Cannot thaw %(uuid)s: %(reason)s', {
                'uuid': handles.guest.uuid, 'reason': exc})
            return False
        return True
