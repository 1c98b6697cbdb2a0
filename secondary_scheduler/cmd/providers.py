# SPDX-License-Identifier: Apache-2.0

"""Secondary child providers in Placement (see reference/decisions, 2).

The operator makes them once; agents change only ``reserved``.
"""

from collections.abc import Callable, Iterator, Mapping
import dataclasses
import typing

import tenacity

from secondary_scheduler.model import vocabulary
from secondary_scheduler.reading import answers, placement_errors
from secondary_scheduler.reading.values import InputError

#: 1.14 nested providers, 1.26 ``reserved`` equal to ``total``.
MICROVERSION = '1.36'

_ANY: answers.Shape = {}
_PROVIDERS: answers.Shape = {'resource_providers': list}
_INVENTORIES: answers.Shape = {'inventories': dict,
                               'resource_provider_generation': int}
_ALLOCATIONS: answers.Shape = {'allocations': dict}


class PlacementError(Exception):
    """Placement has refused a request; the text names the remedy."""


class ProviderConflict(PlacementError):
    """A request does not fit the present state of Placement.

    :param request: method and URL.
    :param refusal: Placement's code and explanation.
    """

    def __init__(self, request: str, refusal: placement_errors.Refusal
                 ) -> None:
        super().__init__(
            f'Placement: {request} has repeatedly met concurrent changes. Try '
            'once more.' if refusal.may_be_concurrent else
            f'Placement refuses {request}: {refusal.detail} ({refusal.code})')
        self.refusal = refusal


_Method = typing.TypeVar('_Method', bound=Callable[..., object])


def _is_concurrent_change(exc: BaseException) -> bool:
    """Return whether a claim or an agent has changed the provider meanwhile.
    """
    return isinstance(exc, ProviderConflict) and exc.refusal.may_be_concurrent


def _conflicts_retried(method: _Method) -> _Method:
    """Repeat a method after concurrent changes, at most nine times."""
    retried: _Method = tenacity.retry(
        retry=tenacity.retry_if_exception(_is_concurrent_change),
        stop=tenacity.stop_after_attempt(10),
        wait=tenacity.wait_random(0.05, 0.5), reraise=True)(method)
    return retried


@dataclasses.dataclass(frozen=True)
class ChildProvider:
    """The secondary provider of one host; amounts by resource class."""

    host: str
    uuid: str
    generation: int
    inventories: Mapping[str, Mapping[str, typing.Any]]
    used: Mapping[str, int]
    traits: frozenset[str]

    @property
    def closed(self) -> bool:
        """Whether an operator has closed it."""
        return vocabulary.CLOSED_TRAIT in self.traits

    @property
    def switched_off(self) -> bool:
        """Whether Watcher has closed it, since its scope is off."""
        return vocabulary.SWITCHED_OFF_TRAIT in self.traits

    @property
    def total(self) -> dict[str, int]:
        """Static maximum of the host, by resource class."""
        return {name: int(one['total'])
                for name, one in self.inventories.items()}

    @property
    def allowed(self) -> dict[str, int]:
        """Amounts that may be claimed in total, by resource class."""
        return {name: int(one['total']) - int(one['reserved'])
                for name, one in self.inventories.items()}


class Providers:
    """Access to the providers through a keystoneauth adapter."""

    def __init__(self, adapter: typing.Any) -> None:
        self._adapter = adapter

    def root(self, host: str) -> str:
        """Return the UUID of a compute node's root provider.

        :raises PlacementError: if there is none of that name.
        """
        found = self._call('GET', f'/resource_providers?name={host}',
                           shape=_PROVIDERS)
        roots = [one['uuid'] for one in found['resource_providers']
                 if not one.get('parent_provider_uuid')]
        if not roots:
            raise PlacementError(
                f'Placement has no compute node {host!r}. "openstack '
                'hypervisor list" shows the names to use; a new host '
                'appears when its nova-compute has started.')
        return str(roots[0])

    def children(self) -> Iterator[ChildProvider]:
        """Yield the secondary providers of all hosts, ordered by name."""
        every = self._call('GET', '/resource_providers', shape=_PROVIDERS)[
            'resource_providers']
        names = {vocabulary.child_provider_uuid(one['uuid']): one['name']
                 for one in every}
        found = [one['uuid'] for one in every if one['uuid'] in names]
        for uuid in sorted(found, key=lambda child: names[child]):
            child = self._read(names[uuid], uuid)
            if child is not None:
                yield child

    def without_shared_cpus(self) -> Iterator[str]:
        """Yield the enabled hosts that have dedicated CPUs only.

        The libvirt driver reports ``cpu_dedicated_set`` as PCPU and
        ``cpu_shared_set`` as VCPU, which is missing if it is not set.
        """
        for child in self.children():
            inventories = self._call(
                'GET', f'/resource_providers/{self.root(child.host)}'
                '/inventories', missing={'inventories': {}},
                shape=_INVENTORIES)['inventories']
            if 'PCPU' in inventories and not int(
                    inventories.get('VCPU', {}).get('total', 0)):
                yield child.host

    def child(self, host: str) -> ChildProvider | None:
        """Return the secondary provider of a host, None if there is none."""
        return self._read(
            host, vocabulary.child_provider_uuid(self.root(host)))

    def default_totals(self, host: str) -> dict[str, int]:
        """Return the host's totals by its root inventory, without ratios."""
        inventories = self._call(
            'GET', f'/resource_providers/{self.root(host)}/inventories',
            shape=_INVENTORIES)['inventories']

        def free(name: str) -> int:
            one = inventories.get(name, {'total': 0, 'reserved': 0})
            return int(one['total']) - int(one['reserved'])

        vcpus = sum(int(inventories[name]['total'])
                    for name in ('VCPU', 'PCPU') if name in inventories)
        return {vocabulary.VCPU: vcpus,
                vocabulary.MEMORY_MB: free('MEMORY_MB'),
                vocabulary.DISK_GB: free('DISK_GB'),
                vocabulary.SLOT: max(1, vcpus)}

    @_conflicts_retried
    def enable(self, host: str, totals: Mapping[str, int],
               ratio: float | None = None) -> ChildProvider:
        """Make a host's provider, or change its totals.

        A new inventory is completely reserved until the agent opens it. Of
        an existing one, no more is allowed than before.

        :param totals: amounts by class; a class with 0 is left out, since
            Placement rejects a total of 0.
        :param ratio: allocation ratio of all classes; None keeps it.
        :raises PlacementError: if secondaries hold what would be taken away,
            or another provider has the name.
        """
        for name in vocabulary.RESOURCE_CLASSES:
            self._call('PUT', f'/resource_classes/{name}')
        root = self.root(host)
        uuid = vocabulary.child_provider_uuid(root)
        child = self._read(host, uuid)
        if child is None:
            child = self._create(host, root, uuid)
        wanted = {}
        for name, total in totals.items():
            now = child.inventories.get(name)
            if now is not None and now['total'] == total:
                wanted[name] = dict(now)
            elif total > 0:
                allowed = min(child.allowed.get(name, 0), total)
                wanted[name] = {
                    'total': total, 'reserved': total - allowed,
                    'min_unit': 1, 'max_unit': total, 'step_size': 1,
                    'allocation_ratio': (now or {}).get('allocation_ratio',
                                                        1.0)}
            if ratio is not None and name in wanted:
                wanted[name]['allocation_ratio'] = ratio
        self._put_inventories(child, wanted)
        self._mark(self._need(host, uuid), closed=False)
        return self._need(host, uuid)

    @_conflicts_retried
    def close(self, host: str) -> ChildProvider:
        """Reserve everything, and keep the agent from opening it again.

        :raises PlacementError: if the host was never enabled.
        """
        child = self._need(
            host, vocabulary.child_provider_uuid(self.root(host)))
        # The trait first: an agent that writes in between then closes it too.
        self._mark(child, closed=True)
        child = self._need(host, child.uuid)
        self._put_inventories(child, {
            name: {**one, 'reserved': one['total']}
            for name, one in child.inventories.items()})
        return self._need(host, child.uuid)

    def delete(self, child: ChildProvider) -> None:
        """Remove an unused provider.

        :raises PlacementError: if it is in use.
        """
        try:
            self._call('DELETE', f'/resource_providers/{child.uuid}')
        except ProviderConflict as exc:
            if exc.refusal.code not in ('', placement_errors.PROVIDER_IN_USE):
                raise
            raise PlacementError(
                f'{child.host} still holds secondary instances. '
                + _clearing(child.host)) from None

    def consumers(self, child: ChildProvider) -> list[str]:
        """Return the UUIDs of the consumers of a provider."""
        return list(self._call(
            'GET', f'/resource_providers/{child.uuid}/allocations',
            missing={'allocations': {}}, shape=_ALLOCATIONS)['allocations'])

    def release(self, consumer: str) -> None:
        """Remove all allocations of a consumer, on all providers.

        :raises ProviderConflict: if it has changed meanwhile, among others.
        """
        url = f'/allocations/{consumer}'
        held = self._call('GET', url, shape=_ALLOCATIONS)
        if held['allocations']:
            self._call('PUT', url, {
                'allocations': {},
                **{key: held[key] for key in (
                    'project_id', 'user_id', 'consumer_generation')}})

    def _create(self, host: str, root: str, uuid: str) -> ChildProvider:
        """Make the provider of a host, unless that has happened meanwhile."""
        name = vocabulary.child_provider_name(root)
        try:
            self._call('POST', '/resource_providers', {
                'uuid': uuid, 'parent_provider_uuid': root, 'name': name})
        except ProviderConflict as exc:
            if exc.refusal.code != placement_errors.DUPLICATE_NAME:
                raise
            child = self._read(host, uuid)
            if child is not None:
                return child
            raise PlacementError(self._describe_duplicate(
                host, uuid, name)) from None
        return self._need(host, uuid)

    def _describe_duplicate(self, host: str, uuid: str, name: str) -> str:
        """Describe another provider with the name of a host's own."""
        found = [str(one['uuid']) for one in self._call(
            'GET', f'/resource_providers?name={name}', shape=_PROVIDERS)[
                'resource_providers'] if one['name'] == name]
        other = found[0] if found else 'UUID'
        return (
            f'The name {name}, which the secondary provider {uuid} of {host} '
            'needs, belongs to another resource provider: "openstack resource '
            f'provider list --name {name}" shows {other}. Unless "openstack '
            f'resource provider show --allocations {other}" shows instances, '
            f'delete it with "openstack resource provider delete {other}", '
            'and try again.')

    def _need(self, host: str, uuid: str) -> ChildProvider:
        child = self._read(host, uuid)
        if child is None:
            raise PlacementError(
                f'{host} has no secondary provider. Make one with '
                f'"secondary-scheduler host enable {host}".')
        return child

    def _read(self, host: str, uuid: str) -> ChildProvider | None:
        url = f'/resource_providers/{uuid}'
        inventories = self._call('GET', url + '/inventories', missing={},
                                 shape=_INVENTORIES)
        usages = self._call('GET', url + '/usages', missing={},
                            shape={'usages': dict})
        traits = self._call('GET', url + '/traits', missing={},
                            shape={'traits': list})
        if not (inventories and usages and traits):
            return None
        return ChildProvider(
            host,
            uuid,
            inventories['resource_provider_generation'],
            inventories['inventories'],
            usages['usages'],
            frozenset(traits['traits']),
        )

    def _put_inventories(
        self, child: ChildProvider, wanted: Mapping[str, typing.Any]
    ) -> None:
        if wanted == child.inventories:
            return
        try:
            self._call('PUT', f'/resource_providers/{child.uuid}/inventories',
                       {'resource_provider_generation': child.generation,
                        'inventories': wanted})
        except ProviderConflict as exc:
            if exc.refusal.code != placement_errors.INVENTORY_IN_USE:
                raise
            held = ', '.join(
                f'{child.used[name]} {name}' for name in child.inventories
                if name not in wanted and child.used.get(name))
            raise PlacementError(
                f'Secondaries on {child.host} hold {held or "resources"} of '
                f'the provider {child.uuid}, whose total cannot become 0 '
                f'({exc.refusal.detail}). Give a total above 0. '
                + _clearing(child.host)) from None

    def _mark(self, child: ChildProvider, closed: bool) -> None:
        traits = (child.traits | {vocabulary.CLOSED_TRAIT} if closed
                  else child.traits - {vocabulary.CLOSED_TRAIT})
        if traits != child.traits:
            if closed:
                self._call('PUT', f'/traits/{vocabulary.CLOSED_TRAIT}')
            self._call('PUT', f'/resource_providers/{child.uuid}/traits',
                       {'resource_provider_generation': child.generation,
                        'traits': sorted(traits)})

    def _call(self, method: str, url: str,
              body: Mapping[str, typing.Any] | None = None,
              missing: typing.Any = None, shape: answers.Shape = _ANY
              ) -> typing.Any:
        """Return the body of the answer; ``missing``, if given, for a 404."""
        answer = self._adapter.request(
            url, method, microversion=MICROVERSION, raise_exc=False,
            **({} if body is None else {'json': body}))
        if answer.status_code == 404 and missing is not None:
            return missing
        if answer.status_code == 409:
            raise ProviderConflict(f'{method} {url}',
                                   placement_errors.read_refusal(answer))
        if answer.status_code in (401, 403):
            raise PlacementError(
                f'Placement refuses {method} {url}: this needs the role '
                'admin.')
        if answer.status_code >= 400:
            raise PlacementError(f'Placement: {method} {url} failed with '
                                 f'HTTP {answer.status_code}: '
                                 f'{answer.text[:300]}')
        if not shape:
            return {}
        try:
            return answers.read_answer(answer, 'Placement', shape)
        except InputError as exc:
            raise PlacementError(f'{method} {url}: {exc}') from None


def _clearing(host: str) -> str:
    """Return the advice that takes the secondaries off a host."""
    return (f'To clear the host use "secondary-scheduler host drain {host}", '
            'shelve or delete suspended secondaries, and try again.')
