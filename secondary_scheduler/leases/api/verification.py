# SPDX-License-Identifier: Apache-2.0

"""Verify with the owner's token that the servers of a lease can be made.

Flavor, image, key pair, networks, ports, security groups and volumes have to
exist and to fit, and Nova's limits have to leave room for the servers. The
lease service verifies requests. Fields for which a service did not answer are
verified later by the engine, with the owner's trust.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
import dataclasses
import typing

from keystoneauth1 import session as sessions
from oslo_config import cfg

from secondary_scheduler.leases.api import lookups
from secondary_scheduler.leases.api.db import models
from secondary_scheduler.leases.api.lookups import KINDS, Missing, Unanswered
from secondary_scheduler.leases.api.server_properties import (
    interfaces,
    root_device,
)
from secondary_scheduler.model import vocabulary

_GIB = 2 ** 30
#: Nova's limits: names of maximum and usage, and the field of a flavor.
_LIMITS: Mapping[str, tuple[str, str, str | None]] = {
    'instances': ('maxTotalInstances', 'totalInstancesUsed', None),
    'cores': ('maxTotalCores', 'totalCoresUsed', 'vcpus'),
    'ram': ('maxTotalRAMSize', 'totalRAMUsed', 'ram')}
_UNITS = {'ram': 'MiB of memory'}
_ALL_LIMITS, _ALL_NETWORKS = 'limits', 'networks'

#: A node set, of a request or of the database.
Nodes = models.Nodes | models.NodeSetRow


@dataclasses.dataclass(frozen=True)
class Problem:
    """A field of a request, like ``nodes[0].image``, and its fault."""

    field: str
    reason: str

    def __str__(self) -> str:
        return f'{self.field}: {self.reason}'


@dataclasses.dataclass(frozen=True)
class VerificationResult:
    """Result of a verification.

    ``wrong`` are invalid fields, ``exceeded`` fields for which Nova's limits
    leave no room; with either the servers cannot be made. ``unverified`` are
    fields for which a service did not answer.
    """

    wrong: tuple[Problem, ...] = ()
    exceeded: tuple[Problem, ...] = ()
    unverified: tuple[Problem, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Reference:
    """A field that refers to an object of another service."""

    field: str
    kind: str
    value: str

    @property
    def key(self) -> Hashable:
        return self.kind, self.value


class Verifier:
    """Verifies node sets.

    :param pool: runs the look-ups.
    :param limits: the verified limits of Nova, of "instances", "cores" and
        "ram".
    """

    def __init__(self, pool: lookups.Pool, limits: Sequence[str]) -> None:
        self.pool = pool
        self._limits = tuple(limits)

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> 'Verifier':
        """Return the verifier that [secondary_lease_api] describes."""
        options = conf.secondary_lease_api
        return cls(lookups.Pool(
            options.verify_timeout, options.region_name,
            options.valid_interfaces), options.verify_limits)

    def verify_flavors(self, session: sessions.Session | None,
                       nodes: Sequence[Nodes]) -> VerificationResult:
        """Verify that the flavors exist and are secondary flavors."""
        references = [_flavor(index, one) for index, one in enumerate(nodes)]
        answers = self._ask(session, references, {})
        found = _Findings(answers)
        for one in references:
            found.check(one, _flavor_problems)
        return found.result

    def verify(self, session: sessions.Session | None,
               nodes: Sequence[Nodes], project: str,
               running: Sequence[Nodes] = ()) -> VerificationResult:
        """Verify that servers of these nodes can be made.

        :param session: session of the owner; None if there is none, so that
            nothing can be verified.
        :param project: id of the owner's project.
        :param running: nodes of the project's other leases that have servers
            now. Their share of Nova's limits counts as free, since these
            leases will be over.
        """
        references = [list(_references(index, one))
                      for index, one in enumerate(nodes)]
        more: dict[Hashable, lookups.LookUp] = {}
        if any(interfaces(one.network, one.server) == 'auto' for one in nodes):
            more[_ALL_NETWORKS] = _networks_of(project)
        if self._limits:
            more[_ALL_LIMITS] = _limits_of
        answers = self._ask(session, [
            *(one for some in references for one in some),
            *(_flavor(index, one) for index, one in enumerate(running))],
            more, project)
        found = _Findings(answers)
        for index, (one, some) in enumerate(zip(nodes, references,
                                                strict=True)):
            for reference in some:
                found.check(reference, _PROBLEMS.get(reference.kind))
            if session is not None:
                found.check_boot(index, one)
            found.check_networks(index, one)
        found.check_limits(self._limits, nodes, running)
        return found.result

    def _ask(self, session: sessions.Session | None,
             references: Sequence[_Reference],
             more: Mapping[Hashable, lookups.LookUp], project: str = ''
             ) -> lookups.Answers:
        look_ups = {one.key: lookups.find_by_id_or_name(
            KINDS[one.kind], one.value,
            **({'project_id': project} if one.kind == 'security group'
               else {})) for one in references} | dict(more)
        if session is None:
            return dict.fromkeys(look_ups, Unanswered(
                'there is no token for requests to services'))
        return self.pool.run_look_ups(session, look_ups)


class _Findings:
    """Collects the problems, field by field."""

    def __init__(self, answers: lookups.Answers) -> None:
        self._answers = answers
        self._wrong: list[Problem] = []
        self._exceeded: list[Problem] = []
        self._unverified: list[Problem] = []

    @property
    def result(self) -> VerificationResult:
        return VerificationResult(tuple(self._wrong), tuple(self._exceeded),
                                  tuple(self._unverified))

    def check(self, one: _Reference, problems: typing.Any) -> None:
        """Check a reference and the object that it refers to."""
        answer = self._answers[one.key]
        if isinstance(answer, Unanswered):
            self._unverified.append(Problem(one.field, str(answer)))
        elif isinstance(answer, Missing):
            self._wrong.append(Problem(one.field, str(answer)))
        elif problems is not None:
            try:
                self._wrong += [Problem(one.field, text)
                                for text in problems(one.value, answer)]
            except Unanswered as exc:
                self._unverified.append(Problem(one.field, str(exc)))

    def check_boot(self, index: int, one: Nodes) -> None:
        """Check that there is a boot image or device that fits the flavor."""
        root = root_device(one.server)
        image, field = one.image, f'nodes[{index}].image'
        if root is not None:
            field = f'nodes[{index}].block_device_mapping_v2'
            image = root['uuid'] if root['source_type'] == 'image' else None
        elif image is None:
            self._wrong.append(Problem(field, (
                'there is no boot device. Give an image ("openstack image '
                'list" shows them), or a device with boot_index 0 in '
                'block_device_mapping_v2.')))
        flavor = self._found('flavor', one.flavor)
        found = None if image is None else self._found('image', image)
        if found is None or flavor is None:
            return
        on_volume = root is not None and (
            root.get('destination_type') == 'volume')
        disk = root.get('volume_size') if on_volume and root else (
            flavor['disk'])
        self._wrong += [Problem(field, text) for text in _misfits(
            found, flavor, disk, 'the volume' if on_volume
            else f'flavor {one.flavor}')]

    def check_networks(self, index: int, one: Nodes) -> None:
        """Check that Nova can choose the network, if it is "auto"."""
        if interfaces(one.network, one.server) != 'auto':
            return
        field, answer = f'nodes[{index}].networks', (
            self._answers[_ALL_NETWORKS])
        if isinstance(answer, lookups.NoService):
            return      # Nova then creates servers without a network.
        if isinstance(answer, Unanswered):
            self._unverified.append(Problem(field, str(answer)))
        elif isinstance(answer, Missing):
            self._wrong.append(Problem(field, str(answer)))
        elif len(answer) > 1:
            self._wrong.append(Problem(field, (
                f'your project can use {len(answer)} networks ('
                + ', '.join(sorted(answer)[:5]) + '), and Nova does not '
                'choose among them. Give the networks of the servers, or '
                '"none".')))

    def check_limits(self, among: Sequence[str], nodes: Sequence[Nodes],
                     running: Sequence[Nodes]) -> None:
        """Check that Nova's limits leave room for the servers."""
        limits = self._answers.get(_ALL_LIMITS, {})
        if isinstance(limits, Unanswered):
            self._unverified.append(Problem('nodes', str(limits)))
            return
        for limit in among:
            most, used = (limits.get(name, -1) for name in _LIMITS[limit][:2])
            wanted, freed = (self._sum(limit, some)
                             for some in (nodes, running))
            # Sums are unknown if a flavor is missing, which is reported above.
            if most < 0 or wanted is None or freed is None:
                continue
            left = max(0, min(most, most - used + freed))
            if wanted > left:
                self._exceeded.append(Problem('nodes', (
                    f"Nova's limits leave your project {left} of {most} "
                    f'{_UNITS.get(limit, limit)}, and {wanted} are requested. '
                    'Request fewer or smaller nodes, delete servers, or ask '
                    'the operator for more; "openstack limits show '
                    '--absolute" shows the limits.')))

    def _found(self, kind: str, value: str) -> lookups.Json | None:
        answer = self._answers.get((kind, value))
        return answer if isinstance(answer, dict) else None

    def _sum(self, limit: str, nodes: Sequence[Nodes]) -> int | None:
        total = 0
        for one in nodes:
            key = _LIMITS[limit][2]
            flavor = self._found('flavor', one.flavor)
            if key is not None and flavor is None:
                return None
            total += one.number * (
                1 if key is None or flavor is None else flavor[key])
        return total


def _flavor(index: int, one: Nodes) -> _Reference:
    return _Reference(f'nodes[{index}].flavor', 'flavor', one.flavor)


def _references(index: int, one: Nodes) -> Iterator[_Reference]:
    """Yield all references of a node set."""
    at = f'nodes[{index}]'
    yield _flavor(index, one)
    if one.image is not None:
        yield _Reference(f'{at}.image', 'image', one.image)
    if one.key_name is not None:
        yield _Reference(f'{at}.key_name', 'key pair', one.key_name)
    networks = interfaces(one.network, one.server)
    if isinstance(networks, list):
        for number, network in enumerate(networks):
            field = (f'{at}.networks[{number}]' if 'networks' in one.server
                     else f'{at}.network')
            kind = 'port' if 'port' in network else 'network'
            yield _Reference(field, kind, network.get('port')
                             or network['uuid'])
    for number, group in enumerate(one.server.get('security_groups', ())):
        yield _Reference(f'{at}.security_groups[{number}]',
                         'security group', group['name'])
    for number, device in enumerate(
            one.server.get('block_device_mapping_v2', ())):
        if device['source_type'] != 'blank':
            yield _Reference(f'{at}.block_device_mapping_v2[{number}]',
                             device['source_type'], device['uuid'])


def _flavor_problems(name: str, flavor: lookups.Json) -> Iterator[str]:
    """Yield reasons why a flavor cannot be used for leases."""
    specs = flavor.get('extra_specs')
    if specs is None:
        raise Unanswered('Nova does not show you the properties of flavors')
    if not vocabulary.is_marked(specs):
        yield (f'{name} is not a secondary flavor. Secondary flavors have the '
               f'property {vocabulary.MARKER}=true in "openstack flavor list '
               '--long".')
        return
    disk = (flavor['disk'] + int(flavor.get('OS-FLV-EXT-DATA:ephemeral') or 0)
            + -(-int(flavor.get('swap') or 0) // 1024))
    problems = vocabulary.flavor_problems(specs, flavor['vcpus'],
                                          flavor['ram'], disk)
    if problems:
        yield (f'{name} is not well formed as a secondary flavor ('
               + '; '.join(problems[:3]) + '). Choose another flavor, or '
               'inform the operator.')


def _image_problems(name: str, image: lookups.Json) -> Iterator[str]:
    """Yield reasons why servers cannot boot from an image."""
    if image.get('status') != 'active':
        yield (f'{name} is {image.get("status")}, not active. Wait until it '
               'is, or choose another image.')


def _misfits(image: lookups.Json, flavor: lookups.Json, disk: int | None,
             where: str) -> Iterator[str]:
    """Yield reasons why an image does not fit a flavor and its disk.

    :param disk: size in GiB; None if it is unknown, 0 if it is the image's.
    """
    name = image.get('name') or image.get('id')
    memory, least = image.get('min_ram') or 0, image.get('min_disk') or 0
    if memory > flavor['ram']:
        yield (f'{name} needs {memory} MiB of memory, and flavor '
               f'{flavor["name"]} has {flavor["ram"]}. Choose a larger '
               'flavor.')
    if not disk:
        return
    size = max(image.get('size') or 0, image.get('virtual_size') or 0)
    if least > disk or size > disk * _GIB:
        need = max(least, -(-size // _GIB))
        yield (f'{name} needs a disk of {need} GiB, and {where} has {disk}. '
               'Choose a larger one.')


def _volume_problems(name: str, volume: lookups.Json) -> Iterator[str]:
    """Yield reasons why a volume or a snapshot cannot be used."""
    if volume.get('status') not in ('available', 'in-use'):
        yield (f'{name} is {volume.get("status")}, not available. Wait until '
               'it is.')


_PROBLEMS: Mapping[str, typing.Any] = {
    'flavor': _flavor_problems, 'image': _image_problems,
    'volume': _volume_problems, 'snapshot': _volume_problems}


def _limits_of(services: lookups.Services) -> lookups.Json:
    found = services.get('compute', '/limits', {})
    if found is None:
        raise Unanswered('Nova does not show you its limits')
    return typing.cast(lookups.Json, found['limits']['absolute'])


#: Neutron's statuses if it cannot create a network, or lacks the API.
_NO_TOPOLOGY = (400, 403, 404, 409)


def _networks_of(project: str) -> lookups.LookUp:
    """Return the look-up of the networks from which Nova would choose.

    It raises ``Missing`` if there is none and Neutron cannot create one.
    """
    def look_up(services: lookups.Services) -> list[str]:
        listed: list[str] = []
        for query in ({'project_id': project, 'shared': 'False',
                       'admin_state_up': 'True'}, {'shared': 'True'}):
            answer = services.get('network', '/networks', query) or {}
            listed += [str(one.get('name') or one['id'])
                       for one in answer.get('networks', ())]
        if not listed and services.get(
                'network', f'/auto-allocated-topology/{project}',
                {'fields': 'dry-run'}, _NO_TOPOLOGY) is None:
            raise Missing(
                'your project has no network, and Neutron cannot create one '
                'for it. Create one ("openstack network create"), or give '
                '"none".')
        return listed
    return look_up
