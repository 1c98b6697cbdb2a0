# SPDX-License-Identifier: Apache-2.0

"""Snapshot of the cloud while a cell of Nova does not answer."""

import time
import unittest
from unittest import mock

from secondary_scheduler.reports import book
from secondary_scheduler.watcher import cloud_errors, snapshot_keeper
from tests.unit.watcher import fakes

#: Servers 1 to 4 are on h1, 5 to 8 on h2, 9 to 12 on h3.
HOSTS = {number: f'h{(number - 1) // 4 + 1}' for number in range(1, 13)}


class SnapshotKeeperTest(unittest.TestCase):
    """The cell of h2 and h3 fails; that of h1 does not."""

    def setUp(self):
        super().setUp()
        self.now = 1000.0
        self.cloud = fakes.FakeCloud(
            [fakes.server(number, host) for number, host in HOSTS.items()],
            [fakes.host(name) for name in ('h1', 'h2', 'h3')])
        self.cloud.gate._clock = lambda: self.now
        self.book = book.HostBook(lambda: 600.0)
        self.keeper = snapshot_keeper.SnapshotKeeper(
            lambda: self.cloud, self.book, lambda: self.now)
        self.keeper.refresh_all()

    def unseen(self):
        return {number for number in HOSTS
                if fakes.uid(number) in self.keeper.snapshot.unseen}

    def away(self):
        """Return the unreachable hosts, once all look-ups are answered."""
        until = time.monotonic() + 60
        while self.keeper._learning.locked() and time.monotonic() < until:
            time.sleep(0.001)
        return set(self.keeper.snapshot.unreachable_hosts)

    def silence(self):
        """Let a cell be silent, and the keeper know its hosts."""
        self.cloud.silent = {'h2', 'h3'}
        for _ in range(2):
            self.keeper.refresh_servers()
        self.away()

    def report(self, name, *numbers, **changes):
        self.book.accept(fakes.report(
            name, [self.cloud.known[fakes.uid(one)] for one in numbers],
            time=time.time(), **changes))

    def test_servers_of_a_refused_cell_are_unseen_and_stay(self):
        self.cloud.refused = {'h2', 'h3'}
        with mock.patch.object(self.cloud, 'server',
                               wraps=self.cloud.server) as asked:
            gone = self.keeper.refresh_servers()
            self.assertLessEqual(asked.call_count, 8)
            self.assertEqual({'h2', 'h3'}, self.away())
            asked.reset_mock()
            self.keeper.refresh_servers()
            asked.assert_not_called()
        self.assertEqual(frozenset(), gone)
        self.assertEqual(set(range(5, 13)), self.unseen())
        self.assertEqual(12, len(self.keeper.snapshot.servers))

    def test_one_request_reveals_all_hosts_of_a_refused_cell(self):
        self.cloud.refused = {'h2', 'h3'}
        for number in range(9, 13):
            del self.cloud.known[fakes.uid(number)]
        self.keeper.refresh_all()
        self.assertEqual({'h2', 'h3'}, self.away())

    def test_deleted_server_is_gone_and_others_are_not(self):
        self.cloud.refused = {'h2', 'h3'}
        del self.cloud.known[fakes.uid(1)]
        self.assertEqual({fakes.uid(1)}, self.keeper.refresh_servers())
        self.assertNotIn(fakes.uid(1), self.keeper.snapshot.servers)
        self.assertEqual({fakes.uid(99)},
                         self.keeper.refresh_servers([fakes.uid(99)]))
        # So is one that was resized to a flavor of primaries.
        resized = self.cloud.known.pop(fakes.uid(2))
        with mock.patch.object(self.cloud, 'server', return_value=None):
            self.assertEqual({resized.uuid}, self.keeper.refresh_servers())

    def test_silent_cell_delays_one_pass(self):
        self.cloud.silent = {'h2', 'h3'}
        for number in (1, 2, 5, 6):
            self.cloud.change(number, status='SUSPENDED')
        for _ in range(40):
            waits = self.cloud.waits
            self.keeper.refresh_servers()
            self.assertLessEqual(self.cloud.waits, waits + 1)
            self.away()
            self.now += 2
        # A list, and a server each of h2 and h3 at most.
        self.assertLessEqual(self.cloud.waits, 3)
        self.assertEqual(set(range(5, 13)), self.unseen())
        # The other cell is observed server by server.
        self.assertEqual('SUSPENDED', self.keeper.snapshot.servers[
            fakes.uid(1)].status)

    def test_violated_host_is_refreshed_beside_a_silent_cell(self):
        self.silence()
        self.cloud.change(1, status='SUSPENDED')
        self.report('h1', 2, 3, 4)
        waits = self.cloud.waits
        self.now += 60
        self.keeper.refresh_hosts(['h1', 'h2'])
        self.assertEqual(waits, self.cloud.waits)
        self.assertEqual('SUSPENDED', self.keeper.snapshot.servers[
            fakes.uid(1)].status)
        self.assertEqual(set(range(5, 13)), self.unseen())

    def test_report_confirms_running_servers_without_a_list(self):
        self.silence()
        self.report('h1', 1, 2, 3, 4)
        with mock.patch.object(self.cloud, 'server') as asked:
            self.keeper.refresh_servers()
        asked.assert_not_called()

    def test_report_does_not_tell_whether_nova_reaches_the_host(self):
        for name, numbers in ('h1', range(1, 5)), ('h2', range(5, 9)), (
                'h3', range(9, 13)):
            self.report(name, *numbers)
        self.cloud.silent = {'h2', 'h3'}
        with mock.patch.object(self.keeper, '_learn_reach',
                               self.keeper._learning.release):
            for _ in range(3):
                self.keeper.refresh_servers()
                self.now += 2
        self.assertEqual({'h2', 'h3'}, self.away())
        # A list, and a server of each host.
        self.assertEqual(3, self.cloud.waits)

    def test_cell_that_answers_again_shows_its_servers(self):
        for fault in ('refused', 'silent'):
            setattr(self.cloud, fault, {'h2', 'h3'})
            self.keeper.refresh_servers()
            self.away()
            setattr(self.cloud, fault, set())
            del self.cloud.known[fakes.uid(5)]
            self.cloud.change(6, status='SHUTOFF')
            self.now += 10
            self.keeper.refresh_all()
            with self.subTest(fault):
                self.assertEqual((set(), set()), (self.unseen(), self.away()))
                self.assertNotIn(fakes.uid(5), self.keeper.snapshot.servers)
                self.assertEqual('SHUTOFF', self.keeper.snapshot.servers[
                    fakes.uid(6)].status)
            self.cloud.known[fakes.uid(5)] = fakes.server(5, 'h2')
            self.cloud.change(6, status='ACTIVE')
            self.keeper.refresh_all()

    def test_look_ups_in_a_refresh_are_bounded(self):
        numbers = range(100, 160)
        self.cloud.known |= {fakes.uid(number): fakes.server(number, 'h1')
                             for number in numbers}
        self.keeper.refresh_servers()
        for number in numbers:
            del self.cloud.known[fakes.uid(number)]
        for left in (40, 20, 0):
            with mock.patch.object(self.cloud, 'server',
                                   wraps=self.cloud.server) as asked:
                self.keeper.refresh_servers()
            self.assertEqual(20, asked.call_count)
            self.assertEqual(12 + left, len(self.keeper.snapshot.servers))
            # Those that await their look-up were seen a moment ago.
            self.assertEqual(frozenset(), self.keeper.snapshot.unseen)

    def test_groups_are_those_of_the_last_answer(self):
        group = snapshot_keeper.ServerGroup('g', True, frozenset({'vm'}))
        self.cloud.groups = [group]
        self.keeper.refresh_all()
        self.cloud.refused = {'h2'}
        failing = mock.patch.object(
            self.cloud, 'server_groups',
            side_effect=cloud_errors.CloudError('500'))
        with failing:
            self.keeper.refresh_all()
        self.assertEqual((group,), self.keeper.snapshot.groups)
        other = snapshot_keeper.SnapshotKeeper(
            lambda: self.cloud, self.book, lambda: self.now)
        with failing:
            self.assertRaises(cloud_errors.CloudError, other.refresh_all)


if __name__ == '__main__':
    unittest.main()
