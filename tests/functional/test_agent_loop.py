# SPDX-License-Identifier: Apache-2.0

"""The agent's loop closed over a simulated host.

The agent is the real one on a tree of files; the simulation stands for the
kernel: each half second it lets the guests use what their files allow and the
primary leaves, and moves the counters on.
"""

from secondary_scheduler.model.reports import PolicyState
from tests.unit.agent.base import AgentTestCase

FLOOR = '1000 100000'
CPUS = 4


class Loop(AgentTestCase):
    """Three hungry guests of two vCPUs each on a host of four CPUs."""

    def setUp(self):
        super().setUp()
        self.uuids = [self.host.guest(n) for n in range(3)]
        # A primary guest and an unknown one are there as well.
        self.host.guest(5, specs={})
        self.host.guest(6, metadata='')
        self.agent = self.start_agent()
        self.primary = 20.0
        self.totals = []
        self.states = []
        self.time = 0

    def start_agent(self):
        agent = self.make()
        agent.parts.floors._clock = lambda: self.now
        agent.parts.trigger._clock = lambda: self.now
        agent.step()
        return agent

    def allowed(self, number):
        """Return what a guest's files allow it, in percent of the host."""
        total = 0.0
        for thread in ('vcpu0', 'vcpu1'):
            quota, period = self.host.quota(number, thread).split()
            share = (1.0 if quota in ('max', '-1')
                     else int(quota) / int(period))
            total += min(1.0, share) * 100 / CPUS
        return total

    def seconds(self, count):
        """Let so many seconds pass; keep the host's use in each."""
        for _ in range(count):
            used = 0.0
            for _ in range(2):
                wanted = [self.allowed(n) for n in range(3)]
                left = max(0.0, 100.0 - self.primary)
                scale = min(1.0, left / sum(wanted))
                guests = [one * scale for one in wanted]
                self.spend(self.primary + sum(guests),
                           g0=guests[0], g1=guests[1], g2=guests[2])
                used += (self.primary + sum(guests)) / 2
                self.agent.step()
            self.agent.parts.gauges.measure('memory')
            self.agent.check()
            self.states.append(self.agent.parts.trigger.reports[0].state)
            self.totals.append(used)

    def floored(self):
        return [self.host.quota(n) == FLOOR for n in range(3)]

    def test_step_response(self):
        self.seconds(15)
        for total in self.totals[-5:]:
            self.assertAlmostEqual(89.0, total, delta=1.5)
        self.primary = 70.0
        self.seconds(10)
        after = self.totals[-10:]
        # One second may still be above while the share comes down.
        self.assertLessEqual(sum(total > 90 for total in after), 2, after)
        for total in after[2:]:
            self.assertAlmostEqual(89.0, total, delta=1.5)
        self.primary = 20.0
        self.seconds(10)
        self.assertGreater(min(self.totals[-4:]), 86.0)
        self.assertNotIn(PolicyState.VIOLATED, self.states)
        self.assertEqual(0, self.agent.parts.trigger.counters['floors'])

    def test_a_full_host_asks_for_help_then_goes_to_the_floor(self):
        self.seconds(10)
        self.primary = 88.0     # and 3 x 5 % at least
        self.seconds(8)
        self.assertEqual(PolicyState.VIOLATED, self.states[-1])
        self.assertEqual([False] * 3, self.floored())
        self.seconds(12)
        self.assertEqual([True] * 3, self.floored())
        self.assertNotIn(PolicyState.INVALID, self.states)
        self.assertEqual(0, self.agent.parts.trigger.counters['invalidations'])
        run = longest = 0
        for total in self.totals:
            run = run + 1 if total > 90.5 else 0
            longest = max(longest, run)
        self.assertLess(longest, 10)
        # Room again: they come back by themselves.
        self.primary = 20.0
        self.seconds(15)
        self.assertEqual([False] * 3, self.floored())
        self.assertAlmostEqual(89.0, self.totals[-1], delta=2.0)

    def test_a_restart_raises_no_limit(self):
        self.seconds(10)
        self.primary = 70.0
        self.seconds(6)
        before = [self.allowed(n) for n in range(3)]
        self.agent = self.start_agent()
        for number, old in enumerate(before):
            self.assertLessEqual(self.allowed(number), old)
        self.seconds(8)
        after = self.totals[-8:]
        self.assertLessEqual(sum(total > 90 for total in after), 1, after)
        self.assertAlmostEqual(89.0, after[-1], delta=1.5)

    def test_primaries_files_are_the_same_after_all_this(self):
        mine = [self.host.scope(f'instance-{n:08x}', n + 1)
                for n in range(3)]

        def controls():
            return {path: text for path, text in self.host.fingerprint(
                        skip=mine).items()
                    if 'usage' not in path and 'stat' not in path}

        before = controls()
        self.assertTrue(any('instance-00000005' in path.replace(
            '\\x2d', '-') for path in before))
        for primary in (20.0, 88.0, 20.0):
            self.primary = primary
            self.seconds(14)
        self.assertTrue(self.agent.parts.trigger.counters['floors'])
        self.assertEqual(before, controls())

    def test_what_it_reports_is_what_happens(self):
        self.seconds(12)
        report = self.agent.reporter.build_report()
        self.assertEqual(set(self.uuids), {i.uuid for i in report.instances})
        self.assertAlmostEqual(20.0, report.cpu_primary, delta=1.0)
        self.assertAlmostEqual(89.0, report.cpu_total, delta=2.0)
        for number, one in enumerate(sorted(report.instances,
                                            key=lambda i: i.uuid)):
            self.assertAlmostEqual(self.allowed(number), one.cap, delta=1.0)
            self.assertFalse(one.floored)
        self.primary = 88.0
        self.seconds(5)
        self.assertTrue(self.agent.reporter.build_report().violated)
        self.seconds(10)
        self.assertTrue(all(
            one.floored
            for one in self.agent.reporter.build_report().instances))


class LoopOnVersion2(Loop):
    """The same with control groups version 2."""

    version = 2
