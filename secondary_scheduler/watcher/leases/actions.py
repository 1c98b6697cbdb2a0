# SPDX-License-Identifier: Apache-2.0

"""Actions that create, notify and delete servers of leases."""

import time
from typing import Any

from oslo_log import log

from secondary_scheduler.leases.engine.values import LeaseOperation, Nature
from secondary_scheduler.model import vocabulary
from secondary_scheduler.watcher import cloud_connections, poller
from secondary_scheduler.watcher.cloud import Cloud
from secondary_scheduler.watcher.cloud_errors import CloudError, NotFound
from secondary_scheduler.watcher.cloud_snapshot import (
    NODE,
    NOTICE,
    NovaServer,
    lease_tag,
)
from secondary_scheduler.watcher.leases import server_requests
from secondary_scheduler.watcher.leases.action_plans import CREATED
from secondary_scheduler.watcher.secondary_action import (
    SecondaryAction,
    wait_for,
)
from secondary_scheduler.watcher.settings import CONF

LOG = log.getLogger(__name__)

#: Seconds between attempts to boot on a host without room, and seconds after
#: which there is no further attempt.
_RETRY_S, _RETRY_FOR_S = 1.0, 20.0


def _tagged(build: dict[str, Any], lease: str, node: int
            ) -> dict[str, Any]:
    """Return the properties of a server, with the tag of its lease."""
    return {**build, 'tags': [*(build.get('tags') or ()),
                              lease_tag(lease, node)]}


class _LeaseAction(SecondaryAction):
    """Action for a node of a lease, whether or not its server exists."""

    def pre_condition(self) -> None:
        """Wait until its time has come; skip it when that has passed."""
        self._await_turn()

    def revert(self) -> None:
        """Do nothing: the engine reconciles the server with the schedule."""


class _ServerAction(_LeaseAction):
    """Action on a server of a lease, which has to be a secondary."""

    def pre_condition(self) -> None:
        """Wait until its time has come; skip it for a primary.

        :raises ActionSkipped: saying why.
        :raises ActionExecutionFailure: if Nova cannot be asked.
        """
        super().pre_condition()
        try:
            server = cloud_connections.shared().server(self.uuid)
        except NotFound:
            return
        except CloudError as exc:
            self._fail(str(exc), exc.nature)
        if server is None:
            self._skip('the instance is not a secondary')


class Boot(_LeaseAction):
    """Create the server of a lease's node on its host, unless it exists."""

    KIND = LeaseOperation.BOOT    # type: ignore[assignment]
    _server = ''

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

    def add_result(self, action: Any) -> None:
        """Add the server, which Nova may hide from the engine."""
        action.input_parameters = {
            **action.input_parameters, CREATED: self._server}

    def _operate(self, cloud: Cloud) -> NovaServer:
        """Retry for a while: an agent may close its host for a moment."""
        until = time.time() + _RETRY_FOR_S
        while True:
            server = self._attempt(cloud)
            if server.status != 'ERROR':
                self._server = server.uuid
                return server
            why = cloud.fault(server.uuid)
            self._remove(cloud, server.uuid)
            if why.nature is not Nature.CAPACITY or time.time() > until:
                raise why
            LOG.info('%(target)s has no room for lease %(lease)s yet: %(why)s',
                     {'target': self.target, 'lease': self.uuid, 'why': why})
            time.sleep(_RETRY_S)

    def _attempt(self, cloud: Cloud) -> NovaServer:
        parameters = self.input_parameters
        node = parameters['node']
        # A server that is not found is created a second time.
        there = cloud_connections.patient().labelled(
            parameters['project'], self.uuid, node)
        if there:
            uuid = there[0].uuid
        else:
            with cloud_connections.act_as_owner(
                    parameters.get('trust'), self.uuid) as owner:
                uuid = owner.create(
                    _tagged({**parameters['build'],
                             **server_requests.read_server_request(
                                 self.uuid, node)}, self.uuid, node),
                    {vocabulary.LEASE_METADATA: self.uuid,
                     NODE: str(node)},
                    {vocabulary.LEASE_HINT: self.uuid,
                     vocabulary.HOST_HINT: str(self.target)})
        return wait_for(
            uuid, lambda server: (server.task_state is None
                                  and server.status != 'BUILD'),
            CONF.secondary_watcher.operation_timeout)

    def _vanished(self, exc: Exception) -> bool:
        """Fail: the server does not run.

        Either it needs a resource that does not exist, or it was deleted
        before it ran.
        """
        if isinstance(exc, NotFound):
            self._fail(str(exc), exc.nature)
        self._fail(f'server {exc} was deleted while it booted')

    def _remove(self, cloud: Cloud, uuid: str) -> None:
        cloud.delete(uuid)
        try:
            wait_for(uuid, lambda server: False,
                     CONF.secondary_watcher.operation_timeout)
        except poller.Gone:
            pass


class Delete(_ServerAction):
    """Delete a server of a lease that is over."""

    KIND = LeaseOperation.DELETE  # type: ignore[assignment]

    def _operate(self, cloud: Cloud) -> NovaServer:
        """Delete the server, and wait until ``Gone`` is raised."""
        cloud.delete(self.uuid)
        return wait_for(self.uuid, lambda server: False,
                        CONF.secondary_watcher.operation_timeout)


class NoticeAction(_ServerAction):
    """Notify a server of a lease of its preemption, by its metadata."""

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

        :raises ActionExecutionFailure: if Nova cannot set it.
        """
        try:
            cloud_connections.shared().set_metadata(
                self.uuid, {NOTICE: self.input_parameters['text']})
        except NotFound:
            return True
        except CloudError as exc:
            self._fail(str(exc), exc.nature)
        return True


class Verify(_LeaseAction):
    """Verify the resources of a lease with the rights of its owner.

    Nova's limits are left to the boots: other servers may be gone by then.
    """

    KIND = LeaseOperation.VERIFY    # type: ignore[assignment]

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the input parameters; the resource is the lease."""
        found = super().schema
        found['properties'] |= {
            name: {'type': 'string'} for name in ('project', 'trust')}
        found['properties'] |= {
            'node': {'type': 'integer'}, 'build': {'type': 'object'}}
        found['required'] = ['resource_id', 'project']
        return found

    def execute(self) -> bool:
        """Ask the services of the owner's cloud.

        :raises ActionExecutionFailure: if a resource does not exist or does
            not fit, or if a service does not answer.
        """
        parameters = self.input_parameters
        try:
            with cloud_connections.act_as_owner(
                    parameters.get('trust'), self.uuid) as owner:
                found = server_requests.verify_lease(
                    owner.session, self.uuid, parameters['project'])
        except CloudError as exc:
            self._fail(str(exc), exc.nature)
        if found.wrong:
            self._fail(' '.join(map(str, found.wrong)), Nature.PERMANENT)
        if found.unverified:
            self._fail(' '.join(map(str, found.unverified)))
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
        """Ask Nova to fetch an image, if the lease's owner may use it.

        :raises ActionExecutionFailure: if Nova or Glance does not answer.
        """
        parameters = self.input_parameters
        try:
            with cloud_connections.act_as_owner(
                    parameters.get('trust'), self.uuid) as owner:
                image = owner.image(parameters['image'])
            cloud_connections.shared().cache_image(parameters['host'], image)
        except CloudError as exc:
            self._fail(str(exc), exc.nature)
        return True
