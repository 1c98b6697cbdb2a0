# SPDX-License-Identifier: Apache-2.0

"""Lease services for tests, on different databases."""

import functools
import json
import re
import tempfile
import unittest
import urllib.parse

from alembic import autogenerate
from alembic import migration as alembic_migration
import jsonschema
from oslo_config import cfg
import sqlalchemy as sa
import webob

from secondary_scheduler.conf import lease_api as options
from secondary_scheduler.leases.api import app, openapi, resources, schemas
from secondary_scheduler.leases.api.db import migration, record_models
from secondary_scheduler.leases.api.db.models import EngineRow, Nodes
from secondary_scheduler.leases.api.db.plans import PlannedSlot, SlotPurpose
from secondary_scheduler.leases.api.db.requests import LeaseRequest
from tests.unit.leases.api import servers

#: 2027-01-31T08:00:00Z
NOW = 1801382400
NOBODY = '00000000-0000-4000-8000-000000000000'

NODES = [{'number': 2, 'flavor': 'secondary.small', 'image': 'debian'}]
QUOTE = {'duration': 3600, 'nodes': NODES}
LEASE = {**QUOTE, 'name': 'nightly'}


class Clock:

    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


def differences(engine):
    """Return the differences between tables and models, by Alembic."""
    with engine.connect() as connection:
        context = alembic_migration.MigrationContext.configure(
            connection, opts={'compare_type': True})
        return list(autogenerate.compare_metadata(
            context, record_models.Base.metadata))


def _empty(engine):
    """Delete all rows of current tables, or drop tables of other versions.

    A server takes much longer to create tables than to empty them.
    """
    current = not differences(engine)
    with engine.begin() as connection:
        if current:
            for table in reversed(record_models.Base.metadata.sorted_tables):
                connection.execute(table.delete())
            connection.execute(sa.insert(EngineRow).values(
                id=1, passes=0))
        else:
            found = sa.MetaData()
            found.reflect(connection)
            found.drop_all(connection)


def needs(database):
    """Skip a class of tests unless a database server is available."""
    reason = servers.KINDS[database].missing()
    return unittest.skipIf(reason, f'no {database}: {reason}')


def on(test, database='memory', sync=True, **changes):
    """Return a service on a database: "memory", "file", or a server's name."""
    if database in servers.KINDS:
        url = servers.url(database)
    elif database == 'file':
        directory = tempfile.TemporaryDirectory()
        test.addCleanup(directory.cleanup)
        url = f'sqlite:///{directory.name}/leases.sqlite'
    else:
        url = 'sqlite://'
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    for name, value in {'database_url': url, 'auth_strategy': 'noauth',
                        **changes}.items():
        conf.set_override(name, value, group='secondary_lease_api')
        # Overrides of a group of options are shared by all configurations.
        test.addCleanup(conf.clear_override, name,
                        group='secondary_lease_api')
    found = app.service(conf)
    if database in servers.KINDS:
        _empty(found.database.engine)
    if sync:
        migration.sync(found.database.engine)
    test.addCleanup(found.database.engine.dispose)
    found.store._clock = found.quotes._clock = Clock()
    return found


def request(number, project='p1', **changes):
    """Return a request for the store; its UUID ends in a number."""
    return LeaseRequest(**{
        'uuid': f'{NOBODY[:-4]}{number:04x}', 'project_id': project,
        'user_id': 'alice', 'nodes': (Nodes(2, 'secondary.small'),),
        'duration': 3600, **changes})


def stretch(begin, end, what=SlotPurpose.RUN, **hosts):
    return PlannedSlot(NOW + begin, NOW + end, what, hosts)


@functools.cache
def _paths():
    return [(re.compile(re.sub(r'{\w+}', '[^/]+', path) + r'\Z'), operations)
            for path, operations in openapi.describe_service(
                resources.TABLE, '')['paths'].items()]


def _validator(schema):
    return jsonschema.Draft202012Validator(
        {**schema, 'components': {'schemas': schemas.COMPONENTS}})


class Api:
    """Client of a service, which checks responses by the description."""

    def __init__(self, service):
        self.service = service
        self.application = app.application(service)

    def ask(self, method, path, body=None, user='alice', project='p1',
            headers=None, environ=None):
        """Send a request; return (status, JSON) of its checked response.

        ``body`` is bytes or is converted to JSON. The default version is the
        latest. Responses 404 and 405 of unknown paths are not checked.
        """
        asked = webob.Request.blank(path, method=method, headers={
            'OpenStack-API-Version': 'secondary-lease latest'})
        if user:
            asked.headers['X-Auth-Token'] = f'{user}:{project}'
        if body is not None:
            asked.content_type = 'application/json'
            asked.body = body if isinstance(body, bytes) else (
                json.dumps(body).encode())
        asked.headers.update(headers or {})
        asked.environ.update(environ or {})
        self.answer = asked.get_response(self.application)
        self._check(method, urllib.parse.unquote(path.partition('?')[0]))
        return self.answer.status_int, (
            self.answer.json if self.answer.body else None)

    def _check(self, method, path):
        for pattern, operations in _paths():
            if pattern.match(path) and method.lower() in operations:
                described = operations[method.lower()]['responses'].get(
                    str(self.answer.status_int))
                assert described is not None, self.answer
                content = described.get('content')
                if content is None:
                    assert self.answer.body == b'', self.answer
                else:
                    assert self.answer.content_type == 'application/json'
                    _validator(content['application/json']['schema']
                               ).validate(self.answer.json)
                return
        assert self.answer.status_int in (404, 405), self.answer

    def good(self, method, path, body=None, **more):
        """Send a request that succeeds; return the JSON of the response."""
        status, answer = self.ask(method, path, body, **more)
        assert status < 400, answer
        return answer

    def bad(self, status, method, path, body=None, **more):
        """Send a request that fails with a status; return the error."""
        found, answer = self.ask(method, path, body, **more)
        assert found == status, (found, answer)
        return answer['errors'][0]

    def create(self, user='alice', project='p1', **changes):
        """Request a lease; return it."""
        return self.good('POST', '/leases', {**LEASE, **changes}, user=user,
                         project=project)['lease']
