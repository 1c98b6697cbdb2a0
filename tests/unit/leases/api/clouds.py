# SPDX-License-Identifier: Apache-2.0

"""Fake Nova, Glance, Neutron, Cinder and catalogue for look-ups."""

import json
import threading
import urllib.parse

from keystoneauth1 import access, fixture, identity
import webob
import webob.dec
from wsgi_intercept import interceptor

from secondary_scheduler.model import vocabulary

PROJECT = 'p1'
SMALL = {'id': 'f1', 'name': 'secondary.small', 'vcpus': 2, 'ram': 512,
         'disk': 5, 'OS-FLV-EXT-DATA:ephemeral': 0, 'swap': '',
         'extra_specs': vocabulary.secondary_extra_specs(
             2, 512, 5, vocabulary.SecondaryMark())}
IMAGE = {'id': 'i1', 'name': 'debian', 'status': 'active', 'min_disk': 2,
         'min_ram': 256, 'size': 2 ** 30, 'virtual_size': None}

#: Service types, where each is, and where its version is.
_AT = {'compute': ('nova.example', '/v2.1'),
       'image': ('glance.example', '/v2'),
       'network': ('neutron.example', '/v2.0'),
       'block-storage': ('cinder.example', '/v3')}
_VERSIONS = {'compute': 'v2.1', 'image': 'v2.9', 'network': 'v2.0',
             'block-storage': 'v3.0'}


def token(services):
    """Return a token of Keystone with some services in its catalogue."""
    made = fixture.V3Token(user_id='alice', project_id=PROJECT)
    for name in services:
        host, path = _AT[name]
        made.add_service(name).add_standard_endpoints(
            # Some catalogues contain the version, others do not.
            public=f'http://{host}'
            + (path if name == 'compute' else ''), region='R1')
    return made


class Plugin(identity.base.BaseIdentityPlugin):
    """The plug-in that keystonemiddleware leaves in a request."""

    has_user_token = True

    def __init__(self, body):
        super().__init__(reauthenticate=False)
        self._access = access.create(body=body, auth_token='alices')

    def get_auth_ref(self, session, **kwargs):
        return self._access


class Cloud:
    """Objects by collection; each is a list that tests change.

    ``away`` are services that refuse connections. ``broken`` maps services to
    the status with which they answer. ``slow`` are services that answer when
    ``go`` is set.
    """

    def __init__(self, test):
        self.flavors = [SMALL, {**SMALL, 'id': 'f2', 'name': 'm1.small',
                                'extra_specs': {}}]
        self.images = [IMAGE]
        self.keypairs = [{'id': 'k', 'name': 'k'}]
        self.networks = [self.network('n1', 'private')]
        self.ports = [{'id': 'port1', 'name': 'web'}]
        self.security_groups = [{'id': 'g1', 'name': 'default'}]
        self.volumes = [{'id': 'v1', 'name': 'data', 'status': 'available'}]
        self.snapshots = []
        self.limits = {}
        self.topology = 404
        self.services = list(_AT)
        self.away, self.broken, self.slow = set(), {}, set()
        self.go = threading.Event()
        self.tokens, self.asked = set(), []
        for name, (host, _) in _AT.items():
            intercepted = interceptor.RequestsInterceptor(
                self._answering(name), host=host, port=80)
            intercepted.install_intercept()
            test.addCleanup(intercepted.uninstall_intercept)
        test.addCleanup(self.go.set)

    @staticmethod
    def network(uuid, name, shared=False):
        return {'id': uuid, 'name': name, 'project_id': PROJECT,
                'shared': shared}

    @property
    def plugin(self):
        return Plugin(token(self.services))

    def _answering(self, service):
        @webob.dec.wsgify
        def answer(request):
            if service in self.slow:
                self.go.wait(30)
            if service in self.broken:
                return webob.Response(status=self.broken[service])
            return self._answer(service, request)

        def connect():
            if service in self.away:
                raise ConnectionRefusedError(111, 'refused')
            return answer
        return connect

    def _answer(self, service, request):
        host, version = _AT[service]
        path = urllib.parse.unquote(request.path)
        if path in ('/', f'{version}/'):
            return self._json({'versions': [{
                'id': _VERSIONS[service], 'status': 'CURRENT',
                'links': [{'rel': 'self',
                           'href': f'http://{host}{version}'}]}]})
        self.tokens.add(request.headers.get('X-Auth-Token'))
        self.asked.append((service, path))
        parts = path.removeprefix(version).strip('/').split('/', 1)
        found = self._found(parts, dict(request.GET))
        return webob.Response(status=found) if isinstance(found, int) else (
            self._json(found))

    def _found(self, parts, query):
        collection = parts[0]
        if collection == 'limits':
            return {'limits': {'absolute': self.limits}}
        if collection == 'auto-allocated-topology':
            return self.topology if self.topology != 200 else {'x': {}}
        listed = getattr(self, collection.removeprefix('os-').replace(
            '-', '_'))
        if len(parts) == 1 or parts[1] == 'detail':
            return {collection.replace('-', '_'): [
                one for one in listed
                if query.get('name') in (None, one['name'])
                and query.get('shared') in (
                    None, str(one.get('shared')))]}
        one = next((one for one in listed if one['id'] == parts[1]), None)
        if one is None:
            return 404
        if collection == 'images':
            return one
        return {collection.removeprefix('os-').replace('-', '_')[:-1]: one}

    @staticmethod
    def _json(body):
        return webob.Response(body=json.dumps(body).encode(),
                              content_type='application/json', charset=None)
