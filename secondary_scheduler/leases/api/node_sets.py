"""Node sets of a lease: their JSON Schema, and from JSON to ``models.Nodes``.

Besides the number, a node set has properties of Nova's own request for a
server (``POST /servers``), with the same names, meaning and limits.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import ipaddress
import typing

from secondary_scheduler.leases.api import microversions
from secondary_scheduler.leases.api.db import models
from secondary_scheduler.leases.api.db.models import Nodes
from secondary_scheduler.leases.api.server_properties import root_device
from secondary_scheduler.model import vocabulary

Schema = dict[str, typing.Any]

_CONTROL = r'[\u0000-\u001f\u007f]'
#: Nova's bounds (``nova.api.openstack.compute.schemas.servers``).
_MOST_USER_DATA = 65535
_MOST_TAGS, _MOST_TAG = 50, 60
_MOST_NODES = 100_000
_MOST_DEVICES = 255
_MOST_VOLUME_GB = 2 ** 31 - 1
_BASE64 = r'^[A-Za-z0-9+/\r\n]*={0,2}[\r\n]*$'
_METADATA_KEY = '^[a-zA-Z0-9_:. -]{1,255}$'


def line(what: str, least: int = 0, most: int = 255,
         forbidden: str = _CONTROL, **more: typing.Any) -> Schema:
    """Return the schema of a text of one line."""
    return {'type': 'string', 'minLength': least, 'maxLength': most,
            'not': {'type': 'string', 'pattern': forbidden},
            'description': what, **more}


def nullable(schema: Schema) -> Schema:
    """Return a schema that allows null as well."""
    return {**schema, 'type': [schema['type'], 'null']}


def _object(properties: Schema, required: Sequence[str] = (),
            **more: typing.Any) -> Schema:
    return {'type': 'object', 'properties': properties,
            'required': list(required), 'additionalProperties': False,
            **more}


def _list(items: Schema, most: int, what: str) -> Schema:
    return {'type': 'array', 'items': items, 'maxItems': most,
            'description': what}


_TAG = line('A tag; without commas and slashes.', 1, _MOST_TAG,
            r'[,/\u0000-\u001f\u007f]')
_NETWORKS: Schema = {
    'oneOf': [
        {'type': 'string', 'enum': ['auto', 'none']},
        _list(_object({
            'uuid': line('Id or name of a network.', 1),
            'port': line('Id or name of a port; a port serves one server.',
                         1),
            'fixed_ip': line('An address of the network; serves one server.',
                             1),
            'tag': _TAG}), _MOST_DEVICES, 'The interfaces, in this order.')],
    'description': (
        'The networks: "auto" leaves them to Nova, which takes the only one '
        'that the project has, or makes one; "none" is without.')}
_DEVICE = _object({
    'source_type': {'type': 'string', 'enum': [
        'blank', 'image', 'snapshot', 'volume']},
    'destination_type': {'type': 'string', 'enum': ['local', 'volume']},
    'uuid': line('Id of the volume, snapshot or image; of an image also the '
                 'name.', 1),
    'boot_index': {'type': ['integer', 'null'], 'minimum': -1,
                   'maximum': _MOST_DEVICES,
                   'description': '0: the device to boot from.'},
    'volume_size': {'type': 'integer', 'minimum': 1,
                    'maximum': _MOST_VOLUME_GB,
                    'description': 'Size of a new volume in GiB.'},
    'volume_type': nullable(line('Type of a new volume.')),
    'delete_on_termination': {'type': 'boolean', 'description': (
        'Whether the volume is deleted with its server.')},
    'device_name': line('Name that the guest is told.', 1),
    'device_type': line('For instance disk or cdrom.'),
    'disk_bus': line('For instance virtio.'),
    'guest_format': line('For instance swap or ext4.'),
    'tag': _TAG}, ('source_type',))

#: Further properties of Nova's request, as it calls them.
SERVER: Schema = {
    'networks': _NETWORKS,
    'security_groups': _list(_object({
        'name': line('Name or id of a security group.', 1)}, ('name',)),
        _MOST_DEVICES, 'Security groups of the interfaces.'),
    'metadata': {
        'type': 'object', 'additionalProperties': False,
        'patternProperties': {
            _METADATA_KEY: {'type': 'string', 'maxLength': 255}},
        'description': (
            'Metadata of each server. Keys that begin with "secondary:" are '
            f'reserved, but {vocabulary.PRIORITY_METADATA} may lower its '
            'priority.')},
    'tags': _list(_TAG, _MOST_TAGS, 'Tags of each server.'),
    'config_drive': {'type': 'boolean', 'description': (
        'Whether metadata and user data come on a drive as well.')},
    'block_device_mapping_v2': _list(
        _DEVICE, _MOST_DEVICES, (
            'Disks. A volume of the image to boot from is {"source_type": '
            '"image", "uuid": IMAGE, "destination_type": "volume", '
            '"boot_index": 0, "volume_size": GIB}, in place of "image".')),
    'description': line('Description of each server.'),
}
_USER_DATA: Schema = {
    'type': 'string', 'maxLength': _MOST_USER_DATA, 'pattern': _BASE64,
    'contentEncoding': 'base64', 'writeOnly': True,
    'description': 'For cloud-init or the like, in base64. No answer has '
                   'it.'}
_PLAIN: Schema = {
    'number': {'type': 'integer', 'minimum': 1, 'maximum': _MOST_NODES,
               'description': 'How many servers.'},
    'flavor': line('Name or id of a secondary flavor.', 1),
    'image': nullable(line('Name or id of the image that they boot from.',
                           1)),
    'network': nullable(line(
        'Name or id of their network, "auto" or "none", if "networks" is not '
        'there; null: "auto".', 1)),
    'key_name': nullable(line('Name of the key pair for them.', 1)),
}


def _since(schema: Schema) -> Schema:
    """Return a schema that came with the version of servers' properties."""
    return {**schema, 'x-openstack': {'min-ver': str(microversions.SERVERS)}}


#: A node set of a request, and of an answer.
REQUEST = _object(_PLAIN | {
    name: _since(one) for name, one in SERVER.items()
} | {'user_data': _since(_USER_DATA)}, ('number', 'flavor'))
SHOWN = _object({**_PLAIN, **SERVER, 'has_user_data': {
    'type': 'boolean', 'description': 'Whether there is user data.'}},
    list(_PLAIN))


def contradictions(asked: Sequence[Mapping[str, typing.Any]]
                   ) -> Iterator[str]:
    """Yield why node sets that fit their schema cannot be; names fields."""
    for index, one in enumerate(asked):
        for field, text in _contradictions(one):
            yield f'nodes[{index}].{field}: {text}'


def read(asked: Sequence[Mapping[str, typing.Any]]) -> tuple[Nodes, ...]:
    """Return the node sets of a request that fits its schema."""
    return tuple(Nodes(
        **{name: one[name] for name in _PLAIN if name in one},
        server={name: one[name] for name in SERVER if name in one},
        user_data=one.get('user_data')) for one in asked)


def show(one: Nodes | models.NodeSetRow, version: microversions.Version
         ) -> dict[str, typing.Any]:
    """Return a node set as a version shows it."""
    since = {} if version < microversions.SERVERS else {
        **one.server, 'has_user_data': one.has_user_data}
    return {name: getattr(one, name) for name in _PLAIN} | since


def without_user_data(nodes: Sequence[Nodes]) -> tuple[Nodes, ...]:
    """Return node sets of which nothing secret needs to be kept."""
    return tuple(dataclasses.replace(one, user_data=None) for one in nodes)


def _contradictions(one: Mapping[str, typing.Any]
                    ) -> Iterator[tuple[str, str]]:
    """Yield fields that cannot be as they are, and why."""
    if one.get('network') is not None and 'networks' in one:
        yield 'network', 'leave it out where "networks" is there.'
    if isinstance(one.get('networks'), list):
        for index, network in enumerate(one['networks']):
            for text in _of_network(network, one['number']):
                yield f'networks[{index}]', text
    if one.get('image') is not None and root_device(one) is not None:
        yield 'image', ('leave it out where block_device_mapping_v2 has the '
                        'device to boot from (boot_index 0).')
    devices = one.get('block_device_mapping_v2', ())
    for index, device in enumerate(devices):
        for text in _of_device(device, one['number']):
            yield f'block_device_mapping_v2[{index}]', text
    indexes = sorted(index for index in (
        device.get('boot_index') for device in devices)
        if index is not None and index >= 0)
    if len(set(indexes)) < len(indexes):
        yield 'block_device_mapping_v2', (
            'no two devices may have the same boot_index.')
    for key in one.get('metadata', ()):
        if key.startswith('secondary:') and (
                key != vocabulary.PRIORITY_METADATA):
            yield 'metadata', (f'{key} is reserved. Choose another prefix '
                               'than "secondary:".')
    if 'user_data' in one:
        try:
            base64.b64decode(one['user_data'])
        except binascii.Error:
            yield 'user_data', ('it is not in base64. "base64 FILE" or '
                                '--user-data FILE makes it so.')


def _of_network(network: Mapping[str, str], number: int) -> Iterator[str]:
    if ('uuid' in network) == ('port' in network):
        yield 'give either a network (uuid) or a port.'
    if 'fixed_ip' in network:
        if 'port' in network:
            yield 'a port has its own addresses: leave out fixed_ip.'
        try:
            ipaddress.ip_address(network['fixed_ip'])
        except ValueError:
            yield 'fixed_ip is not an IPv4 or IPv6 address.'
    if number > 1 and ('port' in network or 'fixed_ip' in network):
        yield ('a port or an address serves one server: ask for a node set '
               'of one for each.')


def _of_device(device: Mapping[str, typing.Any], number: int
               ) -> Iterator[str]:
    source, volume = device['source_type'], (
        device.get('destination_type') == 'volume')
    if source == 'blank':
        if 'uuid' in device:
            yield 'a blank device has no uuid.'
    elif 'uuid' not in device:
        yield f'give the uuid of the {source}.'
    if source in ('blank', 'image') and volume and (
            'volume_size' not in device):
        yield 'give the volume_size (GiB) of the new volume.'
    if source == 'volume' and number > 1:
        yield ('a volume serves one server: ask for a node set of one for '
               'each.')
