# SPDX-License-Identifier: Apache-2.0

"""Priority of secondaries: last for CPU time, first for the OOM killer.

Besides the groups of secondaries, the CPU priority of libvirt's machine slice
is lowered, but only while nothing but secondaries is in it.
"""

from collections.abc import Sequence
import os
import re

from oslo_log import log as logging

from secondary_scheduler.agent import cgroups
from secondary_scheduler.agent.cgroup_handles import CgroupHandles, key_of
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.guest_cgroups import (
    FIRST_FOR_OOM_KILLER,
    OOM_FILE,
    GuestCgroups,
)

LOG = logging.getLogger(__name__)

_SLICE = re.compile(r'machine(-[\w\\-]+)?(\.slice|\.partition)?')


class Priority:
    """Lowers and restores the priority of secondaries; safe for threads.

    Without ``cpu_idle`` only the OOM score is set, and a machine slice that
    was lowered before is restored.
    """

    def __init__(self, groups: GuestCgroups, cpu_idle: bool) -> None:
        self._groups = groups
        self._cpu_idle = cpu_idle
        #: Last failure to restore a priority: it is logged once, since the
        #: slice is tried again with each step.
        self._failure = ''
        #: Whether secondaries have the lowest CPU priority among guests
        #: (``vm``), and against services of the host (``service``).
        self.effective: dict[str, bool] = {'vm': False, 'service': False}

    def prioritise(self, guests: Sequence[Secondary]) -> None:
        """Give secondaries the lowest priority that the kernel offers.

        First, the machine slice is lowered if only these secondaries are in
        it, and restored otherwise: a new primary must not wait.  Then each
        secondary becomes the first choice of the OOM killer, and gets a lower
        CPU priority than its siblings.
        """
        with self._groups.lock:
            all_handles = [handles for guest in guests if (
                handles := self._groups.handles_of(guest))]
            slice_lowered = self._guard_slice(all_handles)
            for handles in all_handles:
                self._prefer_for_oom_killer(handles)
            if not self._cpu_idle:
                return
            done = [self._lower_guest(handles) for handles in all_handles]
            self.effective = {
                'vm': len(all_handles) == len(guests) and all(done),
                'service': slice_lowered}

    # -- out of memory -----------------------------------------------------
    def _prefer_for_oom_killer(self, handles: CgroupHandles) -> None:
        """Make the OOM killer prefer this secondary (oom_score_adj 1000).

        Otherwise it would choose by size, and might choose a primary.
        """
        try:
            originals = self._groups.originals.setdefault(
                key_of(handles.guest), {})
            if 'oom' not in originals:
                originals['oom'] = handles.process.read(OOM_FILE)
                self._groups.save()
            self._groups.write(handles.process, OOM_FILE,
                               FIRST_FOR_OOM_KILLER)
        except OSError as exc:
            LOG.info('Cannot set oom_score_adj of %(uuid)s: %(reason)s', {
                'uuid': handles.guest.uuid, 'reason': exc})

    def restore_oom_score(self, handles: CgroupHandles) -> bool:
        """Restore the original oom_score_adj; return whether it succeeded."""
        score = self._groups.originals.get(key_of(handles.guest),
                                           {}).get('oom')
        try:
            if score is not None:
                self._groups.write(handles.process, OOM_FILE, score)
        except OSError as exc:
            LOG.warning('Cannot restore oom_score_adj of %(uuid)s: %(reason)s',
                        {'uuid': handles.guest.uuid, 'reason': exc})
            return False
        return True

    # -- the machine slice -------------------------------------------------
    def _guard_slice(self, all_handles: Sequence[CgroupHandles]) -> bool:
        """Set the slice's priority; return whether it is the lowest."""
        parents = {os.path.dirname(handles.scope.path)
                   for handles in all_handles}
        idle_slice = self._groups.idle_slice
        if idle_slice and parents != {idle_slice['path']}:
            self.free_slice()
        if len(parents) != 1 or not self._cpu_idle:
            return False
        path = parents.pop()
        if (not _SLICE.fullmatch(os.path.basename(path))
                or path == self._groups.hierarchy.root('cpu')):
            return False
        try:
            group = self._groups.open_slice(path)
            known = {os.path.basename(handles.scope.path)
                     for handles in all_handles}
            others = set(group.children()) - known
            if others:
                self._groups.note_exiting()
                others -= set(map(os.path.basename, self._groups.exiting))
            if not group.read('cgroup.procs') and all(
                    cgroups.is_deserted(f'{path}/{name}',
                                        self._groups.hierarchy.version)
                    for name in others):
                return self._lower_slice(group)
        except (OSError, cgroups.CgroupError) as exc:
            LOG.warning('Machine slice %(path)s: %(reason)s',
                        {'path': path, 'reason': exc})
        self.free_slice()
        return False

    def _lower_slice(self, group: cgroups.Group) -> bool:
        """Give the slice the lowest priority; return whether it has it.

        A weight of 1 is no substitute for ``cpu.idle``: a primary that
        starts in the slice would get hardly any CPU time.
        """
        left = self._groups.idle_slice.get('path', group.path)
        if not group.has('cpu.idle') or left != group.path:
            return False    # another slice has to be restored first
        if group.read('cpu.idle') == '1':
            return True
        self._groups.idle_slice = {'path': group.path,
                                   'weight': group.read(self._weight_file)}
        self._groups.save()
        self._groups.write(group, 'cpu.idle', '1')
        return True

    def free_slice(self) -> None:
        """Restore the priority of the machine slice, if it was lowered.

        A starting primary must find the original priority, and a stopped
        agent could not restore it then.
        """
        with self._groups.lock:
            idle_slice = self._groups.idle_slice
            if not idle_slice:
                return
            path = idle_slice['path']
            try:
                if (_SLICE.fullmatch(os.path.basename(path))
                        and not self._raise(self._groups.open_slice(path),
                                            idle_slice['weight'])):
                    return      # the next step tries again
            except cgroups.CgroupError as exc:
                LOG.info('The machine slice is gone: %s', exc)
            self._groups.idle_slice = {}
            self._groups.save()

    # -- weights -----------------------------------------------------------
    @property
    def _weight_file(self) -> str:
        return 'cpu.shares' if self._groups.v1 else 'cpu.weight'

    def _lower_guest(self, handles: CgroupHandles) -> bool:
        """Give a guest a lower priority than its siblings.

        :returns: whether it has it.
        """
        if key_of(handles.guest) in self._groups.killed:
            return True
        try:
            originals = self._groups.originals.setdefault(
                key_of(handles.guest), {})
            if 'weight' not in originals:
                originals['weight'] = handles.scope.read(self._weight_file)
                self._groups.save()
            if handles.scope.has('cpu.idle'):
                self._groups.write(handles.scope, 'cpu.idle', '1')
            else:
                self._groups.write(handles.scope, self._weight_file,
                                   '2' if self._groups.v1 else '1')
        except (OSError, ValueError) as exc:
            LOG.info('Cannot lower the priority of %(uuid)s: %(reason)s', {
                'uuid': handles.guest.uuid, 'reason': exc})
            return False
        return True

    def restore_weight(self, handles: CgroupHandles) -> bool:
        """Restore a guest's original weight; return whether it succeeded."""
        originals = self._groups.originals.get(key_of(handles.guest), {})
        return ('weight' not in originals
                or self._raise(handles.scope, originals['weight']))

    def _raise(self, group: cgroups.Group, weight: str) -> bool:
        """Undo the lowest priority.

        The weight is written as well, since the kernel resets it.
        """
        try:
            if group.has('cpu.idle'):
                self._groups.write(group, 'cpu.idle', '0')
            self._groups.write(group, self._weight_file, weight)
        except OSError as exc:
            failure = f'{group.path}: {exc}'
            if failure != self._failure:
                LOG.warning('Cannot restore the priority of %s', failure)
            self._failure = failure
            return False
        self._failure = ''
        return True
