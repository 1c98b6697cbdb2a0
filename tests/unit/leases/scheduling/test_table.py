# SPDX-License-Identifier: Apache-2.0

"""The slot table against a simple one that counts every second."""

import unittest

import hypothesis
from hypothesis import strategies as st
import numpy as np

from secondary_scheduler.leases.scheduling.table import (
    CapacityEntry,
    SlotTable,
)
from secondary_scheduler.leases.scheduling.types import NEVER

HOSTS, RESOURCES, SECONDS = 3, 2, 24
CAPACITY = np.array([[4, 8], [2, 8], [4, 2]])


def need():
    return st.tuples(st.integers(1, 2), st.integers(0, 3))


@st.composite
def slots(draw):
    start = draw(st.integers(0, SECONDS - 1))
    hosts = draw(
        st.lists(
            st.integers(0, HOSTS - 1), min_size=1, max_size=HOSTS, unique=True
        )
    )
    amounts = draw(
        st.lists(
            st.lists(
                st.integers(0, 2), min_size=len(hosts), max_size=len(hosts)
            ),
            min_size=RESOURCES,
            max_size=RESOURCES,
        )
    )
    end = draw(st.one_of(st.integers(start + 1, SECONDS), st.just(NEVER)))
    return CapacityEntry(start, end, np.array(hosts), np.array(amounts))


class PlainTable:
    """Free capacity for each second; the last one never ends."""

    def __init__(self):
        self.free = np.repeat(CAPACITY[:, :, None], SECONDS + 1, axis=2)
        self.tenants = np.zeros((HOSTS, SECONDS + 1), dtype=int)

    def change(self, slot, sign, now):
        for host, amounts in zip(slot.hosts, slot.amounts.T, strict=True):
            when = slice(max(slot.start, now), min(slot.end, SECONDS + 1))
            self.free[host, :, when] -= sign * amounts[:, None]
            self.tenants[host, when] += sign

    def fits(self, need):
        counts = [
            self.free[:, index] // amount
            for index, amount in enumerate(need)
            if amount
        ]
        return np.maximum(np.min(counts, axis=0), 0)

    def room(self, need, start, end):
        return self.fits(need)[:, start : min(end, SECONDS + 1)].min(axis=1)


@st.composite
def tables(draw):
    """Draw both tables after the same changes, and the present time."""
    table, plain, now = SlotTable(CAPACITY), PlainTable(), 0
    taken = []
    for _ in range(draw(st.integers(0, 12))):
        what = draw(st.sampled_from(('take', 'take', 'give', 'advance')))
        if what == 'take':
            slot = draw(slots())
            taken.append(slot)
            table.take(slot)
            plain.change(slot, 1, now)
        elif what == 'give' and taken:
            slot = taken.pop(draw(st.integers(0, len(taken) - 1)))
            table.give(slot)
            plain.change(slot, -1, now)
        elif what == 'advance':
            now = min(now + draw(st.integers(1, 5)), SECONDS - 4)
            table.advance(now)
    return table, plain, now


class SlotTableTest(unittest.TestCase):
    @hypothesis.given(
        tables(), need(), st.integers(0, SECONDS), st.integers(1, SECONDS)
    )
    def test_free_vms(self, made, need, start, length):
        table, plain, now = made
        start = max(start, now)
        for end in (start + length, NEVER):
            self.assertTrue(
                (
                    table.free_vms(need, start, end)
                    == plain.room(need, start, end)
                ).all()
            )

    @hypothesis.given(
        tables(), st.integers(0, SECONDS), st.integers(1, SECONDS)
    )
    def test_least_free(self, made, start, length):
        table, plain, now = made
        start = max(start, now)
        for end in (start + length, NEVER):
            self.assertTrue(
                (
                    table.least_free(start, end)
                    == plain.free[:, :, start : min(end, SECONDS + 1)].min(
                        axis=2
                    )
                ).all()
            )

    @hypothesis.given(tables(), st.integers(0, SECONDS))
    def test_state_at(self, made, time):
        table, plain, now = made
        time = max(time, now)
        tenants, free, changes = table.state_at(time)
        self.assertTrue((tenants == plain.tenants[:, time]).all())
        self.assertTrue((free == plain.free[:, :, time].T).all())
        for host, change in enumerate(changes):
            later = np.flatnonzero(
                (
                    plain.free[host, :, time:]
                    != plain.free[host, :, time, None]
                ).any(axis=0)
                | (plain.tenants[host, time:] != plain.tenants[host, time])
            )
            self.assertEqual(time + later[0] if len(later) else NEVER, change)

    @hypothesis.given(
        tables(),
        need(),
        st.integers(1, 9),
        st.integers(1, 12),
        st.lists(
            st.integers(0, SECONDS) | st.just(NEVER),
            min_size=HOSTS,
            max_size=HOSTS,
        ),
    )
    def test_earliest_start(self, made, need, number, duration, ready):
        table, plain, now = made
        ready = np.maximum(ready, now)
        expected = next(
            (
                time
                for time in range(now, SECONDS + 1)
                if (
                    plain.room(need, time, time + duration) * (ready <= time)
                ).sum()
                >= number
            ),
            None,
        )
        self.assertEqual(
            expected, table.earliest_start(need, number, duration, ready)
        )

    @hypothesis.given(tables(), need(), st.integers(0, SECONDS))
    def test_vm_end_times(self, made, need, time):
        table, plain, now = made
        time = max(time, now)
        expected = []
        for row in plain.fits(need)[:, time:]:
            for level in range(1, int(row[0]) + 1):
                less = np.flatnonzero(row < level)
                expected.append(time + less[0] if len(less) else NEVER)
        self.assertEqual(
            sorted(expected)[::-1], table.vm_end_times(need, time).tolist()
        )

    @hypothesis.given(tables(), slots())
    def test_fits_until_and_has_room(self, made, slot):
        table, plain, now = made
        start = max(slot.start, now)
        hypothesis.assume(start < slot.end)
        wanted = CapacityEntry(start, slot.end, slot.hosts, slot.amounts)
        amounts = slot.amounts.T[:, :, None]
        short = ((amounts > 0) & (plain.free[slot.hosts] < amounts)).any(
            axis=1
        )
        times = np.flatnonzero(short[:, start:].any(axis=0)) + start
        until = int(times[0]) if len(times) else NEVER
        self.assertEqual(
            until, table.fits_until(slot.hosts, slot.amounts, start)
        )
        self.assertEqual(
            until >= min(slot.end, SECONDS + 1), table.has_room(wanted)
        )

    @hypothesis.given(st.lists(slots(), max_size=8))
    def test_returned_capacity_leaves_an_empty_table(self, taken):
        table = SlotTable(CAPACITY)
        for slot in taken:
            table.take(slot)
        for slot in taken:
            table.give(slot)
        self.assertEqual(NEVER, table.next_change(0))
        self.assertTrue((table.state_at(0)[1] == CAPACITY.T).all())

    def test_many_steps(self):
        """The arrays grow as needed, and past steps are forgotten."""
        for hosts in (1, 40):
            with self.subTest(hosts=hosts):
                table = SlotTable(np.full((hosts, 1), 1000))
                every = np.arange(hosts)
                one = np.ones((1, hosts), dtype=int)
                for start in range(200):
                    table.take(CapacityEntry(start, start + 7, every, one))
                self.assertEqual(
                    [996] * hosts, table.free_vms((1,), 3, 4).tolist()
                )
                self.assertEqual(
                    [993] * hosts, table.free_vms((1,), 100, 101).tolist()
                )
                table.advance(150)
                for start in range(200, 260):
                    table.take(CapacityEntry(start, start + 7, every, one))
                self.assertEqual(
                    [993] * hosts, table.free_vms((1,), 210, 211).tolist()
                )

    def test_overdrawn_resource_does_not_matter_if_none_is_needed(self):
        table = SlotTable(np.array([[1, 1]]))
        table.take(CapacityEntry(5, 10, np.array([0]), np.array([[2], [0]])))
        self.assertTrue(
            table.has_room(
                CapacityEntry(0, 20, np.array([0]), np.array([[0], [1]]))
            )
        )
        self.assertFalse(
            table.has_room(
                CapacityEntry(0, 20, np.array([0]), np.array([[1], [1]]))
            )
        )
