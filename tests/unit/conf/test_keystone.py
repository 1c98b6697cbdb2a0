# SPDX-License-Identifier: Apache-2.0

"""Tests of sections with options of keystoneauth, as written by tools."""

import pathlib
import tempfile
import unittest
from unittest import mock

from keystoneauth1 import exceptions, fixture
from oslo_config import cfg
import requests

from secondary_scheduler.agent import inventory
from secondary_scheduler.conf import agent as agent_conf
from secondary_scheduler.conf import keystone

#: configure_keystoneauth of DevStack's lib/keystone, and what our plug-in
#: adds.
DEVSTACK = '''
auth_type = password
interface = public
auth_url = http://keystone/identity
username = secondary-agent
password = secret
user_domain_name = Default
project_name = service
project_domain_name = Default
region_name = RegionOne
'''

#: [placement] in nova.conf.j2 of kolla-ansible; cafile is empty without TLS.
KOLLA = '''
auth_type = password
auth_url = http://keystone:5000
username = placement
password = secret
user_domain_name = Default
project_name = service
project_domain_name = Default
region_name = RegionOne
cafile =
valid_interfaces = internal
'''

#: [service_user] in nova.conf.j2 of kolla-ansible has domains by id.
KOLLA_IDS = '''
auth_url = http://keystone:5000
auth_type = password
project_domain_id = default
user_domain_id = default
project_name = service
username = nova
password = secret
cafile =
region_name = RegionOne
valid_interfaces = internal
'''

#: [placement] in nova.conf of Debian's nova-common 26.
DEBIAN = '''
auth_type = password
auth_url = http://keystone:5000/v3
project_name = service
project_domain_name = default
username = nova
user_domain_name = default
password = secret
region_name = RegionOne
'''

#: [placement] of nova.conf up to Queens, still found in old installations.
QUEENS = '''
auth_plugin = password
auth_url = http://keystone:5000/v3/
tenant_name = service
project_domain_name = Default
user_name = placement
user_domain_name = Default
password = secret
os_region_name = RegionOne
os_interface = internal
'''

LEAST = '''
auth_type = password
auth_url = http://keystone:5000/v3
username = nova
password = secret
project_name = service
user_domain_name = Default
project_domain_name = Default
'''

#: [keystone_authtoken], by configure_keystone_authtoken_middleware.
MIDDLEWARE = '''
auth_type = password
interface = public
auth_url = {url}
username = secondary-lease
password = secret
user_domain_name = Default
project_name = service
project_domain_name = Default
www_authenticate_uri = http://public/identity
cafile = /opt/stack/data/ca-bundle.pem
memcached_servers = localhost:11211
'''

PLACEMENT = {one: f'http://{one}/placement'
             for one in ('public', 'internal', 'admin')}


def read(test: unittest.TestCase, section: str, group: str = 'placement',
         others: str = '') -> cfg.ConfigOpts:
    """Return a configuration from a file with one section."""
    directory = tempfile.TemporaryDirectory()
    test.addCleanup(directory.cleanup)
    path = pathlib.Path(directory.name, 'a.conf')
    path.write_text(f'[{group}]\n{section}\n{others}')
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[str(path)], default_config_dirs=[])
    return conf


class Http:
    """Keystone, with a catalog of all interfaces, and Placement."""

    def __init__(self, *interfaces: str, regions=('RegionOne',)) -> None:
        token = fixture.V3Token()
        token.set_project_scope()
        service = token.add_service('placement', name='placement')
        for region in regions:
            for name in interfaces or PLACEMENT:
                service.add_endpoint(name, PLACEMENT[name], region=region)
        self._token = token
        self.asked: list[str] = []
        self.logins: list[dict] = []
        self.options: list[dict] = []

    def request(self, method: str, url: str, **more) -> requests.Response:
        answer = requests.Response()
        answer.status_code, answer.url = 200, url
        answer.headers['Content-Type'] = 'application/json'
        self.options.append(more)
        body: object = {}
        if url.endswith('/auth/tokens'):
            answer.status_code = 201
            answer.headers['X-Subject-Token'] = 'a-token'
            self.logins.append(more['data'])
            body = self._token
        elif 'keystone' in url:
            body = fixture.DiscoveryList(
                href=url.removesuffix('/').removesuffix('/v3'), v2=False)
        else:
            self.asked.append(url)
        answer._content = requests.compat.json.dumps(body).encode()
        return answer


class PlacementTest(unittest.TestCase):
    """Tests of the adapter with which the agent updates its inventory."""

    def adapter(self, section: str, others: str = ''):
        conf = read(self, section, others=others)
        agent_conf.register_placement_opts(conf)
        return inventory.placement_adapter(conf)

    def placement_url(self, section: str, http: Http | None = None,
              others: str = '') -> str:
        """Return the URL to which an adapter sends its requests."""
        adapter, http = self.adapter(section, others), http or Http()
        adapter.session.session = http
        adapter.get('/resource_providers')
        (self.asked,) = http.asked
        (self.login,) = http.logins
        self.options = http.options
        return self.asked.removesuffix('/resource_providers')

    def test_sections_of_every_tool_reach_placement(self):
        for name, section, interface in (
                ('DevStack', DEVSTACK, 'public'),
                ('Kolla', KOLLA, 'internal'),
                ('Kolla, domains by id', KOLLA_IDS, 'internal'),
                ('Debian', DEBIAN, 'internal'),
                ('Queens', QUEENS, 'internal'),
                ('least', LEAST, 'internal')):
            with self.subTest(name):
                self.assertEqual(PLACEMENT[interface],
                                 self.placement_url(section))
                self.assertIn('"password": "secret"', self.login)

    def test_all_forms_of_interface_options_are_understood(self):
        for text, interface in (
                ('interface = admin', 'admin'),
                ('os_interface = admin', 'admin'),
                ('interface = publicURL', 'public'),
                ('valid_interfaces = adminURL', 'admin'),
                ('valid_interfaces = Public', 'public'),
                ('valid_interfaces = admin,public', 'admin'),
                ('valid_interfaces =', 'internal'),
                ('interface =', 'internal'),
                # The newer option takes precedence.
                ('interface = public\nvalid_interfaces = admin', 'admin'),
                ('valid_interfaces = admin\ninterface = public', 'admin')):
            with self.subTest(text):
                self.assertEqual(PLACEMENT[interface],
                                 self.placement_url(LEAST + text))

    def test_second_interface_is_used_if_first_is_missing(self):
        self.assertEqual(PLACEMENT['public'],
                         self.placement_url(LEAST, Http('public')))
        self.assertEqual(PLACEMENT['admin'], self.placement_url(
            LEAST + 'valid_interfaces = internal,admin', Http('admin')))

    def test_wrong_interface_is_named(self):
        with self.assertRaisesRegex(exceptions.EndpointNotFound, 'sideways'):
            self.placement_url(LEAST + 'interface = sideways')

    def test_endpoint_override_wins_over_the_catalog(self):
        self.assertEqual('http://elsewhere', self.placement_url(
            DEVSTACK + 'endpoint_override = http://elsewhere', Http()))

    def test_region_selects_endpoint_and_empty_region_does_not(self):
        two = Http(regions=('RegionTwo',))
        for text in ('region_name = RegionOne', 'os_region_name = RegionOne'):
            with self.subTest(text), \
                    self.assertRaises(exceptions.EndpointNotFound):
                self.placement_url(LEAST + text, two)
        for text in ('region_name =', 'os_region_name = RegionTwo'):
            with self.subTest(text):
                self.placement_url(LEAST + text, Http(regions=('RegionTwo',)))

    def test_credentials_may_stand_in_another_section(self):
        for name in ('keystone_authtoken', 'service_user'):
            with self.subTest(name):
                self.assertEqual(PLACEMENT['admin'], self.placement_url(
                    f'auth_section = {name}\ninterface = admin',
                    others=f'[{name}]\n{LEAST}'))

    def test_certificates_of_the_section_are_used(self):
        for text, verify, cert in (
                ('', True, None),
                ('cafile =', True, None),
                ('cafile = /ca.pem', '/ca.pem', None),
                ('insecure = true', False, None),
                ('insecure = true\ncafile = /ca.pem', False, None),
                ('certfile = /a.crt\nkeyfile = /a.key', True,
                 ('/a.crt', '/a.key'))):
            with self.subTest(text):
                self.placement_url(LEAST + text)
                for one in self.options:
                    self.assertEqual((verify, cert),
                                     (one['verify'], one.get('cert')))

    def test_requests_have_a_timeout(self):
        self.assertEqual(30, self.adapter(LEAST).session.timeout)
        self.assertEqual(
            7, self.adapter(LEAST + 'timeout = 7').session.timeout)

    def test_section_without_credentials_is_an_error(self):
        for section, said in (
                ('', 'no auth_type'),
                ('auth_url = http://keystone\npassword = x', 'no auth_type'),
                ('auth_type = password', 'auth_url')):
            with self.subTest(section), \
                    self.assertRaisesRegex(exceptions.ClientException, said):
                self.adapter(section)


class IdentityTest(unittest.TestCase):
    """Tests of the URL at which the lease service finds Keystone."""

    def url(self, section: str, others: str = '') -> str:
        self.conf = read(self, section, 'keystone_authtoken', others)
        return keystone.identity_url(self.conf)

    def test_all_forms_of_urls_are_understood(self):
        for url in ('http://keystone/identity', 'http://keystone/identity/',
                    'http://keystone/identity/v3',
                    'http://keystone/identity/v3/',
                    'http://keystone/identity/v2.0'):
            for section in (MIDDLEWARE.format(url=url),
                            f'www_authenticate_uri = {url}'):
                with self.subTest(section):
                    self.assertEqual('http://keystone/identity/v3',
                                     self.url(section))

    def test_url_may_stand_in_another_section(self):
        self.assertEqual('http://keystone:5000/v3', self.url(
            'auth_section = service_user', f'[service_user]\n{KOLLA_IDS}'))

    def test_section_without_url_is_an_error(self):
        with self.assertRaisesRegex(exceptions.ClientException, 'auth_url'):
            self.url('')

    def test_session_has_certificates_of_the_section(self):
        self.url(MIDDLEWARE.format(url='https://keystone'))
        made = keystone.make_session(self.conf, None, 10)
        self.assertEqual(('/opt/stack/data/ca-bundle.pem', 10),
                         (made.verify, made.timeout))


class ForeignSectionTest(unittest.TestCase):
    """Tests of sections whose options Watcher has registered."""

    def test_interfaces_of_foreign_sections(self):
        for valid, one, expected in (
                (None, 'public', ['public']),
                (None, 'internalURL', ['internal']),
                (['internal', 'public'], None, ['internal', 'public']),
                (['internal'], 'public', ['internal']),
                (None, None, []), ([], '', [])):
            with self.subTest(valid=valid, one=one):
                self.assertEqual(expected, keystone.interfaces(mock.Mock(
                    valid_interfaces=valid, interface=one)))
