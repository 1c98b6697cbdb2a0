# SPDX-License-Identifier: Apache-2.0

"""CPU time of storing a pass of the lease engine in which leases change.

Each lease gets another state, record and event, and in the first pass its
servers.  README.md tells what is in the figures.
"""

import argparse
import json
import tempfile
import time
import typing
import uuid

from oslo_config import cfg
import sqlalchemy as sa

from benchmarks import forms
from secondary_scheduler.conf import lease_api as options
from secondary_scheduler.leases.api.db import (
    migration,
    models,
    schedules,
    session,
)
from secondary_scheduler.leases.api.db.changes import Change, NewEvent
from secondary_scheduler.leases.api.db.requests import LeaseRequest

#: Characters in the record of a lease of two servers.
RECORD = 1500
PASSES = 3


def connect(url: str) -> session.Database:
    """Return a database with new tables."""
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override('database_url', url, 'secondary_lease_api')
    database = session.Database(conf)
    migration.sync(database.engine)
    return database


def make_leases(database: session.Database, number: int) -> list[str]:
    """Store leases; return their UUIDs."""
    now = int(time.time())
    uuids = [str(uuid.uuid4()) for _ in range(number)]
    with database.writer() as writer:
        writer.execute(sa.update(models.EngineRow).values(looked_at=now))
        for one in uuids:
            lease = LeaseRequest(
                one, 'project', 'user', (models.Nodes(2, 'small'),),
                duration=3600).make_lease(now)
            lease.state = 'pending'
            writer.add(lease)
    return uuids


def change_leases(database: session.Database, uuids: list[str], number: int
                  ) -> dict[str, float]:
    """Store a pass; return CPU (ms for each lease) and elapsed seconds."""
    passes = schedules.read_pass(database, 0).passes
    changes = [Change(
        one, 'x' * RECORD + str(number),
        {'state': ('starting', 'active', 'suspending')[number], 'reason': ''},
        [str(uuid.uuid4()) for _ in range(2)] if number == 0 else None,
        [NewEvent('state', 'text')], served=5 * number) for one in uuids]
    began, cpu = time.perf_counter(), time.process_time()
    schedules.write_pass(database, passes, 0, changes, int(time.time()))
    return {'cpu_ms_per_lease': round(
                1000 * (time.process_time() - cpu) / len(uuids), 3),
            'elapsed_s': round(time.perf_counter() - began, 3)}


def main() -> None:
    """Print the figures of each pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--database', metavar='URL',
                        help='database with no tables (default: SQLite)')
    parser.add_argument('--leases', type=int, default=1000)
    forms.add_quick(parser, leases=60)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        database = connect(
            given.database or f'sqlite:///{directory}/leases.sqlite')
        uuids = make_leases(database, given.leases)
        found: list[dict[str, typing.Any]] = [
            change_leases(database, uuids, number)
            for number in range(PASSES)]
        database.engine.dispose()
    print(json.dumps({'leases': given.leases, 'passes': found}, indent=2))


if __name__ == '__main__':
    main()
