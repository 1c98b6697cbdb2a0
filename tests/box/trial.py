# SPDX-License-Identifier: Apache-2.0

"""Checks after any fault: no policy was invalid, and nothing is lost."""

from collections.abc import Collection
import time

import layout
from tests.box.fleet import Fleet
from tests.box.observer import Observer
from tests.box.services import agent_status


def agent_is_fresh(host: str, than: float) -> bool:
    """Return whether an agent has controlled since an instant."""
    return float(agent_status(host).get('time', 0)) > than


class Trial:
    """A span of time with a fault, and its checks."""

    def __init__(self, fleet: Fleet, observer: Observer) -> None:
        self.began = time.time()
        self._fleet, self._observer = fleet, observer
        self._lost = observer.units.lost_by.copy()
        self._before = {host: agent_status(host) for host in observer.hosts}

    def invalidations(self) -> dict[str, int]:
        """Return how many the agents have counted since, by host."""
        found = {}
        for host, before in self._before.items():
            now = agent_status(host)
            count = int(now['counters']['invalidations'])
            if now['incarnation'] == before.get('incarnation'):
                count -= int(before['counters']['invalidations'])
            found[host] = count
        return found

    def check_policy(self, hosts: Collection[str] | None = None,
                     since: float | None = None) -> None:
        """No policy became invalid, by the agents and by the kernel."""
        counted = self.invalidations()
        assert not any(counted.values()), counted
        since = self.began if since is None else since
        assert self._observer.is_alive(), 'the observer has died'
        run, rows, host = self._observer.longest_failure(since, hosts)
        assert run <= layout.TIMELIMIT, (
            f'cpu was above the policy for {run:.1f} s while secondaries ran '
            f'on {host}; when, all, they took, may at the floor, held up: '
            + '; '.join(
                f'{time.strftime("%T", time.gmtime(one.t))} {one.total:.0f} '
                f'{one.secondary:.1f} {one.floor:.1f} {one.held_up:.2f}'
                for one in rows))

    def check_nothing_lost(self) -> None:
        """Every member is there, none is broken, no unit of work is lost."""
        seen = self._fleet.look()
        missing = set(self._fleet.servers) - set(seen)
        assert not missing, [self._fleet.servers[m] for m in missing]
        broken = [one for one in seen.values() if one.status in (
            'ERROR', 'DELETED', 'SHUTOFF', 'UNKNOWN')]
        assert not broken, broken
        lost = self._observer.units.lost_by - self._lost
        assert not lost, (f'units of work are lost: {lost}; their consoles '
                          f'are {layout.LOG}/lost-*.console')

    def check(self) -> None:
        """Check all of it."""
        self.check_policy()
        self.check_nothing_lost()
