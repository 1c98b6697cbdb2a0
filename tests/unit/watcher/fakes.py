# SPDX-License-Identifier: Apache-2.0

"""Stand-ins for openstacksdk and the bus; Watcher's objects are real."""

import dataclasses
import tempfile
import time
import types
from unittest import TestCase, mock
import uuid

from oslo_config import cfg
from oslo_service import service
from watcher import notifications, objects
from watcher.common import context
from watcher.tests.local_fixtures import conf_fixture, db

from secondary_scheduler.model import reports, vocabulary
from secondary_scheduler.watcher import (
    audits,
    cloud_errors,
    cloud_snapshot,
    database_locks,
    history,
    leader,
    list_gate,
    scope,
    settings,
)

TOTAL = {vocabulary.VCPU: 8, vocabulary.MEMORY_MB: 8192,
         vocabulary.DISK_GB: 100, vocabulary.SLOT: 8}


def uid(number):
    return str(uuid.UUID(int=number))


def server(number, host='h1', status='ACTIVE', **changes):
    values = {
        'uuid': uid(number), 'project': 'p1', 'host': host,
        'status': status, 'task_state': None, 'vcpus': 1,
        'memory_mb': 512, 'disk_gb': 1,
        'mark': vocabulary.SecondaryMark(
            priority=changes.pop('priority', 5)),
        'metadata': {}, 'hints': {}}
    values.update(changes)
    return cloud_snapshot.NovaServer(**values)


def host(name, **changes):
    values = {
        'name': name, 'root': uid(sum(map(ord, name))), 'up': True,
        'place': scope.HostPlace(frozenset({1}), frozenset({'agg'}),
                                 'nova'),
        'total': TOTAL, 'reserved': dict.fromkeys(TOTAL, 0)}
    values.update(changes)
    return cloud_snapshot.ComputeHost(**values)


def report(name, servers=(), primary=10.0, violated=False, seq=1,
           time=1000.0, floored=False, **changes):
    values = {
        'host': name, 'incarnation': 'i', 'seq': seq, 'time': time,
        'policies_hash': 'x', 'admission': True, 'reason': '',
        'cpus': 2.0, 'memory_mb': 4096, 'cpu_total': 50.0,
        'cpu_primary': primary,
        'policies': (reports.PolicyReport(
            'cpu <= 90% for 10s', 'cpu', 90.0, 10, 50.0, 0,
            reports.PolicyState.VIOLATED if violated
            else reports.PolicyState.HELD),),
        'instances': tuple(reports.InstanceReport(
            s.uuid, s.priority, 10.0, 20.0, floored)
            for s in servers)}
    values.update(changes)
    return reports.HostReport(**values)


class FakeCloud:
    """The methods of ``cloud.Cloud`` on a dictionary of servers.

    ``during`` maps a verb to a callable that may change things when Nova is
    called; by default the operation succeeds at once.
    """

    GOALS = {'suspend': 'SUSPENDED', 'resume': 'ACTIVE', 'stop': 'SHUTOFF',
             'start': 'ACTIVE', 'unpause': 'ACTIVE',
             'shelve': 'SHELVED_OFFLOADED',
             'shelve_offload': 'SHELVED_OFFLOADED'}

    def __init__(self, servers=(), hosts=()):
        self.known = {s.uuid: s for s in servers}
        self.places = {h.name: h for h in hosts}
        self.calls = []
        self.during = {}
        self.down = False
        self.groups = []
        self.primaries = {}
        self.gate = list_gate.ListGate(10.0)
        #: Hosts in a cell of which the database refuses connections.
        self.refused = set()
        #: Hosts in a cell of which the database is silent.
        self.silent = set()
        self.waits = 0      # requests that have waited for it

    def change(self, number_or_uuid, **changes):
        key = (uid(number_or_uuid) if isinstance(number_or_uuid, int)
               else number_or_uuid)
        self.known[key] = dataclasses.replace(self.known[key], **changes)

    def _check(self):
        if self.down:
            raise cloud_errors.CloudError('nova is away')

    def servers(self):
        return self._list()

    def servers_on(self, name):
        return {k: s for k, s in self._list().items() if s.host == name}

    def _list(self):
        self._check()
        with self.gate.list():
            self._wait()
            return {k: s for k, s in self.known.items()
                    if s.host not in self.refused}

    def _wait(self):
        self.waits += bool(self.silent)
        if self.silent:
            raise cloud_errors.TimedOut('60 s')

    def flavors(self):
        return ('f1', 'f2')

    def server(self, key):
        self._check()
        if key not in self.known:
            raise cloud_errors.NotFound(key)
        if self.known[key].host in self.silent:
            self._wait()
        if self.known[key].host in self.refused:
            raise cloud_errors.Unseen(key)
        return self.known[key]

    def unreachable_hosts(self):
        if self.silent:
            self.gate.close()
        else:
            self.gate.note_answer(0, complete=True)
        return frozenset(self.silent | self.refused)

    def hosts(self):
        self._check()
        away = self.unreachable_hosts()
        return {name: dataclasses.replace(host, unreachable=name in away)
                for name, host in self.places.items()}

    def server_groups(self):
        return tuple(self.groups)

    def primary_hosts(self, uuids):
        return {one: self.primaries[one] for one in uuids
                if one in self.primaries}

    def set_metadata(self, key, items):
        self.calls += [('set', key, name, value)
                       for name, value in items.items()]
        self.change(key, metadata={**self.server(key).metadata, **items})

    def delete_metadata(self, key, name):
        self.calls.append(('delete', key, name))
        self.change(key, metadata={
            k: v for k, v in self.server(key).metadata.items()
            if k != name})

    def act(self, key, verb):
        self.calls.append((verb, key))
        self.server(key)
        if verb in self.during:
            self.during[verb]()
            return
        self.change(key, status=self.GOALS[verb])

    def unshelve(self, key, host):
        self.calls.append(('unshelve', key, host))
        self.change(key, status='ACTIVE', host=host or self.known[key].host)

    def live_migrate(self, key, target):
        self.calls.append(('migrate', key, target))
        if 'migrate' in self.during:
            self.during['migrate']()
            return
        self.change(key, host=target)

    def abort_migration(self, key):
        self.calls.append(('abort', key))
        return True

    def close_admission(self, root):
        self.calls.append(('close', root))

    def open_admission(self, root):
        self.calls.append(('open', root))


def coordinate(test, clock=time.monotonic, file=None):
    """Return the locks of one engine, in a database file of their own."""
    if file is None:
        directory = tempfile.TemporaryDirectory()
        test.addCleanup(directory.cleanup)
        file = directory.name + '/locks.sqlite'
    return leader.Coordination(
        database_locks.LockTable(lambda: f'sqlite:///{file}'), clock)


class WatcherTestCase(TestCase):
    """A test on Watcher's real objects and an empty database."""

    def use(self, fixture):
        fixture.setUp()
        self.addCleanup(fixture.cleanUp)

    def setUp(self):
        super().setUp()
        apart = mock.patch.object(cfg, 'CONF', settings.CONF)
        apart.start()
        self.addCleanup(apart.stop)
        self.addCleanup(settings.CONF.reset)
        self.use(conf_fixture.ConfReloadFixture())
        self.use(db.WatcherDatabase())
        self.addCleanup(settings.CONF.clear_override, 'connection',
                        'database')
        self.addCleanup(service.Singleton._instances.clear)
        objects.register_all()
        self.context = context.make_context(is_admin=True)
        # Watcher's notifications reject an object without its relations.
        for name, related in (('audit', 'goal'), ('action', 'action_plan'),
                              ('action_plan', 'audit')):
            patcher = mock.patch.object(notifications, name)
            patcher.start().send_update.side_effect = (
                lambda context, thing, *rest, related=related, **more:
                getattr(thing, related))
            self.addCleanup(patcher.stop)
        patcher = mock.patch.object(audits.rpcapi, 'DecisionEngineAPI')
        self.engine = patcher.start().return_value
        self.addCleanup(patcher.stop)
        settings.CONF.set_override('policy', [], 'secondary_scheduler')
        self.addCleanup(settings.CONF.clear_override, 'policy',
                        'secondary_scheduler')
        self.goal = objects.Goal(
            self.context, uuid=uid(901), name=vocabulary.GOAL,
            display_name='g', efficacy_specification=[])
        self.goal.create()
        self.strategy = objects.Strategy(
            self.context, uuid=uid(902), name=vocabulary.STRATEGY,
            display_name='s', goal_id=self.goal.id, parameters_spec={})
        self.strategy.create()
        self.history = history.AuditHistory(settings.CONF)
        self.audit_manager = audits.AuditManager()

    def audit(self, number, audit_type='CONTINUOUS', state='ONGOING',
              **values):
        values.setdefault('parameters', {})
        values.setdefault('scope', [])
        values.setdefault('auto_trigger', True)
        audit = objects.Audit(
            self.context, uuid=uid(number), name=f'a{number}',
            audit_type=audit_type, state=state, goal_id=self.goal.id,
            strategy_id=self.strategy.id, force=True, **values)
        audit.create()
        return objects.Audit.get_by_uuid(self.context, audit.uuid, eager=True)

    def plan(self, audit, state='ONGOING'):
        plan = objects.ActionPlan(
            self.context, uuid=str(uuid.uuid4()), audit_id=audit.id,
            strategy_id=self.strategy.id, state=state, global_efficacy=[])
        plan.create()
        return plan

    def action(self, plan, kind='suspend', instance=1, source='h1',
               target=None, state='PENDING', **parameters):
        action = objects.Action(
            self.context, uuid=str(uuid.uuid4()), action_plan_id=plan.id,
            action_type='secondary_' + kind, state=state, parents=[],
            input_parameters={'resource_id': uid(instance),
                              'source': source, **parameters,
                              **({'target': target} if target else {})})
        action.create()
        return action

    def audits(self, audit_type='ONESHOT'):
        return objects.Audit.list(
            self.context, filters={'audit_type': audit_type}, eager=True)


def sdk_server(number, extra_specs=None, **changes):
    """Return what openstacksdk returns for a server."""
    values = {
        'id': uid(number), 'project_id': 'p1', 'compute_host': 'h1',
        'status': 'ACTIVE', 'task_state': None, 'metadata': {},
        'scheduler_hints': None, 'updated_at': None, 'name': 'x',
        'user_id': 'alice', 'image': None, 'fault': None, 'created_at': None,
        'launched_at': None, 'availability_zone': 'nova',
        'pinned_availability_zone': None,
        'flavor': types.SimpleNamespace(
            original_name='secondary', vcpus=2, ram=512, disk=1, ephemeral=1,
            swap=0, extra_specs={vocabulary.MARKER: 'true'}
            if extra_specs is None else extra_specs)}
    values.update(changes)
    return types.SimpleNamespace(**values)
