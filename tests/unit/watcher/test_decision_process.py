# SPDX-License-Identifier: Apache-2.0

import os
import pickle
import signal
import subprocess
import sys
import time
import unittest
from unittest import mock

from secondary_scheduler.decisions import base
from secondary_scheduler.plans.operations import Plan
from secondary_scheduler.watcher import decision_process
from tests.unit.decisions.worlds import cluster, host, vm


class Unresolved(base.Decision):
    """Names the hosts of the request, and the process that decides."""

    def decide(self, cluster, request, budget):
        if request.kind == 'return':
            class Odd(Exception):
                """Error that cannot be pickled."""

            raise Odd('x')
        if request.kind == 'drain':
            raise ValueError(f'no {request.kind} with {budget.units}')
        return Plan(unresolved=(*request.hosts, str(os.getpid())))


class Hanging(base.Decision):
    """Never decides."""

    def decide(self, cluster, request, budget):
        time.sleep(60.0)


class DecisionProcessTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.process = decision_process.DecisionProcess()
        cls.addClassCleanup(cls.process._end)

    def decide(self, kind='select'):
        return self.process.decide(
            Unresolved(), None, base.DecisionRequest(kind, ('h1',)), 7)

    def test_another_process_decides(self):
        """It decides again after an error, and is replaced if it ends."""
        host, first = self.decide().unresolved
        self.assertEqual('h1', host)
        self.assertNotEqual(os.getpid(), int(first))
        with self.assertRaisesRegex(decision_process.DecisionFailed,
                                    'ValueError: no drain with 7'):
            self.decide('drain')
        self.assertEqual(first, self.decide().unresolved[1])
        # A question that is under way when the process ends has no answer.
        process = self.process._process
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(process.pid, signal.SIGKILL)
        with mock.patch.object(process, 'poll', return_value=None), (
                self.assertRaisesRegex(decision_process.DecisionFailed,
                                       'exit code -9')):
            self.decide()
        self.assertNotEqual(first, self.decide().unresolved[1])

    def test_it_ends_with_its_input(self):
        self.decide()
        process = self.process._process
        process.stdin.close()
        self.assertEqual(0, process.wait(10))
        process.stdout.close()

    def test_decision_that_hangs_does_not_survive_its_engine(self):
        code = (f'from {decision_process.__name__} import main, __dict__ as d'
                '; d["_LONGEST_S"] = 0.5; main()')
        with subprocess.Popen([sys.executable, '-c', code],
                              stdin=subprocess.PIPE,
                              stdout=subprocess.DEVNULL) as process:
            pickle.dump((Hanging(), None, None, 7), process.stdin)
            process.stdin.close()
            self.assertEqual(-signal.SIGALRM, process.wait(30))

    def test_cluster_that_a_decision_has_looked_at_is_sent(self):
        """Values that it has derived from the cluster stay here."""
        instance = vm('u', 'h', workload_class='web')
        world = cluster(host('h'), instance)
        world.prefer_predicted(['h'], instance, {})
        world.capacity(None, 'cpu')
        self.assertEqual('h1', self.process.decide(
            Unresolved(), world, base.DecisionRequest('select', ('h1',)), 7
        ).unresolved[0])

    def test_error_that_cannot_be_sent_is_described(self):
        with self.assertRaisesRegex(decision_process.DecisionFailed,
                                    'Odd: x'):
            self.decide('return')
        self.assertEqual('h1', self.decide().unresolved[0])

    def test_process_that_hangs_is_replaced(self):
        first = self.decide().unresolved[1]
        os.kill(int(first), signal.SIGSTOP)
        with mock.patch.object(decision_process, '_LONGEST_S', 0.2), (
                self.assertRaisesRegex(decision_process.DecisionFailed,
                                       'did not answer within 0 s')):
            self.decide()
        self.assertNotEqual(first, self.decide().unresolved[1])

    def test_question_that_cannot_be_sent_leaves_the_process(self):
        first = self.decide().unresolved[1]
        with self.assertRaises((AttributeError, pickle.PicklingError,
                                TypeError)):
            self.process.decide(Unresolved(), lambda: None,
                                base.DecisionRequest('select'), 1)
        self.assertEqual(first, self.decide().unresolved[1])
