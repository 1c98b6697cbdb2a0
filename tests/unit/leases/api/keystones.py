# SPDX-License-Identifier: Apache-2.0

"""A Keystone in memory that makes trusts, and refuses some."""

import itertools
import threading
from unittest import mock

from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import session
from keystonemiddleware import opts

#: What Keystone 30 answers to application credentials.
DELEGATED = ('You are not authorized to perform the requested action: '
             'Delegated tokens cannot manage trusts..')


class Keystone:
    """Answers requests of keystoneauth's sessions.

    ``trusts`` has the existing trusts by id. ``delegated`` are tokens of
    application credentials; ``refusals`` has errors by method, and
    ``before`` is called before each request. ``known`` are all trusts, also
    deleted ones.
    """

    def __init__(self, test, conf):
        for group, options in opts.list_auth_token_opts():
            conf.register_opts(options, group)
        conf.set_override('www_authenticate_uri',
                          'http://keystone.example/identity/',
                          'keystone_authtoken')
        test.addCleanup(conf.clear_override, 'www_authenticate_uri',
                        'keystone_authtoken')
        self.trusts, self.heard = {}, []
        self.delegated, self.refusals = set(), {}
        self.known, self._lock = set(), threading.Lock()
        self.before = lambda method, path: None
        self.verify = None
        self._numbers = itertools.count(1)

        ask = session.Session.request

        def request(session_, path, method, *arguments, **more):
            if not path.startswith('/OS-TRUST/'):
                return ask(session_, path, method, *arguments, **more)
            endpoint_override = more['endpoint_override']
            self.verify = session_.verify
            self.heard.append((method, endpoint_override + path,
                               session_.auth.token, more.get('json')))
            self.before(method, path)
            if method in self.refusals:
                raise self.refusals[method]
            with self._lock:
                found = self._answer(method, path.rpartition('/')[2],
                                     session_.auth.token, more.get('json'))
            return mock.Mock(json=lambda: found)
        patcher = mock.patch.object(session.Session, 'request', request)
        patcher.start()
        test.addCleanup(patcher.stop)

    def _answer(self, method, trust, token, given):
        # A missing trust comes before a delegated token, as in Keystone 30.
        if method != 'POST' and trust not in self.trusts:
            raise ks_exceptions.NotFound(f'Could not find trust: {trust}.')
        if token in self.delegated:
            raise ks_exceptions.Forbidden(DELEGATED)
        if method == 'POST':
            # Deleted trusts count, too: they stay in Keystone's database.
            key = repr(given['trust'])
            if key in self.known:
                raise ks_exceptions.Conflict('Duplicate entry found')
            self.known.add(key)
            trust = f'trust{next(self._numbers)}'
            self.trusts[trust] = given['trust']
        elif method == 'DELETE':
            del self.trusts[trust]
            return None
        return {'trust': {'id': trust, **self.trusts[trust]}}

    def asked(self, method):
        """Return the requests with a method."""
        return [one for one in self.heard if one[0] == method]
