# SPDX-License-Identifier: Apache-2.0

"""Reported states and served times are true in any history of events."""

import dataclasses
import unittest

import hypothesis
from hypothesis import strategies as st

from secondary_scheduler.leases.engine.values import LeaseOperation, Nature
from secondary_scheduler.model import lease_states
from tests.unit.leases.api.services import NOW
from tests.unit.leases.engine import fakes, property_parts

GIVE_UP, PERIOD = 40.0, 4.0
OPTIONS = dataclasses.replace(fakes.OPTIONS, give_up=GIVE_UP)
#: Seconds with random events, and seconds after which all leases have ended:
#: failing leases are given up, and the others run for their duration.
TROUBLED, OVER = 80, 80 + 8 * 60

ANSWERS = st.sampled_from([None, *Nature])
KINDS = st.sampled_from([LeaseOperation.BOOT, LeaseOperation.SUSPEND,
                        LeaseOperation.RESUME, LeaseOperation.DELETE])
#: Changes of a server by its owner, a primary or a broken host.
CHANGES = st.sampled_from([
    {'status': 'SHUTOFF'}, {'status': 'ERROR', 'fault': 'broken'},
    {'status': 'SUSPENDED', 'preempted': True}, {'status': 'SUSPENDED'},
    {'status': 'ACTIVE', 'preempted': False}, {'status': 'RESCUE'}, None])
EVENTS = st.one_of(
    st.tuples(st.just('answer'), KINDS, ANSWERS),
    st.tuples(st.just('server'), st.integers(0, 5), CHANGES),
    st.tuples(st.just('hold'), st.booleans(), st.none()),
    st.tuples(st.just('down'), st.booleans(), st.none()),
    st.tuples(st.just('hidden'), st.integers(0, 63), st.none()),
    st.tuples(st.just('silent'), st.integers(0, 7), st.none()),
    st.tuples(st.just('restart'), st.none(), st.none()),
    st.tuples(st.just('away'), st.integers(1, 30), st.none()))
HISTORIES = st.lists(st.tuples(st.integers(0, TROUBLED), EVENTS), max_size=8)
LEASES = st.lists(st.tuples(
    st.integers(1, 3), st.integers(5, 60),
    st.one_of(st.none(), st.integers(15, 60))), min_size=1, max_size=3)


def hide_servers(nova, mask):
    """Hide the servers of the nodes whose bits are set in a mask."""
    nova.hides = lambda server: bool(
        mask >> (int(server.lease[-1], 16) * 3 + server.node) % 6 & 1)


class _History:
    """Leases on a cloud with random events, and their true running times."""

    def __init__(self, test, leases, history):
        self.world = fakes.World(test, OPTIONS)
        self.nova = self.world.nova
        self.leases = [self.world.ask(
            number, duration=duration,
            **({} if start is None else {'start': NOW + start}))
            for number, duration, start in leases]
        self.history = sorted(history, key=lambda one: one[0])
        self.answers = {}
        self.nova.refusal = self._refusal
        self.ran = dict.fromkeys(self.leases, 0.0)
        self.untrue = []

    def _refusal(self, order):
        nature = self.answers.get(order.kind)
        return None if nature is None else (nature, f'{nature} for a test')

    def run(self):
        end = NOW + OVER
        while self.world.clock.now < end and not all(
            self.world.state(one) in lease_states.FINAL for one in self.leases
        ):
            while self.history and (
                    NOW + self.history[0][0] <= self.world.clock.now):
                self._happen(*self.history.pop(0)[1])
            if self.world.clock.now >= NOW + TROUBLED:
                self._calm()
            self.world.step()
            self._look()
            self.world.clock.now += PERIOD
            self.nova.run(self.world.clock.now)

    def _happen(self, what, first, second):
        if what == 'answer':
            self.answers[first] = second
        elif what == 'server' and self.nova.servers:
            key = sorted(self.nova.servers)[first % len(self.nova.servers)]
            if second is None:
                self.nova.servers.pop(key)
            elif not self.nova.servers[key].busy:
                self.nova.change(self.world.clock.now, key, **second)
        elif what == 'hold':
            for lease in self.leases:
                if self.world.state(lease) not in lease_states.FINAL:
                    self.world.store.change(lease, 'asked', {'hold': first})
        elif what == 'down':
            self.nova.down = first
        elif what == 'hidden':
            hide_servers(self.nova, first)
        elif what == 'silent':
            self.nova.silent = {
                f'h{number + 1}' for number in range(3) if first >> number & 1}
        elif what == 'restart':
            self.world.restart()
        elif what == 'away':
            self.world.clock.now += first
            self.nova.run(self.world.clock.now)

    def _calm(self):
        """Let the cloud answer again, and withdraw requests to pause."""
        self.nova.down, self.nova.silent = False, set()
        hide_servers(self.nova, 0)
        # The other failures end a lease.
        self.answers = {kind: nature for kind, nature in self.answers.items()
                        if nature is not Nature.UNSEEN}
        for lease in self.leases:
            found = self.world.store.get(lease)
            if found.hold and found.state not in lease_states.FINAL:
                self.world.store.change(lease, 'asked', {'hold': False})

    def _look(self):
        """Count a period after each observation of all servers running."""
        for lease in self.leases:
            statuses = self.nova.statuses(lease)
            nodes = [(one.lease, one.node) for one
                     in self.nova.servers.values()]
            assert len(nodes) == len(set(nodes)), 'a node has two servers'
            if statuses and set(statuses) == {'ACTIVE'}:
                self.ran[lease] += PERIOD
            elif self.world.state(lease) == 'active' and not self.nova.down:
                self.untrue.append((self.world.clock.now - NOW, statuses))


class PropertiesTest(unittest.TestCase):
    """Has one test for each part; they are added below."""


def _make_check():
    @property_parts.settings
    @hypothesis.given(leases=LEASES, history=HISTORIES)
    # Nova cannot suspend a server in rescue mode.
    @hypothesis.example(leases=[(1, 5, None)], history=[
        (1, ('hold', True, None)), (5, ('server', 0, {'status': 'RESCUE'}))])
    # The engine is away at the end of a lease that lacks running time.
    @hypothesis.example(
        leases=[(2, 36, None), (3, 35, None), (1, 24, 27)], history=[
            (5, ('server', 1, {'status': 'SHUTOFF'})),
            (17, ('away', 11, None)), (39, ('hold', False, None)),
            (54, ('server', 1, {'status': 'ACTIVE', 'preempted': False})),
            (73, ('away', 5, None)), (80, ('away', 11, None))])
    # Nova is down at the start, and the servers are gone with the end.
    @hypothesis.example(
        leases=[(1, 15, None), (2, 7, None), (3, 54, 58)], history=[
            (5, ('hold', True, None)), (6, ('hidden', 42, None)),
            (17, ('down', True, None))])
    def check(leases, history):
        case = unittest.TestCase()
        try:
            _check(case, leases, history)
        finally:
            case.doCleanups()

    return check


property_parts.add_parts(
    PropertiesTest, 'test_states_and_served_time_are_true', _make_check)


def _check(case, leases, history):
    found = _History(case, leases, history)
    found.run()
    # An engine that was away counts servers that run at both ends.
    away = sum(event[1] for _, event in history if event[0] == 'away')
    for uuid, (_, duration, _) in zip(found.leases, leases, strict=True):
        lease, events = found.world.store.get(uuid), found.world.events(uuid)
        assert lease.state in lease_states.FINAL, (lease.state, events)
        assert lease.served <= min(duration, found.ran[uuid] + away), events
        assert lease.reason or lease.state == 'done', (lease.state, events)
        assert lease.charge in (None, 0.0) or lease.state != 'failed'
        # A restart loses the time since the last heartbeat.
        restarts = sum(event[0] == 'restart' for _, event in history)
        if lease.served < duration - 10 - 15 * restarts:
            assert lease.reason, (lease.state, lease.served, events)
        for place, times in _orders(found, uuid).items():
            for time in times:
                together = [one for one in times if time <= one < time + 60]
                assert len(together) <= 8, (place, times)
    assert found.untrue == []


def _orders(found, lease):
    """Return the times of the orders of each operation on each node."""
    times = {}
    for time, one in found.nova.ordered:
        if one.place[0] == lease:
            times.setdefault((one.place[1], one.kind), []).append(time)
    return times


if __name__ == '__main__':
    unittest.main()
