# SPDX-License-Identifier: Apache-2.0

"""Jobs of Entropy's cluster, and their static allocation."""

import unittest

from secondary_scheduler.simulation.switches import jobs, static

UNITS = 22


def job(length_s=90.0, width=3, name='job'):
    """Return a job of nine members."""
    return jobs.PhasedJob(name, length_s, width, tuple(
        jobs.BusyMember(f'{name}-{number}', 512) for number in range(1, 10)))


class TestPhasedJob(unittest.TestCase):

    def test_members_are_busy_in_turns(self):
        one = job()
        for progress_s, names in (
                (0, ['job-1', 'job-2', 'job-3']),
                (29.9, ['job-1', 'job-2', 'job-3']),
                (30, ['job-4', 'job-5', 'job-6']),
                (90, ['job-7', 'job-8', 'job-9'])):
            with self.subTest(progress_s=progress_s):
                self.assertEqual(names, [
                    member.name for member in one.busy(progress_s)])

    def test_phases_end_at_equal_parts_of_the_length(self):
        for width, ends in ((9, [90]), (3, [30, 60, 90]),
                            (1, [10 * number for number in range(1, 10)])):
            one = job(width=width)
            progress_s, found = 0.0, []
            while progress_s < one.length_s:
                progress_s = one.phase_end(progress_s)
                found.append(progress_s)
            self.assertEqual(ends, found)

    def test_all_work_is_that_of_the_publication(self):
        self.assertEqual(23_124, sum(
            one.work for one in jobs.draw_jobs(1, 'small')))


class TestMakespan(unittest.TestCase):

    def test_static_allocation_takes_as_long_as_figure_12(self):
        some = jobs.draw_jobs(1, 'small')
        for strategy in ('fcfs', 'easy'):
            self.assertEqual(3089, static.static_makespan(
                some, UNITS, strategy))

    def test_backfilling_fills_what_first_come_first_served_leaves(self):
        first, second = job(100, 9, 'a'), job(100, 9, 'b')
        small = jobs.PhasedJob('c', 150, 1, first.members[:4])
        some = [first, second, small]
        self.assertEqual(250, static.static_makespan(some, 13, 'fcfs'))
        self.assertEqual(200, static.static_makespan(some, 13, 'easy'))

    def test_bound_is_the_longest_job_or_all_work(self):
        self.assertEqual(100, jobs.least_makespan([job(100, 1)], UNITS))
        self.assertEqual(150, jobs.least_makespan(
            [job(100, 9), job(100, 9), job(100, 9)], 18))

    def test_fluid_schedule_runs_what_fits_in_the_order_of_the_queue(self):
        some = [job(100, 9, 'a'), job(100, 9, 'b'), job(50, 1, 'c')]
        self.assertEqual(200, jobs.fluid_makespan(some, 10))
        self.assertEqual(100, jobs.fluid_makespan(some, 19))
