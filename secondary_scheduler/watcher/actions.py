# SPDX-License-Identifier: Apache-2.0

"""Actions that preempt, return and migrate secondary instances."""

import datetime

from oslo_log import log
from watcher.common import exception

from secondary_scheduler.plans.operations import OperationKind as Kind
from secondary_scheduler.watcher import cloud_connections
from secondary_scheduler.watcher.cloud import Cloud
from secondary_scheduler.watcher.cloud_errors import CloudError
from secondary_scheduler.watcher.cloud_snapshot import (
    ORIGIN,
    PREEMPTED,
    USED,
    WANTED_CPU,
    NovaServer,
)
from secondary_scheduler.watcher.history import LEASE_REQUEST
from secondary_scheduler.watcher.secondary_action import SecondaryAction

LOG = log.getLogger(__name__)

#: Disk that a saved guest takes, as a multiple of its memory.
_SAVED = 1.1


class ServerOperation(SecondaryAction):
    """An operation that ``OPPOSITES`` can revert."""

    def revert(self) -> None:
        """Do the opposite operation, if this one has succeeded."""
        opposite = self.make_opposite()
        try:
            opposite.pre_condition()
        except exception.ActionSkipped as exc:
            LOG.info('Nothing to revert: %s', exc)
            return
        opposite.execute()

    def make_opposite(self) -> 'ServerOperation':
        """Return the action that reverts this one."""
        opposite = OPPOSITES[self.KIND](self.config, self._osc)
        parameters = {
            'resource_id': self.uuid, 'source': self.target or self.source,
            'target': self.source,
            'batch': self.input_parameters.get('batch')}
        opposite.input_parameters = {
            name: value for name, value in parameters.items() if value}
        return opposite


class _Preemption(ServerOperation):
    """Preempts an instance, after marking it as preempted.

    The mark comes first: an applier that dies in between leaves a mark on a
    running instance, which the leader removes.  Without a mark the instance
    would never return.  Operations that the lease engine orders set no mark,
    since the schedule of leases decides when the instance returns.

    The CPU that the instance wants, and the use with which it counted, are
    stored with it.  So any decision engine knows them while it is down, and
    its return counts with the same use.
    """

    def prepare(self, cloud: Cloud) -> None:
        reason = self.input_parameters.get('request') or 'preempt'
        if reason == LEASE_REQUEST:
            return
        now = datetime.datetime.now(datetime.UTC)
        items = {PREEMPTED: f'{reason}@{now:%Y-%m-%dT%H:%M:%SZ}'}
        wanted = self.input_parameters.get('wanted_cpu')
        if wanted is not None:
            items[WANTED_CPU] = f'{wanted:.3f}'
        used = self.input_parameters.get('used')
        if used:
            items[USED] = ' '.join(f'{resource}={amount:.3f}' for
                                   resource, amount in sorted(used.items()))
        cloud.set_metadata(self.uuid, items)

    def undo(self, cloud: Cloud) -> None:
        cloud.delete_metadata(self.uuid, PREEMPTED)


class _Return(ServerOperation):
    """Returns an instance, and then removes its mark."""

    def conclude(self, cloud: Cloud,
                 server: NovaServer) -> None:
        cloud.delete_metadata(self.uuid, PREEMPTED)
        for key in (WANTED_CPU, USED):  # they would be out of date later
            if key in server.metadata:
                cloud.delete_metadata(self.uuid, key)


class Suspend(_Preemption):
    """Suspend a secondary instance; its memory goes to the host's disk."""

    KIND = Kind.SUSPEND
    BEFORE = ('ACTIVE', 'PAUSED')
    AFTER = ('SUSPENDED',)
    #: Memory (MiB) of members of its lease that are saved on the same disk at
    #: the same time.
    saved_before_mb = 0

    def prepare(self, cloud: Cloud) -> None:
        """Mark it, if its memory fits on the host's disk.

        Nova does not check, and a full disk harms everything on the host.
        """
        needed_mb = self.saved_before_mb + self.memory_mb
        if (self.save_free_mb is not None
                and self.save_free_mb < _SAVED * needed_mb):
            self._fail(f'{needed_mb} MiB do not fit on the disk of '
                       f'{self.source}, where {self.save_free_mb} are free')
        super().prepare(cloud)

    def call(self, cloud: Cloud) -> None:
        """Suspend it, after unpausing it if its owner has paused it.

        Nova suspends ACTIVE servers only.  So it runs when it is resumed.
        """
        if self.status == 'PAUSED':
            cloud.act(self.uuid, 'unpause')
            self._wait_for_task()
        super().call(cloud)


class Resume(_Return):
    """Resume a secondary instance on the host where it was suspended."""

    KIND = Kind.RESUME
    BEFORE = Suspend.AFTER


class Stop(_Preemption):
    """Stop a secondary instance; memory is lost."""

    KIND = Kind.STOP
    AFTER = ('SHUTOFF',)


class Start(_Return):
    """Start a secondary instance on the host where it was stopped."""

    KIND = Kind.START
    BEFORE = Stop.AFTER


class Shelve(_Preemption):
    """Shelve a secondary instance and free its host; memory is lost."""

    KIND = Kind.SHELVE
    AFTER = ('SHELVED_OFFLOADED',)

    def complete(
        self, cloud: Cloud, server: NovaServer
    ) -> NovaServer:
        """Offload unless Nova does so at once (shelved_offload_time)."""
        if server.status != 'SHELVED':
            return server
        cloud.act(self.uuid, 'shelve_offload')
        return self._wait_for_task()


class Unshelve(_Return):
    """Unshelve a secondary instance on a given host, if Nova admits it."""

    KIND = Kind.UNSHELVE
    BEFORE = ('SHELVED', *Shelve.AFTER)

    def call(self, cloud: Cloud) -> None:
        """Unshelve it; Nova accepts a host only once it is offloaded."""
        cloud.unshelve(
            self.uuid, self.target if self.status in Shelve.AFTER else None)


class Migrate(ServerOperation):
    """Live-migrate a secondary instance, noting where it came from."""

    KIND = Kind.MIGRATE

    def _is_done(self, server: NovaServer) -> bool:
        return super()._is_done(server) and server.host == self.target

    def call(self, cloud: Cloud) -> None:
        if self.target is None:
            self._fail('no target is given')
        cloud.live_migrate(self.uuid, self.target)

    def conclude(self, cloud: Cloud,
                 server: NovaServer) -> None:
        origin = server.metadata.get(ORIGIN)
        if origin == self.target:
            cloud.delete_metadata(self.uuid, ORIGIN)
        elif origin is None and self.source is not None:
            cloud.set_metadata(self.uuid, {ORIGIN: self.source})

    def abort(self) -> bool:
        """Abort the migration in Nova; return whether there was one."""
        try:
            return cloud_connections.shared().abort_migration(self.uuid)
        except CloudError as exc:
            LOG.warning('Cannot abort the migration of %(uuid)s: %(why)s',
                        {'uuid': self.uuid, 'why': exc})
            return False

    def check_abort(self) -> bool:
        """Return True: a live migration can be aborted."""
        return True


OPPOSITES: dict[Kind, type[ServerOperation]] = {
    Kind.SUSPEND: Resume, Kind.RESUME: Suspend,
    Kind.STOP: Start, Kind.START: Stop,
    Kind.SHELVE: Unshelve, Kind.UNSHELVE: Shelve,
    Kind.MIGRATE: Migrate,
}
