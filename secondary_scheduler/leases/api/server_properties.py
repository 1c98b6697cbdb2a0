# SPDX-License-Identifier: Apache-2.0

"""Conversion of node sets to Nova's request for a server."""

from collections.abc import Mapping
import typing

#: Nova's microversion of the request; volume_type needs 2.67.
VERSION = '2.67'

#: Properties that are passed on unchanged.
_AS_GIVEN = ('config_drive', 'description', 'key_name', 'security_groups',
             'tags', 'user_data')

#: A list of interfaces, "auto" or "none".
Networks = list[dict[str, str]] | str


def as_networks(network: str | None) -> Networks:
    """Return the ``networks`` that are equivalent to a ``network``."""
    return (network or 'auto') if network in (None, 'auto', 'none') else [
        {'uuid': str(network)}]


def interfaces(network: str | None, server: Mapping[str, typing.Any]
               ) -> Networks:
    """Return the networks of a node set, from ``networks`` or ``network``."""
    return typing.cast(Networks, server.get('networks')
                       or as_networks(network))


def root_device(server: Mapping[str, typing.Any]
                ) -> Mapping[str, typing.Any] | None:
    """Return the boot device, None if the server boots from the image."""
    return next((one for one in server.get('block_device_mapping_v2', ())
                 if one.get('boot_index') == 0), None)


def make_server_body(conn: typing.Any, build: Mapping[str, typing.Any],
         metadata: Mapping[str, str]) -> dict[str, typing.Any]:
    """Return the ``server`` of Nova's request; names are replaced by ids.

    :param conn: the owner's connection of openstacksdk.
    :param build: name, flavor, image, network and key_name, and the
        properties of ``db.requests.server_request``.
    :param metadata: added to the owner's metadata.
    """
    found = {name: build[name] for name in _AS_GIVEN
             if build.get(name) is not None}
    networks = interfaces(build.get('network'), build)
    found |= {
        'name': build['name'],
        'flavorRef': conn.compute.find_flavor(
            build['flavor'], ignore_missing=False).id,
        'networks': networks if isinstance(networks, str) else [
            _interface(conn, one) for one in networks],
        'metadata': {**build.get('metadata', {}), **metadata}}
    if build.get('image') is not None:
        found['imageRef'] = _image(conn, build['image'])
    if build.get('block_device_mapping_v2'):
        found['block_device_mapping_v2'] = [
            _device(conn, one) for one in build['block_device_mapping_v2']]
    return found


def _image(conn: typing.Any, name: str) -> str:
    return str(conn.image.find_image(name, ignore_missing=False).id)


def _interface(conn: typing.Any, one: Mapping[str, str]) -> dict[str, str]:
    kind, find = (('port', conn.network.find_port) if 'port' in one
                  else ('uuid', conn.network.find_network))
    return {**one, kind: str(find(one[kind], ignore_missing=False).id)}


def _device(conn: typing.Any, one: Mapping[str, typing.Any]
            ) -> dict[str, typing.Any]:
    if one['source_type'] != 'image':
        return dict(one)
    return {**one, 'uuid': _image(conn, one['uuid'])}
