# SPDX-License-Identifier: Apache-2.0

"""Placement, Nova and Watcher as the operator's commands see them."""

import copy
import json
import types
import uuid

from keystoneauth1 import session
from openstack import exceptions


class Answer:

    def __init__(self, status, body=None, text=''):
        self.status_code = status
        self.content = b'' if body is None else json.dumps(body).encode()
        self.text = text or self.content.decode()

    def json(self):
        return json.loads(self.content)


def conflict(code, detail=''):
    """Return the answer of Placement to a conflict with a code."""
    return Answer(409, {'errors': [{
        'status': 409, 'title': 'Conflict', 'code': f'placement.{code}',
        'detail': f'There was a conflict when trying to complete your '
                  f'request.\n\n {detail}  ', 'request_id': 'req-1'}]})


class Placement:
    """Enough of Placement's API, generations and conflicts included."""

    def __init__(self):
        self.providers = {}
        self.classes = set()
        self.known_traits = set()
        self.allocations = {}   # of consumers: their providers
        self.conflicts = 0      # how many writes still meet a conflict
        self.conflict = Answer(409)
        self.refuse = None      # answer everything with this status
        self.writes = []

    def add(self, name, parent=None, uid=None, **inventories):
        uid = uid or str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
        self.providers[uid] = {
            'name': name, 'parent': parent, 'generation': 0, 'usages': {},
            'traits': [], 'inventories': {
                key: {'total': total, 'reserved': reserved}
                for key, (total, reserved) in inventories.items()}}
        return uid

    def request(self, url, method, microversion=None, raise_exc=False,
                json=None):
        if self.refuse:
            return Answer(self.refuse, text='refused')
        if method != 'GET':
            self.writes.append((method, url, copy.deepcopy(json)))
            if self.conflicts and '/inventories' in url:
                self.conflicts -= 1
                return self.conflict
        parts = url.strip('/').partition('?')
        path = parts[0].split('/')
        if path[0] == 'resource_classes':
            self.classes.add(path[1])
            return Answer(204)
        if path[0] == 'traits':
            self.known_traits.add(path[1])
            return Answer(204)
        if path[0] == 'allocations':
            return self._consumer(method, path[1], json)
        if len(path) == 1:
            return self._collection(method, parts[2], json)
        return self._provider(method, path, json)

    def _collection(self, method, query, body):
        if method == 'POST':
            if any(body['name'] == one['name']
                   for one in self.providers.values()):
                return conflict('duplicate_name', (
                    'Conflicting resource provider name: '
                    f'{body["name"]} already exists.'))
            self.add(body['name'], body['parent_provider_uuid'],
                     body['uuid'])
            return Answer(201)
        wanted = query.partition('name=')[2]
        return Answer(200, {'resource_providers': [
            {'uuid': uid, 'name': one['name'],
             'parent_provider_uuid': one['parent']}
            for uid, one in self.providers.items()
            if not wanted or one['name'] == wanted]})

    def _consumer(self, method, consumer, body):
        if method == 'PUT':
            if body['consumer_generation'] != 3:
                return Answer(409)
            self.allocations[consumer] = list(body['allocations'])
            return Answer(204)
        return Answer(200, {
            'allocations': dict.fromkeys(self.allocations[consumer], {}),
            'consumer_generation': 3, 'project_id': 'p', 'user_id': 'u'})

    def _provider(self, method, path, body):
        one = self.providers.get(path[1])
        if one is None:
            return Answer(404, text='no such provider')
        if method == 'DELETE':
            if any(one['usages'].values()):
                return conflict('resource_provider.inuse', (
                    'Resource provider has allocations.'))
            del self.providers[path[1]]
            return Answer(204)
        what = path[2]
        if what == 'allocations':
            return Answer(200, {what: {
                consumer: {} for consumer, held in self.allocations.items()
                if path[1] in held}})
        if method == 'PUT':
            if body['resource_provider_generation'] != one['generation']:
                return conflict('concurrent_update')
            gone = [name for name, used in one['usages'].items()
                    if used and what == 'inventories'
                    and name not in body[what]]
            if gone:
                return conflict('inventory.inuse', (
                    f"Inventory for '{', '.join(gone)}' on resource provider "
                    f"'{path[1]}' in use."))
            one['generation'] += 1
            one[what] = body[what]
        return Answer(200, {what: one[what], 'resource_provider_generation':
                            one['generation']})


class Compute:

    def __init__(self):
        self.made = {}
        self.hosts = [types.SimpleNamespace(
            name='node1.example', service_details={'host': 'node1'})]
        self.broken_specs = False
        self.instances = {}     # UUID: host, '' in a cell that is down
        self.moves = []

    def servers(self, details, all_projects):
        assert all_projects
        return (types.SimpleNamespace(
            id=uid, status=None if host else 'UNKNOWN')
            for uid, host in self.instances.items())

    def get_server(self, uid):
        if uid not in self.instances:
            raise exceptions.NotFoundException(uid)
        return types.SimpleNamespace(compute_host=self.instances[uid])

    def migrations(self):
        return iter(self.moves)

    def add(self, name, vcpus=1, ram=128, disk=0, extra_specs=None):
        flavor = types.SimpleNamespace(
            name=name, vcpus=vcpus, ram=ram, disk=disk, ephemeral=0, swap=0,
            extra_specs=extra_specs or {})
        self.made[name] = flavor
        return flavor

    def hypervisors(self, details):
        return iter(self.hosts)

    def flavors(self, **query):
        return iter(self.made.values())

    def find_flavor(self, name, get_extra_specs):
        return self.made.get(name)

    def create_flavor(self, **fields):
        return self.add(**fields)

    def create_flavor_extra_specs(self, flavor, extra_specs):
        if self.broken_specs:
            raise RuntimeError('no extra specs today')
        flavor.extra_specs = dict(extra_specs)

    def delete_flavor(self, flavor):
        del self.made[flavor.name]


class Watcher(session.Session):
    """A session that leads to Watcher."""

    def __init__(self):
        super().__init__()
        self.audits = []
        self.status = 201
        self.endpoint = 'http://watcher.example:9322'

    def get_endpoint(self, auth, **which):
        assert which['skip_discovery']
        return self.endpoint

    def request(self, url, method, json, headers, raise_exc, **which):
        assert method == 'POST'
        self.audits.append((url, json, headers))
        return Answer(self.status, {'uuid': 'audit-1'}
                      if self.status < 400 else None, 'no such goal')


class Cloud:

    def __init__(self):
        self.placement = Placement()
        self.compute = Compute()
        self.watcher = Watcher()
        self.root = self.placement.add(
            'node1.example', VCPU=(8, 0), MEMORY_MB=(16384, 512),
            DISK_GB=(100, 10))
        self.session = self.watcher
        self.config = types.SimpleNamespace(
            get_interface=lambda service: 'public',
            get_region_name=lambda service: 'RegionOne')
