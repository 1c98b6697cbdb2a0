# SPDX-License-Identifier: Apache-2.0

"""Secondaries do not count when hosts are weighed."""

import math
import random
import unittest
from unittest import mock

from nova import objects
from nova.scheduler import weights as nova_weights

from secondary_scheduler.model.arrivals import Arrival
from secondary_scheduler.nova import report_books, secondary_usage, weights
from tests.unit.nova import fakes, test_secondary_usage


class WeightsCase(unittest.TestCase):

    def setUp(self):
        fakes.configure(self)
        self.records = test_secondary_usage.FakeRecords()
        self.books = report_books.ReportBooks()
        for patch in (
            mock.patch.object(report_books, '_books', self.books),
            mock.patch.object(
                self.books, '_listen', return_value=mock.Mock()
            ),
            mock.patch.object(
                weights,
                'USAGE',
                secondary_usage.SecondaryUsage(lambda: 1.0, self.records),
            ),
        ):
            patch.start()
            self.addCleanup(patch.stop)
        self.handler = nova_weights.HostWeightHandler()

    def weigh(self, classes, hosts, spec=None):
        """Return Nova's (host, weight), the best first."""
        return [(one.obj.host, one.weight) for one in
                self.handler.get_weighed_objects(
                    [cls() for cls in classes], hosts,
                    spec or fakes.spec(fakes.flavor()))]


class StockTest(WeightsCase):
    """Weights of primaries, with and without secondaries on the hosts."""

    def setUp(self):
        super().setUp()
        # As stevedore would, if the package were installed.
        patch = mock.patch.object(
            weights.filters, 'load_plugins',
            return_value=[weights.SecondaryHeadroomWeigher,
                          weights.SecondaryInterferenceWeigher])
        patch.start()
        self.addCleanup(patch.stop)

    def world(self, seed, hypervisor):
        """Unequal hosts, without and with secondaries."""
        rng = random.Random(seed)
        without, with_them, number = [], [], 0
        # Nova never uses a UUID twice; the usage relies on that.
        weights.USAGE = secondary_usage.SecondaryUsage(
            lambda: 1.0, self.records)
        for n in range(12):
            size = {'name': f'node{n}', 'vcpus': rng.choice((8, 16, 64)),
                    'ram': rng.choice((8192, 65536)),
                    'disk': rng.choice((50, 500)), 'hypervisor': hypervisor}
            primaries, ours = [], []
            for _ in range(rng.randrange(4)):
                number += 1
                primaries.append(fakes.instance(number, fakes.flavor(
                    rng.randrange(1, 5), rng.choice((512, 2048)),
                    rng.choice((0, 10)))))
            for _ in range(rng.randrange(8)):
                number += 1
                ours.append(fakes.instance(number, fakes.secondary_flavor(
                    rng.randrange(1, 9), rng.choice((512, 4096)),
                    rng.choice((0, 40)))))
            io_ops, failed = rng.randrange(2), rng.choice((0, 0, 2))
            more_io = min(len(ours), rng.randrange(3))
            more_failed = rng.choice((0, 5))
            without.append(fakes.host(
                **size, instances=primaries, failed_builds=failed,
                io_workload=min(io_ops, len(primaries))))
            with_them.append(fakes.host(
                **size, instances=primaries + ours, updated=1000,
                failed_builds=failed + more_failed,
                io_workload=min(io_ops, len(primaries)) + more_io))
            self.remember(f'node{n}', primaries, ours, more_io, failed,
                          more_failed)
            if hypervisor != 'fake':
                # GiB of primaries removed after the last measurement.
                gone = rng.choice((0, 10, 100))
                for host, young in ((without[-1], 0),
                                    (with_them[-1], more_io)):
                    self.measure(host, gone, ours[:young])
        return without, with_them

    def measure(self, host, gone, later):
        """Let a host measure its disk before some secondaries came."""
        measured = (host.free_disk_mb // 1024 - gone
                    + sum(one.flavor.root_gb for one in later))
        self.records.measured[host.host] = measured
        host.free_disk_mb = min(host.free_disk_mb, measured * 1024)

    def remember(self, name, primaries, ours, young, failed, more_failed):
        """Put into the database what the scheduler does not know."""
        rows = [test_secondary_usage.record(
            int(one.uuid[-12:], 16), secondary=one in ours,
            vcpus=one.flavor.vcpus, ram=one.flavor.memory_mb,
            disk=one.flavor.root_gb,
            # The youngest instances of both kinds count as I/O.
            born=100 - k if one in primaries
            else (200 + k if one in ours[:young] else k))
            for k, one in enumerate(primaries + ours)]
        self.records.hosts[name] = rows
        failures = []
        for k in range(failed + more_failed):
            uuid = fakes.uuid(10 ** 6 + k + 1000 * int(name[4:]))
            self.records.instances[uuid] = test_secondary_usage.record(
                int(uuid[-12:], 16), secondary=k < more_failed)
            failures.append((500 - k, uuid))
        self.records.failed[name] = failures

    def test_primaries_get_the_same_weights_with_secondaries(self):
        for hypervisor in ('QEMU', 'fake'):
            for seed in range(25):
                without, with_them = self.world(seed, hypervisor)
                stock = self.weigh(nova_weights.all_weighers(), without)
                self.assertEqual(stock, self.weigh(weights.all_weighers(),
                                                   with_them))
        # Otherwise this test proves nothing.
        self.assertNotEqual(
            stock, self.weigh(nova_weights.all_weighers(), with_them))

    def test_weights_without_secondaries_are_novas(self):
        hosts, _ = self.world(1, 'QEMU')
        for host in hosts:
            host.stats.update(io_workload=0, failed_builds=0)
        self.assertEqual(self.weigh(nova_weights.all_weighers(), hosts),
                         self.weigh(weights.all_weighers(), hosts))

    def test_exceptions_of_ours_leave_novas_weights(self):
        boom = mock.Mock(side_effect=RuntimeError('boom'))
        _, hosts = self.world(2, 'QEMU')
        stock = self.weigh(nova_weights.all_weighers(), hosts)
        for where, name in ((weights.USAGE, 'uses'), (report_books, 'book'),
                            (weights, '_find_uses')):
            with self.subTest(name), mock.patch.object(where, name, boom):
                self.assertEqual(stock, self.weigh(weights.all_weighers(),
                                                   hosts))
        with mock.patch.object(weights, '_find_uses', return_value='nonsense'):
            self.assertEqual(stock, self.weigh(weights.all_weighers(), hosts))

    def test_weighers_are_replaced_in_place(self):
        stock = nova_weights.all_weighers()
        ours = weights.all_weighers()
        self.assertEqual(len(stock) + 2, len(ours))
        for mine, theirs in zip(ours, stock, strict=False):
            self.assertTrue(issubclass(mine, theirs))
        self.assertEqual(6, sum(m is not t for m, t in
                                zip(ours, stock, strict=False)))
        self.assertIs(weights.SecondaryHeadroomWeigher, ours[-2])

    def test_six_weighers_query_once(self):
        hosts = [fakes.host(f'node{n}', num_instances=1) for n in (1, 2)]
        self.weigh(weights.all_weighers(), hosts)
        self.assertEqual([('hosts', 'node1', 'node2')], self.records.asked)


class HeadroomTest(WeightsCase):

    def headroom(self, spec=None, **reports):
        for name, fields in reports.items():
            self.books.book.accept(fakes.report(name, **fields))
        hosts = [fakes.host(name) for name in reports]
        return dict(self.weigh(
            [weights.SecondaryHeadroomWeigher], hosts,
            spec or fakes.spec(fakes.secondary_flavor())))

    def test_largest_share_wins(self):
        found = self.headroom(
            calm={'primary': 10.0, 'instances': 1},
            busy={'primary': 85.0}, full={'primary': 10.0, 'instances': 7},
            over={'primary': 95.0})
        self.assertEqual(['calm', 'full', 'busy', 'over'], sorted(
            found, key=found.__getitem__, reverse=True))
        self.assertEqual((1.0, 0.0), (found['calm'], found['over']))

    def test_instance_counts_before_its_agent_reports_it(self):
        for name in ('same', 'sent', 'seen'):
            self.books.book.accept(fakes.report(
                name, primary=10.0, instances=int(name == 'seen')))
        one = [fakes.instance(1, fakes.secondary_flavor())]
        hosts = [fakes.host('same'), fakes.host('sent', instances=one),
                 fakes.host('seen', instances=one)]
        found = dict(self.weigh([weights.SecondaryHeadroomWeigher], hosts,
                                fakes.spec(fakes.secondary_flavor())))
        self.assertEqual({'same': 1.0, 'sent': 0.0, 'seen': 0.0}, found)

    def test_headroom_of_a_primary_is_zero(self):
        self.assertEqual({0.0}, set(self.headroom(
            spec=fakes.spec(fakes.flavor()),
            calm={'primary': 0.0}, busy={'primary': 80.0}).values()))

    def test_share_is_in_cpus(self):
        report = fakes.report(primary=40.0, instances=1, cpus=8.0)
        self.assertEqual(2.0, weights._share(fakes.host(), report))
        self.assertEqual(0.0, weights._share(fakes.host(), None))
        self.assertEqual(0.0, weights._share(
            fakes.host(), fakes.report(primary=None)))
        host = fakes.host()
        host.num_instances += 2      # consumed by this request
        self.assertEqual(1.0, weights._share(host, report))
        self.books.book.accept(report)
        self.assertEqual(2.0, weights.SecondaryHeadroomWeigher(
            )._weigh_object(fakes.host(), None))

    def test_multiplier_is_an_option(self):
        weigher = weights.SecondaryHeadroomWeigher()
        host = fakes.host()
        self.assertEqual(1.0, weigher.weight_multiplier(host))
        fakes.configure(self, headroom_weight_multiplier=3.0)
        self.assertEqual(3.0, weigher.weight_multiplier(host))
        host.aggregates = None
        self.assertEqual(0.0, weigher.weight_multiplier(host))

    def test_exceptions_of_ours_weigh_nothing(self):
        with mock.patch.object(report_books, 'book',
                               side_effect=RuntimeError('boom')):
            self.assertEqual({0.0}, set(self.headroom(
                one={}, two={'primary': 1.0}).values()))


class InterferenceTest(WeightsCase):
    """Order of hosts by the predictions of agents."""

    SPEC = fakes.spec(fakes.secondary_flavor(**{
        'lifecycle:workload_class': 'web'}))

    def weights(self, spec=None, known=(), multiplier=1.0, **arrivals):
        """Return the weight of each host, by what its agent predicts."""
        if multiplier is not None:
            fakes.configure(self, interference_weight_multiplier=multiplier)
        for name, found in arrivals.items():
            if found is not None:
                self.books.book.accept(fakes.report(name, arrivals={
                    of: Arrival(*one) for of, one in found.items()}))
        hosts = [fakes.host(name, instances=known if name == 'node1' else ())
                 for name in arrivals]
        return dict(self.weigh([weights.SecondaryInterferenceWeigher], hosts,
                               spec or self.SPEC))

    def test_weight_is_the_performance_that_is_left(self):
        found = self.weights(
            one={'web': (1.0, 0.0)}, two={'web': (2.0, 0.0)},
            three={'web': (1.25, math.log(2))}, other={'web': (1.25, 0.0)})
        self.assertEqual(['one', 'other', 'two', 'three'], list(found))
        # Nova does not stretch small differences.
        self.assertAlmostEqual(0.2, found['one'] - found['other'])

    def test_order_is_novas_where_nothing_is_predicted(self):
        for spec, arrivals in (
                (self.SPEC, {'one': None, 'two': {}}),
                (self.SPEC, {'one': None, 'two': {'web': (2.0, 0.0)}}),
                (self.SPEC, {'one': {'web': (2.0, 0.0)}, 'two': {}}),
                (self.SPEC, {'one': {'db': (2.0, 0.0)}, 'two': {}}),
                (fakes.spec(fakes.secondary_flavor()),
                 {'one': {'web': (2.0, 0.0)}, 'two': {'web': (1.0, 0.0)}}),
                (fakes.spec(fakes.flavor(extra_specs={
                    'lifecycle:workload_class': 'web'})),
                 {'one': {'web': (2.0, 0.0)}, 'two': {'web': (1.0, 0.0)}})):
            with self.subTest(arrivals=arrivals):
                self.books.book._entries.clear()
                found = self.weights(spec, **arrivals)
                self.assertEqual(['one', 'two'], list(found))
                self.assertEqual(1, len(set(found.values())))

    def test_stale_predictions_do_not_count(self):
        with mock.patch.object(self.books.book, '_clock', return_value=4e9):
            found = self.weights(one={'web': (2.0, 0.0)},
                                 two={'web': (1.0, 0.0)})
        self.assertEqual({'one': 0.0, 'two': 0.0}, found)

    def test_host_without_prediction_is_neither_preferred_nor_avoided(self):
        self.assertEqual(['good', 'silent', 'bad'], list(self.weights(
            silent=None, bad={'web': (2.0, 0.0)}, good={'web': (1.0, 0.0)})))

    def test_class_of_image_and_flavor_needs_a_profile_of_both(self):
        image = fakes.uuid(8)
        key = f'{image}/flavor'
        arrivals = {'bad': {key: (2.0, 0.0), 'quiet': (1.0, 0.0)},
                    'good': {key: (1.0, 0.0), 'quiet': (2.0, 0.0)}}
        spec = fakes.spec(fakes.secondary_flavor(), image_id=image)
        self.assertEqual(['good', 'bad'], list(self.weights(spec, **arrivals)))
        # Properties of the image and hints are the tenant's, and do not count.
        wish = {'lifecycle:workload_class': ['quiet']}
        spec = fakes.spec(fakes.secondary_flavor(), image_id=fakes.uuid(9),
                          scheduler_hints=wish)
        self.assertEqual({0.0}, set(self.weights(spec, **arrivals).values()))

    def test_instances_since_the_report_count_like_the_new_one(self):
        ours = [fakes.instance(number, fakes.secondary_flavor())
                for number in range(2)]
        found = self.weights(known=ours, node1={'web': (2.0, 0.0)},
                             node2={'web': (4.0, 0.0)})
        self.assertEqual({'node1': 1 / 8, 'node2': 1 / 4}, found)

    def test_weigher_is_off_by_default_and_may_be_set_for_an_aggregate(self):
        self.assertEqual({'one': 0.0, 'two': 0.0}, self.weights(
            multiplier=None, one={'web': (2.0, 0.0)},
            two={'web': (1.0, 0.0)}))
        host = fakes.host()
        host.aggregates = [objects.Aggregate(
            metadata={'interference_weight_multiplier': '3'})]
        self.assertEqual(3.0, weights.SecondaryInterferenceWeigher(
            ).weight_multiplier(host))

    def test_exceptions_of_ours_weigh_nothing(self):
        with mock.patch.object(weights.request, 'workload_class',
                               side_effect=RuntimeError('boom')):
            self.assertEqual({0.0}, set(self.weights(
                one={'web': (2.0, 0.0)}, two={'web': (1.0, 0.0)}).values()))
