# SPDX-License-Identifier: Apache-2.0

"""Demand of instances and capacity of hosts, in two ledgers."""

import dataclasses
import unittest

from secondary_scheduler.estimation.demand import (
    UNLIMITED,
    Ledgers,
    wanted_cpu,
)
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import HostPolicy, InstanceState
from tests.unit.decisions import worlds
from tests.unit.decisions.worlds import cpu_policy, host, slots_policy, vm

NO_MARGIN = LoadLimits(margin=0.0)


class WantedCpuTest(unittest.TestCase):

    def test_throttled_instance_wants_more_than_it_uses(self):
        self.assertEqual(2.0, wanted_cpu(vm('a', 'h', cpu=0.1,
                                            wanted_cpu=2.0)))

    def test_instance_without_limits_wants_what_it_uses(self):
        self.assertEqual(0.7, wanted_cpu(vm('a', 'h', cpu=0.7)))

    def test_demand_of_a_running_instance_may_be_unknown(self):
        for state in (InstanceState.ACTIVE, InstanceState.BUSY,
                      InstanceState.OTHER):
            self.assertIsNone(wanted_cpu(vm('a', 'h', state)))

    def test_instance_that_is_down_counts_with_its_vcpus_at_most(self):
        down = vm('a', 'h', InstanceState.SUSPENDED, vcpus=3)
        self.assertEqual(3.0, wanted_cpu(down))
        self.assertEqual(0.5, wanted_cpu(dataclasses.replace(
            down, wanted_cpu=0.5)))


class LedgersTest(unittest.TestCase):

    def ledgers(self, *things, limits=NO_MARGIN):
        return Ledgers(worlds.cluster(*things), limits)

    def named(self, ledgers, amounts):
        return dict(zip(ledgers.dimensions, amounts, strict=True))

    def test_suspended_instance_holds_claims_but_no_use(self):
        ledgers = self.ledgers(host('h'))
        one = vm('a', 'h', InstanceState.SUSPENDED, vcpus=2, disk_gb=7,
                 wanted_cpu=1.5)
        claims = {'claimed_memory_mb': 256, 'claimed_vcpus': 2,
                  'claimed_disk_gb': 7, 'claimed_slots': 1}
        self.assertEqual({**claims, 'cpu': 0},
                         self.named(ledgers, ledgers.held(one)))
        self.assertEqual({**claims, 'cpu': 1500},
                         self.named(ledgers, ledgers.demand(one)))

    def test_claims_count_against_the_inventory_beside_reserved(self):
        one = host('h', reserved={vocabulary.SLOT: 3})
        ledgers = self.ledgers(one)
        found = self.named(ledgers, ledgers.capacity(one))
        self.assertEqual(5, found['claimed_slots'])
        self.assertEqual(4096, found['claimed_memory_mb'])

    def test_use_counts_against_policies_beside_primaries(self):
        # 100 CPUs: the policy leaves 90 - 20 - 1 percent.
        one = host('h', 20.0)
        for limits, left in ((LoadLimits(), 69_000), (NO_MARGIN, 70_000)):
            ledgers = self.ledgers(one, limits=limits)
            self.assertEqual(left, self.named(
                ledgers, ledgers.capacity(one))['cpu'])

    def test_demand_is_at_most_a_large_part_of_the_own_host(self):
        # The policy leaves 0.35 x (90 - 20) percent.
        small = host('small', 20.0, cpus=0.35)
        crowded = host('crowded', 89.0, cpus=1.0)
        large = host('large', 10.0, cpus=4.0)
        shut = host('shut', 0.0, cpus=9.0, usable=False)
        ledgers = self.ledgers(small, crowded, large, shut)
        for where, most in (('small', 0.196), ('crowded', 0.1),
                            ('large', 2.56), (None, 2.56), ('gone', 8.0)):
            down = vm('a', where, InstanceState.SUSPENDED, wanted_cpu=8.0)
            self.assertAlmostEqual(most, ledgers.cpu(down), msg=where)
            self.assertEqual(0.01, ledgers.cpu(
                dataclasses.replace(down, wanted_cpu=0.01)))
        self.assertIsNone(ledgers.cpu(vm('a', 'small')))

    def test_demand_grows_up_to_the_vcpus_and_the_host(self):
        ledgers = self.ledgers(host('h', 0.0, cpus=4.0))
        for wanted, vcpus, growth in (
                (0.5, 2, 1500), (2.0, 2, 0), (2.5, 2, 0), (1.0, 8, 1880),
                (None, 2, 0)):
            self.assertEqual(growth, ledgers.growth(vm(
                'a', 'h', wanted_cpu=wanted, vcpus=vcpus)))

    def test_strictest_policy_of_a_resource_counts(self):
        one = host('h', 20.0, policies=(
            cpu_policy(90.0), cpu_policy(60.0), slots_policy(3)))
        ledgers = self.ledgers(one, vm('a', 'h'))
        found = self.named(ledgers, ledgers.capacity(one))
        self.assertEqual((40_000, 3), (found['cpu'], found['slots']))
        self.assertEqual(1, self.named(ledgers, ledgers.demand(
            vm('b', 'h', cpu=1.0)))['slots'])

    def test_resource_without_a_policy_on_a_host_is_unlimited_there(self):
        ledgers = self.ledgers(host('h'), host('i', policies=(
            cpu_policy(), slots_policy(3))))
        self.assertEqual(UNLIMITED, self.named(ledgers, ledgers.capacity(
            ledgers.cluster.hosts['h']))['slots'])

    def test_other_measured_resources_count_in_their_units(self):
        policy = HostPolicy('net_out <= 75% for 9s', 'net_out', 75.0, 9)
        one = host('h', policies=(policy,), usage={'net_out': 25.0},
                   capacities={'net_out': 1250.0})
        ledgers = self.ledgers(one)
        self.assertEqual(625_000, self.named(
            ledgers, ledgers.capacity(one))['net_out'])
        for usage, amount in (({'net_out': 2.5}, 2_500), ({}, 125_000)):
            self.assertEqual(amount, self.named(ledgers, ledgers.demand(
                vm('a', 'h', cpu=1.0, usage=usage)))['net_out'])

    def test_capacity_is_unknown_without_policies_or_reports(self):
        policy = HostPolicy('mem <= 75% for 9s', 'mem', 75.0, 9)
        for one in (host('h', None), host('h', policies=()),
                    host('h', policies=(policy,)),
                    host('h', policies=(policy,), usage={'mem': 5.0},
                         capacities={'mem': None})):
            ledgers = self.ledgers(one)
            self.assertIsNone(ledgers.capacity(one))

    def test_item_is_shared_by_its_hosts(self):
        policy = HostPolicy('net_out <= 80% for 9s', 'net_out', 80.0, 9)
        hosts = [host(name, capacities={'net_out': 100.0})
                 for name in 'ab']
        # The item takes 200 MB/s; 80 % less 30 % leave 100, of which 60 are
        # taken.
        uplink = worlds.Item('uplink', ('a', 'b'), (policy,), 0.5,
                             {'net_out': 30.0})
        ledgers = self.ledgers(*hosts, uplink)
        index = ledgers.dimensions.index('net_out')
        taken = {'a': [0] * 6, 'b': [0] * 6}
        taken['a'][index] = 60_000
        capacity = {one.name: ledgers.capacity(one) for one in hosts}
        self.assertEqual(set(), ledgers.share_items(capacity, taken))
        self.assertEqual([80_000, 20_000], [
            capacity[name][index] for name in 'ab'])

    def test_hosts_of_an_item_with_unknown_use_are_unknown(self):
        policy = HostPolicy('net_out <= 80% for 9s', 'net_out', 80.0, 9)
        ledgers = self.ledgers(host('a'), host('b'), worlds.Item(
            'uplink', ('a',), (policy,)))
        capacity = {name: [9] * 6 for name in 'ab'}
        self.assertEqual({'a'}, ledgers.share_items(
            capacity, {name: [0] * 6 for name in 'ab'}))

    def test_holds_of_the_lease_schedule_count_in_both_ledgers(self):
        one = host('h', held={vocabulary.VCPU: 2, vocabulary.SLOT: 1,
                              vocabulary.MEMORY_MB: 512},
                   policies=(cpu_policy(), slots_policy(3)))
        ledgers = self.ledgers(one)
        self.assertEqual(
            {'claimed_memory_mb': 512, 'claimed_vcpus': 2,
             'claimed_disk_gb': 0, 'claimed_slots': 1, 'cpu': 2000,
             'slots': 1}, self.named(ledgers, ledgers.kept_free(one)))
