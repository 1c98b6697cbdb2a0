# SPDX-License-Identifier: Apache-2.0

"""Compute services as Nova shows them, also while a cell does not answer."""

from collections.abc import Iterable, Mapping
import dataclasses
import time
from typing import Any

from openstack import exceptions as sdk_exceptions
from oslo_log import log

from secondary_scheduler.leases.engine.values import UNKNOWN
from secondary_scheduler.model import vocabulary
from secondary_scheduler.watcher import cloud_errors
from secondary_scheduler.watcher.list_gate import ListGate

LOG = log.getLogger(__name__)

#: Microversion that shows the services of a cell that does not answer.
_VERSION = '2.69'
#: Seconds to wait for Nova, which waits 60 s for a cell.
_PATIENCE_S = 90.0


@dataclasses.dataclass(frozen=True)
class ComputeService:
    """A nova-compute service.

    :param up: it is enabled and up, or was when its cell answered last.
    :param zone: its availability zone; as of then, too.
    :param unreachable: its cell does not answer.
    """

    up: bool = False
    zone: str = ''
    unreachable: bool = False


class ComputeServices:
    """The compute services, and the root providers of their hosts.

    :param compute: the compute proxy of openstacksdk.
    :param gate: learns how long Nova waits for its cells.
    """

    def __init__(self, compute: Any, gate: ListGate) -> None:
        self._compute = compute
        self._gate = gate
        self._known: dict[str, ComputeService] = {}
        self._roots: dict[str, str] = {}

    def refresh(self) -> Mapping[str, ComputeService]:
        """Return the compute services by host.

        If Nova takes too long, they are those of the last answer.

        :raises TimedOut: if there was no answer before.
        """
        began = time.monotonic()
        try:
            with cloud_errors.translated_errors():
                answer = self._compute.get(
                    '/os-services?binary=nova-compute', microversion=_VERSION,
                    timeout=_PATIENCE_S)
                sdk_exceptions.raise_from_response(answer)
                listed = answer.json()['services']
        except cloud_errors.TimedOut as exc:
            self._gate.close()
            if not self._known:
                raise
            LOG.warning('The states of compute services are as of the last '
                        'answer of Nova: %s', exc)
            return self._known
        seconds = time.monotonic() - began
        self._known = {one['host']: self._read(one) for one in listed}
        complete = not any(one.unreachable for one in self._known.values())
        self._gate.note_answer(seconds, complete)
        if complete:
            # In a cell that does not answer this list fails or never ends.
            with cloud_errors.translated_errors():
                self._roots = {
                    (item.service_details or {}).get('host'): item.id
                    for item in self._compute.hypervisors(details=True)}
        return self._known

    def _read(self, listed: Mapping[str, Any]) -> ComputeService:
        if listed['status'] == UNKNOWN:
            return dataclasses.replace(
                self._known.get(listed['host'], ComputeService()),
                unreachable=True)
        return ComputeService(
            up=(listed['status'] == 'enabled' and listed['state'] == 'up'
                and not listed.get('forced_down')),
            zone=listed.get('zone') or '')

    def find_roots(self, providers: Iterable[Mapping[str, Any]]
                   ) -> Mapping[str, str]:
        """Return the UUIDs of the root providers by host.

        A service that has started while a cell does not answer cannot ask
        Nova.  It takes the provider that has the name of a host, or its full
        domain name, and a child of ours.

        :param providers: resource providers as Placement lists them.
        """
        if self._roots:
            return self._roots
        known = {one['uuid'] for one in providers}
        found: dict[str, str] = {}
        for one in providers:
            name, uuid = one['name'], one['uuid']
            if vocabulary.child_provider_uuid(uuid) in known:
                for host in {name, name.partition('.')[0]} & (
                        self._known.keys()):
                    found[host] = uuid
        return found
