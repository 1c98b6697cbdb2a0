# SPDX-License-Identifier: Apache-2.0

import json
import unittest

from secondary_scheduler.model.arrivals import Arrival
from secondary_scheduler.model.reports import (
    HostReport,
    InstanceReport,
    PolicyReport,
    PolicyState,
)

POLICY = PolicyReport('cpu <= 90% for 10s', 'cpu', 90.0, 10, 95.0, 4,
                      PolicyState.VIOLATED)


def report(**changes):
    values = {
        'host': 'h', 'incarnation': 'a', 'seq': 7, 'time': 1e9,
        'policies_hash': '0' * 16, 'admission': False, 'reason': 'violated',
        'cpus': 2.0, 'memory_mb': 2048, 'cpu_total': 95.0,
        'cpu_primary': None, 'policies': (POLICY,),
        'instances': (InstanceReport('u', 5, 10.0, None, True),),
        'counters': {'floored_s': 1.5}, 'usage': {'mem': 61.5},
        'save_free_mb': 900, 'killed': {'u2': 'memory'}}
    return HostReport(**{**values, **changes})


class TestReport(unittest.TestCase):

    def test_report_survives_json(self):
        sent = report()
        self.assertEqual(sent, HostReport.from_dict(
            json.loads(json.dumps(sent.to_dict()))))

    def test_message_omits_default_values(self):
        sent = report(migration_mb_s=None).to_dict()
        self.assertEqual([{'uuid': 'u', 'priority': 5, 'cpu': 10.0,
                           'floored': True}], sent['instances'])
        self.assertNotIn('migration_mb_s', sent)

    def test_predictions_are_absent_unless_there_are_some(self):
        self.assertNotIn('arrivals', report().to_dict())
        sent = report(arrivals={'web': Arrival(1.2, 0.1)})
        read = HostReport.from_dict(json.loads(json.dumps(sent.to_dict())))
        self.assertEqual(sent, read)
        self.assertEqual(1.2, read.arrivals['web'].slowdown)

    def test_capacities_are_read(self):
        sent = report(capacities={'net_in': 1250.0})
        read = HostReport.from_dict(json.loads(json.dumps(sent.to_dict())))
        self.assertEqual(
            [2.0, 2048, 1250.0, None, 100.0],
            [read.capacity(one) for one in (
                'cpu', 'mem', 'net_in', 'disk_in', 'pressure')])

    def test_report_of_version_1_has_no_capacity_of_links(self):
        old = {**report().to_dict(), 'version': 1}
        read = HostReport.from_dict(old)
        self.assertEqual(report(), read)
        self.assertEqual([2.0, 2048, None], [
            read.capacity(one) for one in ('cpu', 'mem', 'net_in')])

    def test_violated_policies_are_listed(self):
        held = PolicyReport('slots <= 2 for 60s', 'slots', 2, 60, 1, 0,
                            PolicyState.HELD)
        self.assertEqual((POLICY,),
                         report(policies=(held, POLICY)).violated)

    def test_malformed_reports_are_rejected(self):
        good = report().to_dict()
        for change in ({'version': 3}, {'seq': 'seven'}, {'host': ''},
                       {'host': None}, {'time': 'now'}, {'admission': 1},
                       {'incarnation': 4}, {'unheard_of': 1},
                       {'policies': [{'policy': 'cpu'}]},
                       {'policies': [3]}, {'instances': [{}]},
                       {'instances': [{'uuid': 'u', 'priority': 5,
                                       'lease': 'l'}]},
                       {'cpu_primary': '3'}, {'cpus': None},
                       {'cpu_primary': float('nan')},
                       {'cpu_total': float('inf')}, {'cpus': 10 ** 400},
                       {'policies': [{**good['policies'][0],
                                      'threshold': 'low'}]},
                       {'instances': [{**good['instances'][0],
                                       'floored': 1}]},
                       {'policies': [{**good['policies'][0],
                                      'state': 'tired'}]},
                       {'save_free_mb': 1.5}, {'save_free_mb': 10 ** 20},
                       {'killed': None}, {'killed': {'u': 5}},
                       {'killed': {5: 'memory'}}, {'killed': ['u']},
                       {'usage': None}, {'usage': {'mem': 'much'}},
                       {'usage': {'mem': float('nan')}}, {'usage': [1]},
                       {'usage': {3: 1.0}}, {'cpus': 0.0},
                       {'capacities': {'net_in': -1.0}},
                       {'capacities': {'net_in': 1e-300}},
                       {'counters': {'floors': True}},
                       {'arrivals': None}, {'arrivals': {'web': [0.5, 0]}},
                       {'instances': [{**good['instances'][0],
                                       'usage': {'mem': 10 ** 400}}]}):
            with self.subTest(change), self.assertRaises(ValueError):
                HostReport.from_dict({**good, **change})
        for thing in ({}, {'version': 1}, None, 3, 'text'):
            with self.subTest(thing), self.assertRaises(ValueError):
                HostReport.from_dict(thing)
