# SPDX-License-Identifier: Apache-2.0

"""Inventory of the host's secondary provider in Placement.

``total`` is the static maximum of the host, set by the operator.  The agent
updates ``reserved = total - allowed``, since Placement rejects a total of 0.
Control does not need the inventory.  It is updated on its own thread, which
retries later when Placement or the provider is missing.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping
import contextlib
import dataclasses
import time
import typing

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exceptions
from oslo_config import cfg
from oslo_log import log as logging

from secondary_scheduler.model import vocabulary
from secondary_scheduler.reading.answers import read_answer
from secondary_scheduler.reading.placement_errors import read_refusal
from secondary_scheduler.reading.values import InputError

LOG = logging.getLogger(__name__)

_LOOKUP_S = 60.0
_COMPARE_S = 30.0
_CONFLICTS = 4

#: Longest time for which a running secondary may lack an allocation of its
#: own, because Nova migrates it away.
_LONGEST_MIGRATION_S = 600.0


class Hysteresis:
    """Minimum of a window: it falls at once and rises with a delay.

    Each resource class has its own share (0 to 1) of the total.
    """

    def __init__(self, window: float) -> None:
        self._window = window
        self._seen: deque[tuple[float, Mapping[str, float]]] = deque()
        self._since: float | None = None

    def push(self, now: float, shares: Mapping[str, float]
             ) -> dict[str, float]:
        """Record shares; return their minimum within the window.

        It is 0 until a whole window was observed.
        """
        if self._since is None:
            self._since = now
        self._seen.append((now, shares))
        while self._seen[0][0] < now - self._window:
            self._seen.popleft()
        if now - self._since < self._window:
            return dict.fromkeys(shares, 0.0)
        return {name: min(seen.get(name, 0.0) for _, seen in self._seen)
                for name in shares}


@dataclasses.dataclass
class _Provider:
    uuid: str
    generation: int
    inventories: dict[str, dict[str, typing.Any]]
    closed: bool = False

    def total(self, name: str) -> int:
        return int(self.inventories.get(name, {}).get('total', 0))


class Inventory:
    """Updates the child provider of one host; not safe for threads.

    ``adapter`` is a keystoneauth adapter for Placement.  ``hostname`` returns
    the name of the root provider.
    """

    def __init__(self, adapter: typing.Any, hostname: Callable[[], str],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._adapter = adapter
        self._hostname = hostname
        self._clock = clock
        self._provider: _Provider | None = None
        self._lookup_at = 0.0
        self._compare_at = 0.0
        self._missing: dict[str, float] = {}
        self._suspect = False
        #: UUIDs with an allocation here, None while these are unknown.
        self.consumers: frozenset[str] | None = None
        self._unlimited: frozenset[str] = frozenset()
        #: Secondaries that run here without an allocation, or without limits.
        self.alarm: frozenset[str] = frozenset()
        #: Amounts that Placement may admit, as last written, by class.
        self.allowed: dict[str, int] = {}
        self.state = 'not looked up yet'

    def slots(self) -> int:
        """Return the host's static maximum of secondaries, 0 if unknown."""
        return self._provider.total(vocabulary.SLOT) if self._provider else 0

    def memory_mb(self) -> int:
        """Return the static maximum of memory in MiB, 0 if unknown."""
        return (self._provider.total(vocabulary.MEMORY_MB)
                if self._provider else 0)

    def update(self, shares: Mapping[str, float],
               running: Collection[str],
               others: Collection[str] = ()) -> bool:
        """Allow shares of the totals; never raise an exception.

        Nothing is allowed during an alarm or on a closed provider.

        :param shares: 0 to 1 by resource class; other classes get the share
            of slots.
        :param running: UUIDs of the secondaries on the host.
        :param others: UUIDs of the other domains on the host.
        :returns: False if Placement or the provider is missing, or after
            repeated conflicts.
        """
        try:
            return self._update(shares, running, others)
        except (ks_exceptions.ClientException, InputError) as exc:
            self._lost(f'Placement: {exc}')
        except Exception as exc:
            LOG.exception('The inventory was not updated')
            self._lost(f'{type(exc).__name__}: {exc}')
        return False

    def _update(self, shares: Mapping[str, float],
                running: Collection[str],
                others: Collection[str]) -> bool:
        now = self._clock()
        if now >= self._lookup_at:
            # The operator may have changed the totals or the provider.
            self._lookup_at = now + _LOOKUP_S
            self._find()
        if self._provider is None:
            return False
        if now >= self._compare_at:
            self._compare_at = now + _COMPARE_S
            self._compare(now, running, others)
        for _ in range(_CONFLICTS):
            if self._put({} if self.alarm or self._provider.closed
                         else shares):
                return self._provider is not None
            self._fetch(self._provider.uuid)
            if self._provider is None:
                return False
        self.state = 'the provider was changed by others again and again'
        return False

    def _lost(self, why: str) -> None:
        if self.state != why:
            LOG.warning('The inventory of secondaries is not updated: %s', why)
        self.state, self._provider, self.allowed = why, None, {}
        self._lookup_at = self._clock() + _LOOKUP_S

    def _request(self, method: str, url: str, **kwargs: typing.Any
                 ) -> typing.Any:
        return self._adapter.request(
            url, method, raise_exc=False,
            # keystoneauth's own semaphore compares with the wall clock of its
            # creation, and would wait if that clock was set back since.
            rate_semaphore=contextlib.nullcontext(),
            headers={'OpenStack-API-Version':
                     f'placement {vocabulary.PLACEMENT_VERSION}'}, **kwargs)

    def _find(self) -> None:
        """Look up the child of this host's root provider."""
        name = self._hostname()
        answer = self._request('GET', '/resource_providers?name=' + name)
        found = (_body(answer, resource_providers=list)['resource_providers']
                 if answer.status_code == 200 else [])
        roots = [one for one in found
                 if not one.get('parent_provider_uuid')]
        if not roots:
            self._lost(f'no resource provider {name} '
                       f'(HTTP {answer.status_code})')
            return
        self._fetch(vocabulary.child_provider_uuid(roots[0]['uuid']))

    def _fetch(self, uuid: str) -> None:
        answer = self._request('GET',
                               f'/resource_providers/{uuid}/inventories')
        if answer.status_code != 200:
            self._lost(f'provider {uuid} does not exist (HTTP '
                       f'{answer.status_code}): run "secondary-scheduler '
                       'host enable"')
            return
        body = _body(answer, inventories=dict,
                     resource_provider_generation=int)
        answer = self._request('GET', f'/resource_providers/{uuid}/traits')
        if answer.status_code != 200:
            self._lost(f'the traits of provider {uuid} cannot be read (HTTP '
                       f'{answer.status_code})')
            return
        closed = not vocabulary.CLOSING_TRAITS.isdisjoint(
            _body(answer, traits=list)['traits'])
        self._provider = _Provider(uuid, body['resource_provider_generation'],
                                   body['inventories'], closed)

    def _put(self, shares: Mapping[str, float]) -> bool:
        """Write the reserved amounts; return False on a concurrent change."""
        provider = self._provider
        if provider is None or not provider.inventories:
            self.state = 'the provider has no inventory'
            return True
        wanted = {}
        for name, inventory in provider.inventories.items():
            share = shares.get(name, shares.get(vocabulary.SLOT, 0.0))
            allowed = int(inventory['total'] * share + 1e-6)
            wanted[name] = {**inventory,
                            'reserved': inventory['total'] - allowed}
        if wanted != provider.inventories:
            answer = self._request(
                'PUT', f'/resource_providers/{provider.uuid}/inventories',
                json={'resource_provider_generation': provider.generation,
                      'inventories': wanted})
            if answer.status_code == 409 and (
                    read_refusal(answer).may_be_concurrent):
                return False
            if answer.status_code != 200:
                self._lost(f'Placement rejected the inventory (HTTP '
                           f'{answer.status_code}): {answer.text[:200]}')
                return True
            provider.inventories = wanted
            provider.generation = _body(
                answer, resource_provider_generation=int)[
                    'resource_provider_generation']
        self.allowed = {name: one['total'] - one['reserved']
                        for name, one in wanted.items()}
        self.state = 'closed on purpose' if provider.closed else 'kept'
        return True

    def _compare(self, now: float, running: Collection[str],
                 others: Collection[str]) -> None:
        """Compare the guests of the host with the allocations in Placement.

        It finds secondaries without an allocation.  It also finds allocations
        of domains that count as primaries: such a domain is a secondary that
        the agent cannot recognize and does not limit.

        A consumer without a domain is normal: it is suspended or stopped.
        While Nova migrates an instance away, the migration holds its
        allocation.  So each unknown consumer may stand for one instance, for
        a limited time.  Two comparisons in a row must agree, because a guest
        may start between the two lists.
        """
        if self._provider is None:
            return
        answer = self._request(
            'GET', f'/resource_providers/{self._provider.uuid}/allocations')
        if answer.status_code != 200:
            return
        consumers = set(_body(answer, allocations=dict)['allocations'])
        self.consumers = frozenset(consumers)
        missing = set(running) - consumers
        self._missing = {uuid: self._missing.get(uuid, now)
                         for uuid in missing}
        too_many = len(missing) > len(
            consumers - set(running) - set(others))
        long = {uuid for uuid, since in self._missing.items()
                if now - since > _LONGEST_MIGRATION_S}
        found = frozenset(missing if too_many and self._suspect else long)
        self._suspect = too_many
        if found - self.alarm:
            LOG.critical('Secondaries run here without an allocation in '
                         'Placement, the host is closed for more: %s',
                         ', '.join(sorted(found)))
        unlimited = frozenset(consumers & set(others))
        lasting = unlimited & self._unlimited
        self._unlimited = unlimited
        if lasting - self.alarm:
            LOG.critical('Secondaries by their allocation in Placement cannot '
                         'be distinguished from primaries and run here '
                         'without limits, the host is closed for more: %s',
                         ', '.join(sorted(lasting)))
        self.alarm = found | lasting


def _body(answer: typing.Any, **shape: type) -> dict[str, typing.Any]:
    return read_answer(answer, 'Placement', shape)


def placement_adapter(conf: cfg.ConfigOpts) -> adapter.Adapter:
    """Make an adapter from [placement]; it connects with its first request.
    """
    from secondary_scheduler.conf import keystone
    return keystone.make_adapter(conf, 'placement', connect_retries=0)
