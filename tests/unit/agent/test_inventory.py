# SPDX-License-Identifier: Apache-2.0

import json
import time
import unittest
from unittest import mock

from keystoneauth1 import exceptions as ks_exceptions
from oslo_config import cfg
import requests

from secondary_scheduler.agent import inventory
from secondary_scheduler.conf import agent as agent_conf
from secondary_scheduler.model import vocabulary

ROOT = '11111111-0000-4000-8000-000000000000'
CHILD = vocabulary.child_provider_uuid(ROOT)


def of(share):
    """Return a share of slots, which other classes follow."""
    return {vocabulary.SLOT: share}


class FakeAnswer:
    def __init__(self, status, body=None):
        self.status_code, self._body, self.text = status, body, str(body)

    def json(self):
        if isinstance(self._body, str):
            return json.loads(self._body)
        return self._body


class FakePlacement:
    """The part of Placement that the agent uses."""

    def __init__(self):
        self.root = True
        self.child = True
        self.error = None
        self.generation = 5
        self.conflicts = 0
        self.put_status = 200
        self.refusal = None
        self.traits = []
        self.consumers = []
        self.puts = []
        self.inventories = {
            vocabulary.SLOT: {'total': 4, 'reserved': 4, 'max_unit': 4},
            vocabulary.VCPU: {'total': 6, 'reserved': 6, 'max_unit': 6}}

    def request(self, url, method, headers, raise_exc, json=None,
                rate_semaphore=None):
        if self.error:
            raise self.error
        if url.startswith('/resource_providers?name='):
            found = [{'uuid': ROOT, 'parent_provider_uuid': None}]
            return FakeAnswer(200, {
                'resource_providers': found if self.root else []})
        if not self.child:
            return FakeAnswer(404)
        assert CHILD in url, url
        if url.endswith('/traits'):
            return FakeAnswer(200, {'traits': self.traits})
        if url.endswith('/allocations'):
            return FakeAnswer(200, {'allocations': dict.fromkeys(
                self.consumers, {})})
        if method == 'PUT':
            self.puts.append(json)
            if self.put_status != 200:
                return FakeAnswer(self.put_status, self.refusal)
            if self.conflicts or (json['resource_provider_generation']
                                  != self.generation):
                self.conflicts = max(0, self.conflicts - 1)
                self.generation += 1
                return FakeAnswer(409)
            self.generation += 1
            self.inventories = json['inventories']
        return FakeAnswer(200, {
            'resource_provider_generation': self.generation,
            'inventories': self.inventories})


class InventoryTestCase(unittest.TestCase):
    def setUp(self):
        self.now = 0.0
        self.placement = FakePlacement()
        self.inventory = inventory.Inventory(
            self.placement, lambda: 'node1', lambda: self.now)

    def reserved(self):
        return [one['reserved']
                for one in self.placement.inventories.values()]


class UpdateTest(InventoryTestCase):
    def test_amounts_follow_the_share(self):
        self.assertTrue(self.inventory.update(of(0.5), []))
        self.assertEqual([2, 3], self.reserved())
        self.assertEqual(4, self.inventory.slots())
        self.assertEqual({vocabulary.SLOT: 2, vocabulary.VCPU: 3},
                         self.inventory.allowed)
        self.inventory.update(of(0.5), [])
        self.assertEqual(1, len(self.placement.puts))
        self.inventory.update(of(0.0), [])
        self.assertEqual([4, 6], self.reserved())

    def test_each_resource_class_has_its_own_share(self):
        self.placement.inventories[vocabulary.MEMORY_MB] = {
            'total': 1000, 'reserved': 0, 'max_unit': 1000}
        self.assertEqual(0, self.inventory.memory_mb())
        self.inventory.update({vocabulary.SLOT: 0.5,
                               vocabulary.MEMORY_MB: 0.1}, [])
        self.assertEqual([2, 3, 900], self.reserved())
        self.assertEqual(1000, self.inventory.memory_mb())
        self.placement.traits = [sorted(vocabulary.CLOSING_TRAITS)[0]]
        self.now += 61
        self.inventory.update({vocabulary.SLOT: 0.5,
                               vocabulary.MEMORY_MB: 0.1}, [])
        self.assertEqual([4, 6, 1000], self.reserved())

    def test_number_of_slots_is_exact(self):
        for slots in range(5):
            self.inventory.update(of(slots / 4), [])
            self.assertEqual(4 - slots, self.reserved()[0])

    def test_update_is_repeated_after_conflicts(self):
        self.placement.conflicts = 2
        self.assertTrue(self.inventory.update(of(1.0), []))
        self.assertEqual([0, 0], self.reserved())
        self.placement.conflicts = 99
        self.assertFalse(self.inventory.update(of(0.0), []))
        self.assertIn('again and again', self.inventory.state)

    def test_conflict_that_lasts_is_not_repeated(self):
        self.placement.put_status = 409
        for code, times in (('placement.concurrent_update', 4),
                            ('placement.inventory.inuse', 1),
                            ('placement.undefined_code', 1)):
            with self.subTest(code):
                self.placement.puts.clear()
                self.placement.refusal = {'errors': [{
                    'code': code, 'detail': 'Why.'}]}
                self.now += 61
                self.assertFalse(self.inventory.update(of(1.0), []))
                self.assertEqual(times, len(self.placement.puts))
                if times == 1:
                    self.assertIn(code, self.inventory.state)

    def test_missing_provider_is_looked_up_each_minute(self):
        for name in ('root', 'child'):
            setattr(self.placement, name, False)
            self.assertFalse(self.inventory.update(of(1.0), []))
            setattr(self.placement, name, True)
            self.now += 30
            self.assertFalse(self.inventory.update(of(1.0), []))
            self.now += 31
            self.assertTrue(self.inventory.update(of(1.0), []))
            self.now += 61

    def test_unreachable_placement_offers_nothing(self):
        for error in (ks_exceptions.ConnectFailure('no'), ValueError('x')):
            self.now += 61
            self.placement.error = error
            self.assertFalse(self.inventory.update(of(1.0), []))
            self.assertEqual(0, self.inventory.slots())

    def test_answer_of_a_proxy_is_reported(self):
        for page in ('<html>Maintenance</html>', '[]', '{"versions": []}'):
            with self.subTest(page), mock.patch.object(
                    self.placement, 'request',
                    lambda *_args, page=page, **_named: FakeAnswer(200, page)):
                self.now += 60
                self.assertFalse(self.inventory.update(of(1.0), []))
                self.assertIn('this address does not answer as Placement '
                              'does', self.inventory.state)

    def test_rejected_update_is_reported(self):
        self.placement.put_status = 403
        self.assertFalse(self.inventory.update(of(1.0), []))
        self.assertIn('403', self.inventory.state)
        self.assertEqual({}, self.inventory.allowed)

    def test_provider_without_inventory_is_not_updated(self):
        self.placement.inventories = {}
        self.assertTrue(self.inventory.update(of(1.0), []))
        self.assertEqual([], self.placement.puts)

    def test_closed_provider_stays_closed_until_its_trait_is_removed(self):
        for traits in ([vocabulary.CLOSED_TRAIT],
                       [vocabulary.SWITCHED_OFF_TRAIT],
                       sorted(vocabulary.CLOSING_TRAITS)):
            self.inventory.update(of(1.0), [])
            self.placement.traits = traits
            self.placement.generation += 1
            self.now += 61
            self.inventory.update(of(1.0), [])
            self.assertEqual([4, 6], self.reserved())
            self.assertEqual('closed on purpose', self.inventory.state)
            self.placement.traits = ['CUSTOM_OTHER']
            self.now += 61
            self.inventory.update(of(1.0), [])
            self.assertEqual([0, 0], self.reserved())

    def test_conflict_detects_a_provider_that_was_switched_off(self):
        """The conflict is found before the look-up in the next minute."""
        self.inventory.update(of(0.5), [])
        self.placement.traits = [vocabulary.SWITCHED_OFF_TRAIT]
        self.placement.generation += 2
        for one in self.placement.inventories.values():
            one['reserved'] = one['total']
        self.inventory.update(of(1.0), [])
        self.assertEqual([4, 6], self.reserved())

    def test_unreadable_traits_keep_the_provider_closed(self):
        answers = self.placement.request

        def request(url, *args, **kwargs):
            if url.endswith('/traits'):
                return FakeAnswer(503)
            return answers(url, *args, **kwargs)

        with mock.patch.object(self.placement, 'request', request):
            self.assertFalse(self.inventory.update(of(1.0), []))
        self.assertEqual([], self.placement.puts)
        self.assertIn('503', self.inventory.state)


class ConsumersTest(InventoryTestCase):
    def look(self, running, others=()):
        self.inventory.update(of(1.0), running, others)
        self.now += 31

    def test_secondary_without_allocation_closes_the_host(self):
        self.placement.consumers = ['a']
        self.look(['a', 'rogue'])
        self.assertEqual(frozenset(), self.inventory.alarm)
        self.look(['a', 'rogue'])
        self.assertEqual({'rogue'}, self.inventory.alarm)
        self.assertEqual([4, 6], self.reserved())
        self.look(['a'])
        self.assertEqual(frozenset(), self.inventory.alarm)
        self.assertEqual([0, 0], self.reserved())

    def test_allocation_of_an_unrecognized_secondary_closes_the_host(self):
        self.placement.consumers = ['a', 'unread', 'suspended']
        self.look(['a'], ['unread', 'primary'])
        self.assertEqual(frozenset(), self.inventory.alarm)
        with self.assertLogs(inventory.LOG.logger, 'CRITICAL') as logs:
            self.look(['a'], ['unread', 'primary'])
        self.assertIn('without limits', logs.output[0])
        self.assertEqual({'unread'}, self.inventory.alarm)
        self.assertEqual([4, 6], self.reserved())
        self.look(['a', 'unread'], ['primary'])
        self.assertEqual(frozenset(), self.inventory.alarm)
        self.assertEqual([0, 0], self.reserved())

    def test_unrecognized_secondary_explains_no_missing_allocation(self):
        self.placement.consumers = ['unread']
        for _ in range(2):
            self.look(['rogue'], ['unread'])
        self.assertEqual({'rogue', 'unread'}, self.inventory.alarm)

    def test_suspended_and_migrating_instances_raise_no_alarm(self):
        self.placement.consumers = ['suspended', 'a', 'migration']
        self.assertIsNone(self.inventory.consumers)
        for _ in range(10):
            self.look(['a', 'leaving'])
        self.assertEqual(frozenset(), self.inventory.alarm)
        self.assertEqual({'suspended', 'a', 'migration'},
                         self.inventory.consumers)
        for _ in range(15):
            self.look(['a', 'leaving'])
        self.assertEqual({'leaving'}, self.inventory.alarm)


class HysteresisTest(unittest.TestCase):
    def test_hysteresis_falls_at_once_and_rises_later(self):
        window = inventory.Hysteresis(10.0)
        for now, share, left in (
                (0.0, 1.0, 0.0), (9.0, 1.0, 0.0), (10.0, 1.0, 1.0),
                (11.0, 0.25, 0.25), (20.0, 0.5, 0.25), (22.0, 0.75, 0.5)):
            self.assertEqual({'a': left, 'b': 1.0 if now >= 10 else 0.0},
                             window.push(now, {'a': share, 'b': 1.0}))


class AdapterTest(unittest.TestCase):
    def setUp(self):
        conf = cfg.ConfigOpts()
        agent_conf.register_placement_opts(conf)
        conf([], default_config_files=[])
        conf.set_override('auth_type', 'none', 'placement')
        conf.set_override('endpoint_override', 'http://nowhere', 'placement')
        self.adapter = inventory.placement_adapter(conf)

    def test_requests_have_a_time_limit(self):
        self.assertEqual(30, self.adapter.session.timeout)

    def test_clock_set_back_delays_no_request(self):
        answer = requests.Response()
        answer.status_code = 404
        self.adapter.session.session = mock.Mock()
        self.adapter.session.session.request.return_value = answer
        made = inventory.Inventory(self.adapter, lambda: 'node1')
        before = time.time() - 3600
        with mock.patch('time.time', return_value=before), mock.patch(
                'time.sleep', side_effect=AssertionError('it waits')):
            made.update(1.0, [])
        self.assertIn('HTTP 404', made.state)
