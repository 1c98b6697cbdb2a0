# SPDX-License-Identifier: Apache-2.0

"""Circuit breaker."""

from secondary_scheduler.plans import operations
from secondary_scheduler.watcher import breaker, settings
from tests.unit.watcher import fakes

Kind = operations.OperationKind


def operation(number, kind, instance, lease=None, after=(), source='h1',
              target=None):
    return operations.Operation(
        number, kind, fakes.uid(instance), lease or f'l{instance}', source,
        target, after=after)


class BreakerTest(fakes.WatcherTestCase):
    def cut(self, allowed, *ops):
        return [o.id for o in breaker.within_breaker(
            operations.Plan(ops), allowed).operations]

    def test_breaker_drops_whole_leases_and_dependent_operations(self):
        plan = (operation(1, Kind.SUSPEND, 1, 'a'),
                operation(2, Kind.SUSPEND, 2, 'b'),
                operation(3, Kind.SUSPEND, 3, 'b'),
                operation(4, Kind.MIGRATE, 4, 'c', after=(3,)),
                operation(5, Kind.MIGRATE, 5, 'c'),
                operation(6, Kind.MIGRATE, 6, 'd'))
        self.assertEqual([1, 2, 3, 4, 5, 6], self.cut(3, *plan))
        self.assertEqual([1, 6], self.cut(2, *plan))
        self.assertEqual([6], self.cut(0, *plan))

    def test_breaker_limit_has_a_minimum_and_a_percentage(self):
        options = settings.CONF.secondary_watcher
        self.assertEqual(5, breaker.breaker_limit(options, 8))
        self.assertEqual(20, breaker.breaker_limit(options, 200))
