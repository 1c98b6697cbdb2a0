# SPDX-License-Identifier: Apache-2.0

"""State of the cluster, from reports and refreshes."""

import json
import tempfile
from unittest import mock

from secondary_scheduler.model.constraints import Fence, Gather, Root
from secondary_scheduler.plans import model_documents
from secondary_scheduler.watcher import (
    cloud_errors,
    scope,
    settings,
)
from secondary_scheduler.watcher.cloud_snapshot import ServerGroup
from tests.unit.watcher import fakes
from tests.unit.watcher.report_case import ReportCase


class ClusterStateTest(ReportCase):
    def test_reports_of_unknown_hosts_are_ignored(self):
        self.seen.refresh()
        self.report('h9')
        self.assertFalse(self.seen.arrived.is_set())
        self.report('h1')
        self.assertTrue(self.seen.arrived.is_set())
        self.assertEqual({'h1'}, set(self.seen.book.hosts()))

    def test_violation_on_an_unreachable_host_is_noted_once_it_answers(self):
        self.seen.refresh()
        self.report('h1', violated=True, floored=True)
        self.assertTrue(self.seen.window.relief(0, self.now + 1))
        self.cloud.refused = {'h1'}
        self.seen.refresh()
        for _ in range(2):
            self.report('h1', violated=True, floored=True)
            self.report('h2', violated=True)
        self.assertEqual(float('-inf'), self.seen.window.began('h1'))
        self.assertEqual(self.now, self.seen.window.began('h2'))
        self.assertEqual({}, self.seen.window.relief(0, self.now + 1))
        self.cloud.refused = set()
        self.seen.refresh()
        self.now += 5
        self.report('h1', violated=True, floored=True)
        self.assertEqual(self.now, self.seen.window.began('h1'))
        self.assertEqual({'h1': self.now},
                         self.seen.window.relief(0, self.now + 1))

    def test_unreachable_host_does_not_stand_for_an_aggregate(self):
        settings.CONF.set_override(
            'policy', ['slots <= 1 in aggregate:agg'],
            'secondary_scheduler')
        self.seen.refresh()
        for away, noted in ((set(), 'h1'), ({'h1'}, 'h2')):
            self.cloud.refused = away
            self.seen.refresh()
            self.report('h1')
            self.report('h2')
            self.now += 2
            self.seen.note_totals()
            with self.subTest(noted):
                self.assertEqual([noted], [
                    name for name in ('h1', 'h2')
                    if self.seen.window.began(name) > 0])

    def test_host_is_described_after_the_first_refresh(self):
        self.assertEqual({}, self.seen.describe_host('h1'))
        self.seen.refresh()
        self.assertEqual({'aggregates': ['agg'], 'total': fakes.TOTAL},
                         self.seen.describe_host('h1'))

    def test_failed_refresh_keeps_the_old_facts(self):
        self.seen.refresh()
        self.cloud.down = True
        self.assertRaises(cloud_errors.CloudError, self.seen.refresh)
        self.assertEqual({'h1', 'h2'}, set(self.seen.snapshot.hosts))

    def test_no_cluster_is_built_from_old_facts(self):
        everywhere = scope.ResolvedScope(frozenset({'h1', 'h2'}))
        locks = self.history.locks()
        self.assertRaises(cloud_errors.CloudError, self.seen.cluster,
                          everywhere, locks)
        self.seen.refresh()
        self.report('h1')
        found = self.seen.cluster(everywhere, locks)
        self.assertTrue(found.hosts['h1'].usable)
        self.assertFalse(found.hosts['h2'].usable)
        self.now += 121
        self.assertRaises(cloud_errors.CloudError, self.seen.cluster,
                          everywhere, locks)

    def test_other_policies_close_a_host(self):
        self.seen.refresh()
        self.report('h1')
        for policy in (['cpu <= 90% for 10s'], ['nonsense']):
            settings.CONF.set_override('policy', policy,
                                       'secondary_scheduler')
            found = self.seen.cluster(scope.ResolvedScope(frozenset({'h1'})),
                                      self.history.locks())
            self.assertFalse(found.hosts['h1'].usable)

    def test_cluster_has_the_constraints_of_the_cloud(self):
        one, other = map(fakes.uid, (1, 2))
        self.cloud.groups = [
            ServerGroup('g', False, frozenset({one, other, 'vm'})),
            ServerGroup('of primaries', True, frozenset({'vm', 'more'}))]
        self.cloud.primaries = {'vm': 'h2', 'more': 'h1'}
        with mock.patch.object(self.cloud, 'primary_hosts',
                               wraps=self.cloud.primary_hosts) as asked:
            self.seen.refresh()
        # Primaries are looked up only beside secondaries.
        asked.assert_called_once_with(['vm'])
        with tempfile.NamedTemporaryFile('w', suffix='.yaml') as file:
            settings.CONF.set_override('constraints_file', file.name,
                                       'secondary_watcher')
            file.write(f'- root: {{instances: [{one}]}}')
            file.flush()
            self.report('h1')
            found = self.seen.cluster(scope.ResolvedScope(frozenset({'h1'})),
                                      self.history.locks())
        both = frozenset({one, other})
        self.assertEqual(
            (Gather(both), Fence(both, frozenset({'h2'})),
             Root(frozenset({one}))), found.constraints)
        # An operator can repeat the decision with this document.
        self.assertEqual(found.constraints, model_documents.read_model(
            json.dumps(model_documents.write_model(found))).constraints)

    def test_reported_servers_of_deleted_flavors_are_looked_up(self):
        self.seen.refresh()
        hidden = fakes.server(3, 'h1')
        self.cloud.known[hidden.uuid] = hidden
        self.servers.append(hidden)
        self.servers.append(fakes.server(4, 'h1'))   # unknown to Nova
        self.report('h1')
        listed = {s.uuid: s for s in self.servers[:2]}
        with mock.patch.object(self.cloud, 'servers',
                               side_effect=lambda: dict(listed)):
            with mock.patch.object(self.cloud, 'server',
                                   wraps=self.cloud.server) as asked:
                self.seen.refresh_servers()
                self.assertIn(fakes.uid(3), self.seen.snapshot.servers)
                self.assertNotIn(fakes.uid(4), self.seen.snapshot.servers)
                self.seen.refresh_servers()
        strangers = [c for c in asked.call_args_list
                     if c[0][0] == fakes.uid(4)]
        self.assertEqual(1, len(strangers))

    def test_decision_refreshes_its_hosts_only(self):
        self.seen.refresh()
        self.cloud.change(1, status='SUSPENDED')
        self.cloud.change(2, status='SUSPENDED')
        new = fakes.server(3, 'h1')
        self.cloud.known[new.uuid] = new
        with mock.patch.object(self.cloud, 'servers') as every:
            self.seen.refresh_hosts(['h1'])
        every.assert_not_called()
        self.assertEqual(
            {fakes.uid(1): 'SUSPENDED', fakes.uid(2): 'ACTIVE',
             fakes.uid(3): 'ACTIVE'},
            {k: s.status for k, s in self.seen.snapshot.servers.items()})

    def test_hosts_confirmed_by_their_agent_are_not_refreshed(self):
        def asked(*names):
            with mock.patch.object(self.cloud, 'servers_on',
                                   wraps=self.cloud.servers_on) as on:
                self.seen.refresh_hosts(names)
            return [one[0][0] for one in on.call_args_list]

        down = fakes.server(4, 'h1', status='SUSPENDED')
        self.cloud.known[down.uuid] = down
        self.seen.refresh()
        self.assertEqual(['h1'], asked('h1'), 'no report')
        self.report('h1')
        self.assertEqual([], asked('h1'))
        self.assertEqual(['h2'], asked('h1', 'h2'))
        self.now += 16
        self.assertEqual(['h1'], asked('h1'), 'too long ago')
        self.seen.refresh()
        self.servers.append(fakes.server(3, 'h1'))
        self.report('h1')
        self.assertEqual(['h1'], asked('h1'), 'the agent sees one more')
        self.servers.pop()
        self.report('h1')
        self.cloud.change(1, task_state='suspending')
        self.seen.refresh()
        self.assertEqual(['h1'], asked('h1'), 'an operation is under way')

    def test_servers_that_left_the_hosts_of_a_decision_are_found(self):
        gone = fakes.server(3, 'h1')
        self.cloud.known[gone.uuid] = gone
        self.seen.refresh()
        self.cloud.change(1, host='h2')
        del self.cloud.known[gone.uuid]
        self.seen.refresh_hosts(['h1'])
        self.assertEqual(
            {fakes.uid(1): 'h2', fakes.uid(2): 'h2'},
            {k: s.host for k, s in self.seen.snapshot.servers.items()})
        # The servers of a cleared host are listed, not requested one by one.
        for number in range(10, 31):
            server = fakes.server(number, 'h1')
            self.cloud.known[server.uuid] = server
        self.seen.refresh()
        for number in range(10, 31):
            self.cloud.change(number, host='h2')
        with mock.patch.object(self.cloud, 'server') as singly:
            self.seen.refresh_hosts(['h1'])
        singly.assert_not_called()
        self.assertEqual({'h2'}, {
            s.host for s in self.seen.snapshot.servers.values()})

    def test_many_or_unnamed_hosts_are_refreshed_by_one_list(self):
        self.seen.refresh()
        for names in ((), ('h1', 'h2', 'h3')):
            with mock.patch.object(self.cloud, 'servers_on') as on:
                self.seen.refresh_hosts(names)
            on.assert_not_called()
