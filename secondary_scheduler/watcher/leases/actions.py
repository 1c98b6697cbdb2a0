"""The actions that make servers of leases, and delete them."""

import time
from typing import Any

from oslo_log import log

from secondary_scheduler.leases.engine.values import LeaseOperation, Nature
from secondary_scheduler.model import vocabulary
from secondary_scheduler.watcher import actions, cluster_builder, poller
from secondary_scheduler.watcher import cloud as clouds
from secondary_scheduler.watcher.leases import server_requests
from secondary_scheduler.watcher.settings import CONF

LOG = log.getLogger(__name__)

#: Seconds until a host that refused is asked again, and for how long it is.
_PAUSE_S, _INSIST_S = 1.0, 20.0


class _LeaseAction(actions.SecondaryAction):
    """What concerns the server of a node, whether or not there is one."""

    def pre_condition(self) -> None:
        """Wait until its time has come."""
        self._await_turn()

    def revert(self) -> None:
        """Do nothing: the schedule sees to what is left."""


class _ServerAction(_LeaseAction):
    """What is done to a server, which has to be a secondary."""

    def pre_condition(self) -> None:
        """Wait until its time has come; nothing is done to a primary.

        :raises ActionSkipped: saying why.
        :raises ActionExecutionFailure: if Nova cannot be asked.
        """
        super().pre_condition()
        try:
            server = clouds.shared().server(self.uuid)
        except clouds.NotFound:
            return
        except clouds.CloudError as exc:
            self._fail(str(exc), exc.nature)
        if server is None:
            self._skip('the instance is not a secondary')


class Boot(_LeaseAction):
    """Make the server of a lease's node on its host, unless there is one."""

    KIND = LeaseOperation.BOOT    # type: ignore[assignment]

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the input parameters; the resource is the lease."""
        found = super().schema
        found['properties'] |= {
            'node': {'type': 'integer'}, 'project': {'type': 'string'},
            'trust': {'type': 'string'}, 'build': {'type': 'object'}}
        found['required'] = ['resource_id', 'node', 'project', 'target',
                             'build']
        return found

    def _operate(self, cloud: clouds.Cloud) -> cluster_builder.NovaServer:
        """Try for a while: an agent may close its host for a moment."""
        until = time.time() + _INSIST_S
        while True:
            server = self._attempt(cloud)
            if server.status != 'ERROR':
                return server
            why = cloud.fault(server.uuid)
            self._remove(cloud, server.uuid)
            if why.nature is not Nature.CAPACITY or time.time() > until:
                raise why
            LOG.info('%(target)s does not take lease %(lease)s yet: %(why)s',
                     {'target': self.target, 'lease': self.uuid, 'why': why})
            time.sleep(_PAUSE_S)

    def _attempt(self, cloud: clouds.Cloud) -> cluster_builder.NovaServer:
        parameters = self.input_parameters
        node = parameters['node']
        there = cloud.labelled(parameters['project'], self.uuid, node)
        if there:
            uuid = there[0].uuid
        else:
            uuid = clouds.as_owner(parameters.get('trust')).create(
                {**parameters['build'],
                 **server_requests.stored(self.uuid, node)},
                {vocabulary.LEASE_METADATA: self.uuid,
                 cluster_builder.NODE: str(node)},
                {vocabulary.LEASE_HINT: self.uuid,
                 vocabulary.HOST_HINT: str(self.target)})
        return actions.wait_for(
            uuid, lambda server: (server.task_state is None
                                  and server.status != 'BUILD'),
            CONF.secondary_watcher.operation_timeout)

    def _vanished(self, exc: Exception) -> bool:
        """Fail: no server runs where one was to be made.

        Either it is made of something that does not exist, or it was deleted
        before it ran.
        """
        if isinstance(exc, clouds.NotFound):
            self._fail(str(exc), exc.nature)
        self._fail(f'server {exc} was deleted while it booted')

    def _remove(self, cloud: clouds.Cloud, uuid: str) -> None:
        cloud.delete(uuid)
        try:
            actions.wait_for(uuid, lambda server: False,
                             CONF.secondary_watcher.operation_timeout)
        except poller.Gone:
            pass


class Delete(_ServerAction):
    """Delete a server of a lease that is over."""

    KIND = LeaseOperation.DELETE  # type: ignore[assignment]

    def _operate(self, cloud: clouds.Cloud) -> cluster_builder.NovaServer:
        """Delete it, and wait until it is gone, which ends in ``Gone``."""
        cloud.delete(self.uuid)
        return actions.wait_for(self.uuid, lambda server: False,
                                CONF.secondary_watcher.operation_timeout)


class NoticeAction(_ServerAction):
    """Tell a server of a lease, by its metadata, when it has to give way."""

    KIND = LeaseOperation.NOTICE  # type: ignore[assignment]

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the input parameters."""
        found = super().schema
        found['properties']['text'] = {'type': 'string'}
        found['required'] = ['resource_id', 'text']
        return found

    def execute(self) -> bool:
        """Set the metadata item.

        :raises ActionExecutionFailure: if Nova does not.
        """
        try:
            clouds.shared().set_metadata(
                self.uuid,
                cluster_builder.NOTICE,
                self.input_parameters['text'],
            )
        except clouds.NotFound:
            return True
        except clouds.CloudError as exc:
            self._fail(str(exc), exc.nature)
        return True


class CacheImage(_LeaseAction):
    """Have a host fetch the image from which a lease's server will boot."""

    KIND = LeaseOperation.CACHE_IMAGE     # type: ignore[assignment]

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the input parameters; the resource is the lease."""
        found = super().schema
        found['properties'] |= {
            name: {'type': 'string'} for name in ('host', 'image', 'trust')}
        found['required'] = ['resource_id', 'host', 'image']
        return found

    def execute(self) -> bool:
        """Ask Nova, for an image that the lease's owner may use.

        :raises ActionExecutionFailure: if Nova or Glance does not answer.
        """
        parameters = self.input_parameters
        try:
            image = clouds.as_owner(parameters.get('trust')).image(
                parameters['image'])
            clouds.shared().cache_image(parameters['host'], image)
        except clouds.CloudError as exc:
            self._fail(str(exc), exc.nature)
        return True
