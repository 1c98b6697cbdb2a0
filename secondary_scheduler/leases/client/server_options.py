# SPDX-License-Identifier: Apache-2.0

"""Options of the commands for the servers of a lease.

They follow those of ``openstack server create``.
"""

import argparse
import base64
import pathlib
import typing

from osc_lib.cli import parseractions

Json = dict[str, typing.Any]

#: Largest size of user data in bytes; Nova accepts 65,535 in base64.
_MOST = 65535 // 4 * 3
_INTERFACE = ('network', 'port', 'fixed_ip', 'tag')
_NUMBERS = ('boot_index', 'volume_size')
_DEVICE = ('source_type', 'destination_type', 'uuid', *_NUMBERS,
           'volume_type', 'delete_on_termination', 'device_name',
           'device_type', 'disk_bus', 'guest_format', 'tag')


def add_options(parser: typing.Any) -> None:
    """Add the options, which apply to the servers of each ``--nodes``."""
    group = parser.add_argument_group(
        'servers', 'of each --nodes, as for "openstack server create"')
    group.add_argument(
        '--user-data', metavar='<file>', type=read_user_data,
        help='User data, for example for cloud-init; never shown again')
    group.add_argument(
        '--network', metavar='<network>[,fixed_ip=<address>][,tag=<tag>]',
        dest='networks', action='append', type=parse_interface,
        help='Name or id of a network; may be repeated for more interfaces. '
             'Also port=<port>[,tag=<tag>], or none, or auto (default)')
    group.add_argument(
        '--security-group', metavar='<group>', dest='security_groups',
        action='append', help='Name or id; may be repeated')
    group.add_argument(
        '--property', metavar='<key=value>', dest='metadata',
        action=parseractions.KeyValueAction,
        help='Metadata; may be repeated')
    group.add_argument('--tag', metavar='<tag>', dest='tags',
                       action='append', help='May be repeated')
    group.add_argument('--description', metavar='<text>')
    group.add_argument(
        '--config-drive', action='store_true', default=None,
        help='Add a drive with metadata and user data')
    group.add_argument(
        '--boot-from-volume', metavar='<GiB>', type=_size,
        help='Boot from a new volume of the image, which is deleted with '
             'its server')
    group.add_argument(
        '--block-device', metavar='<key=value>[,<key=value>,...]',
        dest='block_device_mapping_v2', action='append',
        type=parse_device,
        help='A further disk, for example source_type=volume,uuid=<id>,'
             'destination_type=volume; the keys are ' + ', '.join(_DEVICE))


def apply_options(arguments: typing.Any, nodes: list[Json]) -> list[Json]:
    """Return node sets with the given options.

    :raises argparse.ArgumentTypeError: if they contradict each other.
    """
    given = vars(arguments)
    server = {name: given[name] for name in (
        'user_data', 'metadata', 'tags', 'description', 'config_drive')
        if given[name] is not None}
    if arguments.networks is not None:
        server['networks'] = _networks(arguments.networks)
    if arguments.security_groups is not None:
        server['security_groups'] = [
            {'name': name} for name in arguments.security_groups]
    return [_with_devices(arguments, {**one, **server}) for one in nodes]


def _networks(given: list[Json | str]) -> list[Json] | str:
    named = [one for one in given if isinstance(one, str)]
    if not named:
        return typing.cast(list[Json], given)
    if len(given) > 1:
        raise argparse.ArgumentTypeError(
            f'--network {named[0]} excludes other networks: leave them out')
    return named[0]


def _with_devices(arguments: typing.Any, one: Json) -> Json:
    devices = list(arguments.block_device_mapping_v2 or ())
    if arguments.boot_from_volume is not None:
        if 'image' not in one:
            raise argparse.ArgumentTypeError(
                '--boot-from-volume: give the image in --nodes')
        one = dict(one)
        devices.insert(0, {
            'source_type': 'image', 'uuid': one.pop('image'),
            'destination_type': 'volume', 'boot_index': 0,
            'volume_size': arguments.boot_from_volume,
            'delete_on_termination': True})
    return {**one, 'block_device_mapping_v2': devices} if devices else one


def read_user_data(path: str) -> str:
    """Return the content of a file in base64."""
    try:
        content = pathlib.Path(path).read_bytes()
    except OSError as exc:
        raise argparse.ArgumentTypeError(
            f'{path} cannot be read: {exc.strerror}') from exc
    if len(content) > _MOST:
        raise argparse.ArgumentTypeError(
            f'{path} has {len(content)} bytes, and user data may have '
            f'{_MOST}; let it download the rest')
    return base64.b64encode(content).decode('ascii')


def parse_interface(text: str) -> Json | str:
    """Return an interface for Nova's request, or "auto" or "none"."""
    if text in ('auto', 'none'):
        return text
    if '=' not in text.partition(',')[0]:
        text = f'network={text}'
    found = _pairs(text, _INTERFACE)
    if 'network' in found:
        found['uuid'] = found.pop('network')
    return found


def parse_device(text: str) -> Json:
    """Return a device for Nova's request."""
    found = _pairs(text, _DEVICE)
    for name in _NUMBERS:
        if name in found:
            found[name] = _number(name, found[name])
    if 'delete_on_termination' in found:
        found['delete_on_termination'] = _boolean(
            found['delete_on_termination'])
    return found


def _pairs(text: str, known: tuple[str, ...]) -> Json:
    found: Json = {}
    for part in text.split(','):
        name, equals, value = part.partition('=')
        if not equals or name not in known:
            raise argparse.ArgumentTypeError(
                f'{part!r}: write <key>=<value>, with a key of '
                + ', '.join(known))
        found[name] = value
    return found


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(
            f'{name} is a whole number, not {text!r}') from exc


def _size(text: str) -> int:
    return _number('the size in GiB', text)


def _boolean(text: str) -> bool:
    try:
        return {'true': True, 'false': False}[text.lower()]
    except KeyError as exc:
        raise argparse.ArgumentTypeError(
            f'delete_on_termination is true or false, not {text!r}') from exc
