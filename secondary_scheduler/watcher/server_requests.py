"""Nova's request for the server of a node, as its owner has asked for it.

What may be a secret (user data) is in the database of leases only: parameters
of Watcher's actions are kept in Watcher's database, and shown.
"""

from collections.abc import Mapping
from typing import Any

from oslo_db import exception as db_exception

from secondary_scheduler.lease_api import server_properties
from secondary_scheduler.lease_api.db import errors, requests
from secondary_scheduler.lease_api.db.session import Database
from secondary_scheduler.watcher import perprocess
from secondary_scheduler.watcher.settings import CONF

#: Nova's microversion whose request it is: types of volumes are the newest.
VERSION = '2.67'

#: Properties that are passed on as the owner has given them.
_AS_GIVEN = ('config_drive', 'description', 'key_name', 'security_groups',
             'tags', 'user_data')

_database = perprocess.PerProcess(lambda: Database(CONF))


class NoRequest(Exception):
    """The request cannot be read from the database of leases."""


def stored(lease: str, node: int) -> dict[str, Any]:
    """Return the properties that are in the database of leases only.

    :raises NoRequest: if it has none of that node, or does not answer.
    """
    try:
        return requests.server_request(_database(), lease, node)
    except errors.UnknownLease as exc:
        raise NoRequest(str(exc)) from exc
    except db_exception.DBError as exc:
        # What a database says goes on with where to read about it.
        raise NoRequest('the database of leases ([secondary_lease_api] '
                        'database_url) does not answer: '
                        + str(exc).partition('\n')[0]) from exc


def body(conn: Any, build: Mapping[str, Any], metadata: Mapping[str, str]
         ) -> dict[str, Any]:
    """Return the ``server`` of Nova's request; names become ids.

    :param conn: the owner's connection of openstacksdk.
    :param build: name, flavor, image, network and key_name, and what
        ``stored`` returns.
    :param metadata: what the server has beside the owner's metadata.
    """
    found = {name: build[name] for name in _AS_GIVEN
             if build.get(name) is not None}
    networks = server_properties.interfaces(build.get('network'), build)
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


def _image(conn: Any, name: str) -> str:
    return str(conn.image.find_image(name, ignore_missing=False).id)


def _interface(conn: Any, one: Mapping[str, str]) -> dict[str, str]:
    kind, find = (('port', conn.network.find_port) if 'port' in one
                  else ('uuid', conn.network.find_network))
    return {**one, kind: str(find(one[kind], ignore_missing=False).id)}


def _device(conn: Any, one: Mapping[str, Any]) -> dict[str, Any]:
    if one['source_type'] != 'image':
        return dict(one)
    return {**one, 'uuid': _image(conn, one['uuid'])}
