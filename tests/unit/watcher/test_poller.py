# SPDX-License-Identifier: Apache-2.0

"""Polling of servers."""

import threading
import time
from unittest import TestCase, mock

from secondary_scheduler.watcher import (
    poller,
)
from tests.unit.watcher import fakes


class PollerTest(TestCase):
    def setUp(self):
        self.cloud = fakes.FakeCloud(
            [fakes.server(i, task_state='busy') for i in range(1, 9)])
        self.poller = poller.Poller(lambda: self.cloud, lambda: 0.01)

    def test_many_servers_are_polled_by_one_list(self):
        done = []

        def wait(number):
            done.append(self.poller.wait(
                fakes.uid(number), lambda s: s.task_state is None, 10).uuid)
        threads = [threading.Thread(target=wait, args=(i,))
                   for i in range(1, 9)]
        with mock.patch.object(self.cloud, 'servers',
                               wraps=self.cloud.servers) as listed:
            for thread in threads:
                thread.start()
            while not listed.called:
                time.sleep(0.01)
            for i in range(1, 9):
                self.cloud.change(i, task_state=None)
            for thread in threads:
                thread.join(10)
        self.assertEqual(8, len(done))

    def test_errors_are_retried(self):
        self.cloud.down = True
        threading.Timer(0.1, lambda: setattr(
            self.cloud, 'down', False)).start()
        self.assertEqual(fakes.uid(1), self.poller.wait(
            fakes.uid(1), lambda s: True, 10).uuid)

    def test_deleted_server_and_timeout_raise(self):
        self.assertRaises(poller.Gone, self.poller.wait, fakes.uid(99),
                          lambda s: True, 10)
        self.assertRaises(TimeoutError, self.poller.wait, fakes.uid(1),
                          lambda s: False, 0.05)

    def wait_in_thread(self, number, done=lambda server: True, timeout=10):
        """Wait for a server; return the thread, and its list of results."""
        results = []

        def wait():
            try:
                results.append(self.poller.wait(
                    fakes.uid(number), done, timeout).uuid)
            except (poller.Gone, TimeoutError) as exc:
                results.append(type(exc))
        thread = threading.Thread(target=wait)
        thread.start()
        return thread, results

    def test_unseen_server_is_neither_done_nor_gone(self):
        self.cloud.change(1, host='h2')
        self.cloud.refused = {'h2'}
        thread, results = self.wait_in_thread(1)
        # Others are waited for meanwhile.
        self.assertEqual(fakes.uid(2), self.poller.wait(
            fakes.uid(2), lambda server: True, 10).uuid)
        with self.assertRaises(poller.Gone):
            self.poller.wait(fakes.uid(99), lambda server: True, 10)
        self.assertEqual([], results)
        with mock.patch.object(poller, '_UNSEEN_S', 0.0):
            self.cloud.refused = set()
            for waiter in self.poller._waiters:
                waiter.due = 0.0
            thread.join(10)
        self.assertEqual([fakes.uid(1)], results)

    def test_wait_for_an_unseen_server_ends_at_its_timeout(self):
        self.cloud.refused = {'h1'}
        thread, results = self.wait_in_thread(1, timeout=0.1)
        thread.join(10)
        self.assertEqual([TimeoutError], results)

    def test_servers_are_requested_singly_beside_a_silent_cell(self):
        self.cloud.change(1, host='h2')
        self.cloud.silent = {'h2'}
        silent, unknown = self.wait_in_thread(1, timeout=2)
        others = [self.wait_in_thread(number) for number in range(2, 9)]
        for thread, _ in others:
            thread.join(10)
        self.assertEqual([[fakes.uid(number)] for number in range(2, 9)],
                         [results for _, results in others])
        self.assertEqual([], unknown)
        silent.join(10)
        self.assertEqual([TimeoutError], unknown)
        # A list, and one request for the server.
        self.assertLessEqual(self.cloud.waits, 2)

    def poll(self, waiters):
        """Poll once; return the numbers of the servers requested singly."""
        with mock.patch.object(self.cloud, 'server',
                               wraps=self.cloud.server) as asked:
            self.poller._poll(waiters)
        return [int(call.args[0][-12:], 16)
                for call in asked.call_args_list]

    def test_one_request_in_a_poll_waits_for_a_silent_cell(self):
        waiters = [poller._Waiter(fakes.uid(number), lambda server: False)
                   for number in range(1, 9)]
        for number in (1, 2, 5):
            self.cloud.change(number, host='h2')
        self.poll(waiters)
        self.cloud.silent = {'h2'}
        self.assertEqual([1], self.poll(waiters))
        self.assertEqual([0, 1, 4], [number for number, one
                                     in enumerate(waiters) if one.unseen])
        # The others come first from now on, and one request tells the rest.
        self.assertEqual([3, 4, 6, 7, 8, 1], self.poll(waiters))
        self.cloud.silent = set()
        self.cloud.gate.note_answer(0, complete=True)
        self.assertEqual([], self.poll(waiters))
        self.assertFalse(any(one.unseen or one.gone for one in waiters))

    def test_unseen_server_is_requested_rarely(self):
        with mock.patch.object(poller.time, 'monotonic', return_value=1000.0):
            waiter = poller._Waiter(fakes.uid(1), lambda server: False)
            waiter.unseen = True
            waiter.reschedule(interval=0.3)
        self.assertEqual(1015, waiter.due)

    def test_long_waits_are_polled_less_often(self):
        with mock.patch.object(poller.time, 'monotonic') as now:
            now.return_value = 1000.0
            waiter = poller._Waiter(fakes.uid(1), lambda s: False)
            self.assertEqual(1000, waiter.due)
            for waited, later in (1, 0.3), (20, 1), (600, 30):
                now.return_value = 1000.0 + waited
                waiter.reschedule(interval=0.3)
                self.assertAlmostEqual(1000 + waited + later, waiter.due)
