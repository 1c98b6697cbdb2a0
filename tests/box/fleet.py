# SPDX-License-Identifier: Apache-2.0

"""The secondaries of the tests: booted by their owner, followed by admin."""

from collections import deque
from collections.abc import Callable, Collection
import dataclasses
from typing import Any

from keystoneauth1 import exceptions as auth_exceptions
from openstack import exceptions

import secondaries
from tests.box.primaries import delete
from tests.box.services import agent_status, wait_until

#: (name, flavor, lease label): more than two hosts of the box can hold, so
#: that a burst on the third leads to migrations and to suspends.
MEMBERS = (('test-pair-1', 'secondary.low', 'pair'),
           ('test-pair-2', 'secondary.low', 'pair'),
           *((f'test-mid-{n}', 'secondary', None) for n in range(1, 7)),
           ('test-high-1', 'secondary.high', None),
           ('test-high-2', 'secondary.high', None))
#: For how many seconds a host has been open that counts as calm.
OPEN_S = 10
#: Seconds without an operation: longer than the cooling down of a host in
#: Watcher (option ``backoff``).
QUIET_S = 32
#: Errors of a client whose service does not answer, or refuses.
AWAY = (exceptions.SDKException, auth_exceptions.ClientException)


@dataclasses.dataclass(frozen=True)
class Seen:
    """A server as Nova shows it to its operator."""

    name: str
    status: str
    task: str | None
    host: str | None
    domain: str
    preempted: bool


class Fleet:
    """Boots, follows and restores the secondaries.

    ``servers`` maps the UUID of each one to its name.
    """

    def __init__(self, cloud: Any, owner: Any, hosts: list[str],
                 note: Callable[[str], object]) -> None:
        self.cloud, self.owner, self.hosts = cloud, owner, hosts
        self._note = note
        self.servers: dict[str, str] = {}

    def restore(self) -> None:
        """Boot what is missing: another test may have deleted some."""
        there = self.look().keys()
        self.servers = {uuid: name for uuid, name in self.servers.items()
                        if uuid in there}
        booted = secondaries.boot(self.owner, [
            one for one in MEMBERS if one[0] not in self.servers.values()])
        self.servers |= booted
        for uuid in booted:
            self._note(uuid)

    def look(self) -> dict[str, Seen]:
        """Return the members that exist; nothing while Nova is away."""
        try:
            found = list(self.cloud.compute.servers(all_projects=True))
        except AWAY:
            return {}
        return {s.id: Seen(s.name, s.status, s.task_state, s.compute_host,
                           s.instance_name,
                           'secondary:preempted' in (s.metadata or {}))
                for s in found if s.id in self.servers}

    def on(self, host: str) -> set[str]:
        """Return the members on a host."""
        return {uuid for uuid, seen in self.look().items()
                if seen.host == host}

    def busiest(self) -> str:
        """Return the host with the most members."""
        hosts = [seen.host for seen in self.look().values() if seen.host]
        return max(sorted(set(hosts)), key=hosts.count)

    def all_run(self) -> bool:
        """Return whether each member runs without a task."""
        seen = self.look()
        return len(seen) == len(self.servers) and all(
            one.status == 'ACTIVE' and one.task is None and not one.preempted
            for one in seen.values())

    def quiet(self) -> bool:
        """Return whether no member has a task."""
        seen = self.look()
        return bool(seen) and all(one.task is None for one in seen.values())

    def wait_all_run(self, timeout: float) -> None:
        """Wait until the fleet is as its owner wants it."""
        wait_until(self.all_run, timeout, lambda: 'all run: ' + str(
            [one for one in self.look().values()
             if one.status != 'ACTIVE' or one.task or one.preempted]),
            period=1)

    def wait_calm(self, timeout: float) -> None:
        """Wait until it runs and a host beside the busiest takes one more.

        A server that boots, resumes or arrives keeps a host busy for a moment,
        for which its agent closes it; a burst finds no target then.  The
        cloud is asked some seconds after the burst begins, so the host must
        stay open.  Nor does Watcher bring anything to a host that is cooling
        down.
        """
        self.wait_all_run(timeout)
        others = set(self.hosts) - {self.busiest()}
        opened: deque[bool] = deque(maxlen=OPEN_S)
        rested: deque[bool] = deque(maxlen=QUIET_S)

        def stays_open() -> bool:
            opened.append(any(agent_status(host).get('admission')
                              for host in others))
            rested.append(self.quiet())
            return len(rested) == QUIET_S and all(rested) and all(opened)

        wait_until(
            stays_open, timeout,
            lambda: 'a host is open: ' + str(
                {host: agent_status(host).get('reason') for host in others}),
            period=1)

    def wait_one(self, timeout: float, what: str,
                 which: Callable[[Seen], bool], period: float = 0.3) -> str:
        """Wait for a member of which something is true; return its UUID."""
        return str(wait_until(
            lambda: next((uuid for uuid, seen in self.look().items()
                          if which(seen)), None),
            timeout, lambda: f'{what}: {list(self.look().values())}',
            period=period))

    def delete(self, uuids: Collection[str] | None = None) -> None:
        """Delete members (all of them by default) and wait for it."""
        doomed = list(self.servers if uuids is None else uuids)
        delete(self.cloud, *doomed)
        for uuid in doomed:
            self.servers.pop(uuid, None)


def remove_leftovers(cloud: Any) -> None:
    """Delete the servers that an interrupted run has left."""
    delete(cloud, *(server.id for server in cloud.compute.servers(
        all_projects=True) if server.name.startswith('test-')))
