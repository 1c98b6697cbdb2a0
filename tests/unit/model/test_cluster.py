import unittest

from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import State
from tests.unit.decisions.worlds import (
    cluster,
    cpu_policy,
    host,
    slots_policy,
    vm,
)


class TestCluster(unittest.TestCase):

    def setUp(self):
        self.cluster = cluster(
            host('h1'), host('h2'),
            vm('b', 'h1', lease='l'), vm('a', 'h2', lease='l', vcpus=3),
            vm('c', 'h1', State.SUSPENDED, memory_mb=100))

    def test_on(self):
        self.assertEqual(['b', 'c'],
                         [i.uuid for i in self.cluster.on('h1')])
        self.assertEqual(['c'], [i.uuid for i in self.cluster.on(
            'h1', State.SUSPENDED, State.STOPPED)])

    def test_lease_is_in_a_stable_order(self):
        self.assertEqual(['a', 'b'],
                         [i.uuid for i in self.cluster.lease('l')])

    def test_a_suspended_instance_keeps_its_claims(self):
        self.assertEqual(
            {vocabulary.VCPU: 2, vocabulary.MEMORY_MB: 356,
             vocabulary.DISK_GB: 2, vocabulary.SLOT: 2},
            self.cluster.claimed('h1'))
        self.assertEqual({0}, set(self.cluster.claimed('none').values()))

    def test_a_copy_is_another(self):
        copy = self.cluster.copy()
        copy.update('b', host='h2')
        self.assertEqual('h1', self.cluster.instances['b'].host)
        self.assertEqual('h2', copy.instances['b'].host)


class TestHost(unittest.TestCase):

    def test_any_policy_violates(self):
        self.assertFalse(host('h').violated)
        self.assertTrue(host('h', policies=(
            cpu_policy(), slots_policy(1, violated=True))).violated)

    def test_threshold_is_the_lowest(self):
        both = host('h', policies=(cpu_policy(90.0), cpu_policy(60.0),
                                   slots_policy(1)))
        self.assertEqual(60.0, both.threshold())
        self.assertEqual(1, both.threshold('slots'))
        self.assertIsNone(host('h', policies=()).threshold())
