# SPDX-License-Identifier: Apache-2.0

"""Node sets of a lease: JSON Schema, and conversion to ``models.Nodes``.

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
#: Control characters, and parts of a path that a URL must not have.
_UNSAFE = _CONTROL + r'|(?:^|/)\.{1,2}(?:/|$)'
#: Nova's bounds (``nova.api.openstack.compute.schemas.servers``).
_MOST_USER_DATA = 65535
#: One tag fewer than Nova allows: a server has the tag of its lease, too.
_MOST_TAGS, _MOST_TAG = 49, 60
_MOST_NODES = 100_000
_MOST_DEVICES = 255
_MOST_VOLUME_GB = 2 ** 31 - 1
#: No character can be matched by two parts of it: that would take a time with
#: the square of the length.
_BASE64 = r'^[A-Za-z0-9+/\r\n]*(?:={1,2}[\r\n]*)?$'
_METADATA_KEY = '^[a-zA-Z0-9_:. -]{1,255}$'


def line(description: str, least: int = 0, most: int = 255,
         forbidden: str = _CONTROL, **more: typing.Any) -> Schema:
    """Return the schema of a single-line text."""
    return {'type': 'string', 'minLength': least, 'maxLength': most,
            'not': {'type': 'string', 'pattern': forbidden},
            'description': description, **more}


def reference(description: str) -> Schema:
    """Return the schema of an id or name, which becomes part of a URL.

    A part of "." or ".." would lead to another resource.
    """
    return line(description, 1, forbidden=_UNSAFE)


def nullable(schema: Schema) -> Schema:
    """Return a schema that also allows null."""
    return {**schema, 'type': [schema['type'], 'null']}


def _object(properties: Schema, required: Sequence[str] = (),
            **more: typing.Any) -> Schema:
    return {'type': 'object', 'properties': properties,
            'required': list(required), 'additionalProperties': False,
            **more}


def _list(items: Schema, most: int, description: str) -> Schema:
    return {'type': 'array', 'items': items, 'maxItems': most,
            'description': description}


_TAG = line('A tag, without commas and slashes.', 1, _MOST_TAG,
            r'[,/\u0000-\u001f\u007f]')
_NETWORKS: Schema = {
    'oneOf': [
        {'type': 'string', 'enum': ['auto', 'none']},
        _list(_object({
            'uuid': reference('Id or name of a network.'),
            'port': reference(
                'Id or name of a port; a port serves one server.'),
            'fixed_ip': line('Address in the network; serves one server.',
                             1),
            'tag': _TAG}), _MOST_DEVICES, 'Interfaces, in this order.')],
    'description': (
        'Networks. "auto": Nova uses the only network of the project, or '
        'makes one. "none": no network.')}
_DEVICE = _object({
    'source_type': {'type': 'string', 'enum': [
        'blank', 'image', 'snapshot', 'volume']},
    'destination_type': {'type': 'string', 'enum': ['local', 'volume']},
    'uuid': reference('Id of the volume, snapshot or image; an image may '
                      'also be given by name.'),
    'boot_index': {'type': ['integer', 'null'], 'minimum': -1,
                   'maximum': _MOST_DEVICES,
                   'description': '0: boot device.'},
    'volume_size': {'type': 'integer', 'minimum': 1,
                    'maximum': _MOST_VOLUME_GB,
                    'description': 'Size of a new volume in GiB.'},
    'volume_type': nullable(line('Type of a new volume.')),
    'delete_on_termination': {'type': 'boolean', 'description': (
        'Whether the volume is deleted with its server.')},
    'device_name': line('Device name for the guest.', 1),
    'device_type': line('For instance disk or cdrom.'),
    'disk_bus': line('For instance virtio.'),
    'guest_format': line('For instance swap or ext4.'),
    'tag': _TAG}, ('source_type',))

#: Further properties of Nova's request, by Nova's names.
SERVER: Schema = {
    'networks': _NETWORKS,
    'security_groups': _list(_object({
        'name': reference('Name or id of a security group.')}, ('name',)),
        _MOST_DEVICES, 'Security groups of the interfaces.'),
    'metadata': {
        'type': 'object', 'additionalProperties': False,
        'patternProperties': {
            _METADATA_KEY: {'type': 'string', 'maxLength': 255}},
        'description': (
            'Metadata of each server. Keys that begin with "secondary:" are '
            f'reserved, except {vocabulary.PRIORITY_METADATA}, which may '
            'lower the priority.')},
    'tags': _list(_TAG, _MOST_TAGS, 'Tags of each server.'),
    'config_drive': {'type': 'boolean', 'description': (
        'Whether to add a drive with metadata and user data.')},
    'block_device_mapping_v2': _list(
        _DEVICE, _MOST_DEVICES, (
            'Disks. To boot from a new volume with an image, use '
            '{"source_type": "image", "uuid": IMAGE, "destination_type": '
            '"volume", "boot_index": 0, "volume_size": GIB} instead of '
            '"image".')),
    'description': line('Description of each server.'),
}
_USER_DATA: Schema = {
    'type': 'string', 'maxLength': _MOST_USER_DATA, 'pattern': _BASE64,
    'contentEncoding': 'base64', 'writeOnly': True,
    'description': 'User data, for example for cloud-init, in base64. It is '
                   'in no response.'}
_PLAIN: Schema = {
    'number': {'type': 'integer', 'minimum': 1, 'maximum': _MOST_NODES,
               'description': 'Number of servers.'},
    'flavor': reference('Name or id of a secondary flavor.'),
    'image': nullable(reference('Name or id of the boot image.')),
    'network': nullable(reference(
        'Name or id of the network, "auto" or "none"; excludes "networks". '
        'null: "auto".')),
    'key_name': nullable(reference('Name of the key pair.')),
}


def _since(schema: Schema) -> Schema:
    """Return a schema, marked with the version of server properties."""
    return {**schema, 'x-openstack': {'min-ver': str(microversions.SERVERS)}}


#: A node set of a request, and of a response.
REQUEST = _object(_PLAIN | {
    name: _since(one) for name, one in SERVER.items()
} | {'user_data': _since(_USER_DATA)}, ('number', 'flavor'))
SHOWN = _object({**_PLAIN, **SERVER, 'has_user_data': {
    'type': 'boolean', 'description': 'Whether there is user data.'}},
    list(_PLAIN))


def contradictions(requested: Sequence[Mapping[str, typing.Any]]
                   ) -> Iterator[str]:
    """Yield contradictions in node sets that fit their schema, by field."""
    for index, one in enumerate(requested):
        for field, text in _contradictions(one):
            yield f'nodes[{index}].{field}: {text}'


def parse_node_sets(requested: Sequence[Mapping[str, typing.Any]]
                    ) -> tuple[Nodes, ...]:
    """Return the node sets of a request that fits its schema."""
    return tuple(Nodes(
        **{name: one[name] for name in _PLAIN if name in one},
        server={name: one[name] for name in SERVER if name in one},
        user_data=one.get('user_data')) for one in requested)


def show_node_set(one: Nodes | models.NodeSetRow,
                  version: microversions.Version) -> dict[str, typing.Any]:
    """Return a node set in the form of a version."""
    since = {} if version < microversions.SERVERS else {
        **one.server, 'has_user_data': one.has_user_data}
    return {name: getattr(one, name) for name in _PLAIN} | since


def without_user_data(nodes: Sequence[Nodes]) -> tuple[Nodes, ...]:
    """Return node sets without their user data, which may be secret."""
    return tuple(dataclasses.replace(one, user_data=None) for one in nodes)


def _contradictions(one: Mapping[str, typing.Any]
                    ) -> Iterator[tuple[str, str]]:
    """Yield (field, message) for contradictory fields."""
    if one.get('network') is not None and 'networks' in one:
        yield 'network', 'leave it out if "networks" is given.'
    if isinstance(one.get('networks'), list):
        for index, network in enumerate(one['networks']):
            for text in _network_faults(network, one['number']):
                yield f'networks[{index}]', text
    if one.get('image') is not None and root_device(one) is not None:
        yield 'image', ('leave it out if block_device_mapping_v2 has the '
                        'boot device (boot_index 0).')
    devices = one.get('block_device_mapping_v2', ())
    for index, device in enumerate(devices):
        for text in _device_faults(device, one['number']):
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
            yield 'metadata', (f'{key} is reserved. Choose a prefix other '
                               'than "secondary:".')
    if 'user_data' in one:
        try:
            base64.b64decode(one['user_data'])
        except binascii.Error:
            yield 'user_data', ('it is not in base64. "base64 FILE" or '
                                '--user-data FILE encodes it.')


def _network_faults(network: Mapping[str, str], number: int) -> Iterator[str]:
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
        yield ('a port or an address serves one server: request a node set '
               'of one for each.')


def _device_faults(device: Mapping[str, typing.Any], number: int
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
        yield ('a volume serves one server: request a node set of one for '
               'each.')
