# SPDX-License-Identifier: Apache-2.0

"""Cost of child providers in a primary's GET /allocation_candidates.

Placement's own application runs in this process (no HTTP server, no Keystone)
on three clouds of N compute nodes each: flat, with one secondary child in the
whole cloud, and with a child on each node.  See README.md.
"""

import argparse
from collections.abc import Iterator
import contextlib
import gc
import itertools
import json
import logging
import statistics
import sys
import time
import typing
import uuid

import os_traits
from oslo_config import cfg
from oslo_policy import opts as policy_options
from placement import conf as placement_conf
from placement import db_api, deploy
from placement.db.sqlalchemy import migration
import sqlalchemy as sa
import webob

from benchmarks import forms
from secondary_scheduler.model import vocabulary

#: What nova-scheduler 34 sends for a primary (ResourceRequest.to_querystring).
QUERY = ('/allocation_candidates?limit=1000&resources=DISK_GB%3A20%2C'
         'MEMORY_MB%3A4096%2CVCPU%3A2&root_required=OWNER_NOVA%2C%21'
         'COMPUTE_STATUS_DISABLED')
MICROVERSION = '1.36'

ROOT = {'VCPU': 64, 'MEMORY_MB': 262144, 'DISK_GB': 2000}
#: About as many as a host with the libvirt driver has.
TRAITS = ['OWNER_NOVA', 'COMPUTE_NODE', *itertools.islice(
    (trait for trait in os_traits.get_traits('COMPUTE_')
     if not trait.startswith(('COMPUTE_NODE', 'COMPUTE_STATUS'))), 40)]
CHILD = {vocabulary.VCPU: 64, vocabulary.MEMORY_MB: 131072,
         vocabulary.DISK_GB: 1000, vocabulary.SLOT: 64}


class Placement:
    """Placement's application on a database of its own."""

    def __init__(self, database: str) -> None:
        config = cfg.ConfigOpts()
        placement_conf.register_opts(config)
        policy_options.set_defaults(config)
        config.set_override('connection', database, 'placement_database')
        config([], default_config_files=[])
        config.set_override('auth_strategy', 'noauth2', 'api')
        db_api.configure(config)
        self._engine = db_api.get_placement_engine()
        if sa.inspect(self._engine).get_table_names():
            raise SystemExit('This database has tables. Name an empty one: '
                             'it will be emptied in the end.')
        migration.create_schema(self._engine)
        self._application = deploy.loadapp(config)

    def close(self) -> None:
        """Leave the database as empty as it was."""
        tables = sa.MetaData()
        tables.reflect(self._engine)
        tables.drop_all(self._engine)
        self._engine.dispose()

    def call(self, method: str, url: str,
             body: typing.Any = None) -> webob.Response:
        """Send a request; raise if it fails."""
        request = webob.Request.blank(url, method=method, headers={
            'X-Auth-Token': 'admin',
            'OpenStack-API-Version': f'placement {MICROVERSION}',
            'Accept': 'application/json'})
        if body is not None:
            request.content_type = 'application/json'
            request.json_body = body
        answer = request.get_response(self._application)
        if answer.status_int >= 400:
            raise RuntimeError(f'{method} {url}: {answer.text}')
        return answer

    def provider(self, name: str, inventory: dict[str, int],
                 parent: str | None = None) -> str:
        """Make a provider; return its UUID."""
        known = str(uuid.uuid4())
        self.call('POST', '/resource_providers', {
            'uuid': known, 'name': name,
            **({'parent_provider_uuid': parent} if parent else {})})
        self.call('PUT', f'/resource_providers/{known}/inventories', {
            'resource_provider_generation': 0, 'inventories': {
                resource: {'total': total, 'max_unit': total}
                for resource, total in inventory.items()}})
        return known

    def mark(self) -> None:
        """Give all providers the traits; the API would take minutes."""
        with self._engine.begin() as connection:
            connection.execute(sa.text(
                'INSERT INTO resource_provider_traits '
                '(resource_provider_id, trait_id) SELECT p.id, t.id '
                'FROM resource_providers p, traits t WHERE t.name IN :names'
            ).bindparams(sa.bindparam('names', TRAITS, expanding=True)))


@contextlib.contextmanager
def placement(database: str) -> Iterator[Placement]:
    """Have Placement for a while."""
    service = Placement(database)
    try:
        yield service
    finally:
        service.close()


def measure(service: Placement, repeat: int) -> dict[str, float]:
    """Ask again and again; return medians in milliseconds."""
    spent: list[tuple[float, float]] = []
    size = 0
    for _ in range(repeat + 1):
        gc.collect()
        gc.disable()
        wall, start = time.perf_counter(), time.process_time()
        answer = service.call('GET', QUERY)
        spent.append((time.process_time() - start,
                      time.perf_counter() - wall))
        gc.enable()
        size = len(answer.body)
    cpu, wall_clock = zip(*spent[1:], strict=True)  # the first warms caches
    return {'cpu_ms': round(1000 * statistics.median(cpu), 2),
            'wall_ms': round(1000 * statistics.median(wall_clock), 2),
            'candidates': len(answer.json['allocation_requests']),
            'answer_bytes': size}


def run(arguments: argparse.Namespace) -> dict[str, typing.Any]:
    """Build the clouds one out of the other, and measure each."""
    logging.disable(logging.INFO)
    found: dict[str, typing.Any] = {}
    with placement(arguments.database) as service:
        for name in vocabulary.RESOURCE_CLASSES:
            service.call('PUT', f'/resource_classes/{name}')
        roots = [service.provider(f'node{n:05d}', ROOT)
                 for n in range(arguments.hosts)]
        service.mark()
        without = iter(roots)
        for name, number in (('flat', 0), ('one_child', 1),
                             ('child_each', arguments.hosts - 1)):
            for root in itertools.islice(without, number):
                service.provider(vocabulary.child_provider_name(root),
                                 CHILD, root)
            found[name] = measure(service, arguments.repeat)
    return {
        'hosts': arguments.hosts, 'repeat': arguments.repeat,
        'database': arguments.database.partition(':')[0], **found,
        'ratio': {name: {clock: round(
            found[name][clock] / found['flat'][clock], 3)
            for clock in ('cpu_ms', 'wall_ms')}
            for name in ('one_child', 'child_each')}}


def main() -> int:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--hosts', type=int, default=1000)
    parser.add_argument('--repeat', type=int, default=15,
                        help='requests to each cloud (15)')
    parser.add_argument('--database', default='sqlite://', metavar='URL',
                        help='an empty database (default: SQLite in memory);'
                        ' empty again in the end')
    forms.add_quick(parser, hosts=20, repeat=2)
    print(json.dumps(run(parser.parse_args()), indent=2))
    return 0


if __name__ == '__main__':
    sys.exit(main())
