# SPDX-License-Identifier: Apache-2.0

"""The secondaries of the demo, seen from outside: servers, units, operations.
"""

import collections
import contextlib
import datetime
import json
import re
import shutil
import threading
import time

import guest
import hosts as box_hosts
import layout
import seed
from shell import BoxError

#: Time that two looks for changes have in common.
OVERLAP = datetime.timedelta(seconds=5)


class Units:
    """Counts finished work units of servers from their console logs.

    A guest counts in memory and prints the count with the id of its boot.
    When a new boot begins all that the guest had counted before is lost, and
    when a count goes down what it went down by: only a restart, a kill, an
    old memory image or a crash of the guest does that.  Its console is kept
    among the logs then.
    """

    def __init__(self, servers: list[str]) -> None:
        self.count = dict.fromkeys(servers, 0)
        self.boot: dict[str, bytes] = {}
        self.lost_by: collections.Counter[str] = collections.Counter()
        self.done = 0

    @property
    def lost(self) -> int:
        """Units lost by all."""
        return self.lost_by.total()

    def update(self) -> None:
        """Read every console's newest line."""
        for server in self.count:
            try:
                found = guest.last_units(guest.console(server))
            except FileNotFoundError:
                continue
            if not found:
                continue
            boot, units = found
            before = self.count[server]
            kept = (min(units, before)
                    if self.boot.get(server, boot) == boot else 0)
            if kept < before:   # the console says why, until it moves
                with contextlib.suppress(OSError):
                    shutil.copy(guest.console(server),
                                layout.LOG / f'lost-{server}.console')
            self.lost_by[server] += before - kept
            self.done += units - kept
            self.boot[server] = boot
            self.count[server] = units


def boot(cloud, members, seconds: float = 400,
         image: str = 'worker-cpu') -> dict[str, str]:
    """Boot members, (name, flavor, lease or None), one after the other.

    A server that finds no host is requested again: hosts open only after some
    calm seconds.

    :returns: {uuid: name}
    :raises BoxError: if that takes too long.
    """
    deadline = time.monotonic() + seconds
    image = cloud.image.find_image(image).id
    servers: dict[str, str] = {}
    for one in members:
        while one[0] not in servers.values():
            server = _wait(cloud, _request(cloud, image, *one),
                           lambda s: s.status != 'BUILD')
            if server.status == 'ACTIVE':
                servers[server.id] = server.name
                continue
            reason = (server.fault or {}).get('message', 'no reason given')
            cloud.compute.delete_server(server.id)
            if time.monotonic() > deadline:
                raise BoxError(f'{server.name} found no host in '
                               f'{seconds:g} s: {reason}')
    return servers


def _request(cloud, image: str, name: str, flavor: str,
             lease: str | None) -> str:
    more = {'scheduler_hints': {'secondary_lease': lease},
            'metadata': {'secondary:lease': lease}} if lease else {}
    return cloud.compute.create_server(
        name=name, networks='none', image_id=image,
        flavor_id=cloud.compute.find_flavor(flavor).id, **more).id


def _wait(cloud, uuid: str, reached, seconds: float = 240):
    """Return a server as soon as it is as wanted.

    :raises BoxError: if that takes too long.
    """
    deadline = time.monotonic() + seconds
    while not reached(server := cloud.compute.get_server(uuid)):
        if time.monotonic() > deadline:
            raise BoxError(f'{server.name} is still {server.status} '
                           f'({server.task_state}) after {seconds:g} s; read '
                           '"python3 tools/box logs nova"')
        time.sleep(0.3)
    return server


def wait_working(servers: dict[str, str], seconds: float = 300) -> None:
    """Wait until every guest, {uuid: name}, has booted and counts.

    :raises BoxError: if that takes too long.
    """
    units = Units(list(servers))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        units.update()
        if all(units.count.values()):
            return
        time.sleep(1)
    silent = [servers[s] for s, n in units.count.items() if not n]
    raise BoxError(f'no work seen from {silent} in {seconds:g} s; their '
                   f'consoles are in {layout.SHARED}/instances')


class Watch(threading.Thread):
    """Follows the servers' states and hosts, and their work units."""

    def __init__(self, cloud, servers: dict[str, str],
                 period: float = 2.0) -> None:
        super().__init__(daemon=True)
        self.cloud, self.servers, self.period = cloud, servers, period
        self.units = Units(list(servers))
        self.history: list[tuple[float, str, str, str]] = []
        self._last: dict[str, tuple] = {}
        self._looked: datetime.datetime | None = None
        self._ended = threading.Event()

    def run(self) -> None:
        """Poll until stopped."""
        while not self._ended.wait(self.period):
            self.poll()

    def poll(self) -> None:
        """Note each change of state or host.

        Nova is asked for what has changed since the last look only: a list
        of all would delay what is measured.
        """
        self.units.update()
        since, self._looked = self._looked, datetime.datetime.now(
            datetime.UTC) - OVERLAP
        try:
            found = list(self.cloud.compute.servers(
                all_projects=True,
                **{'changes_since': since.isoformat()} if since else {}))
        except Exception as problem:
            self._looked = since
            print(f'  (Nova did not answer: {problem})', flush=True)
            return
        for server in found:
            if server.id not in self.servers:
                continue
            state = (server.status, server.compute_host or '',
                     server.task_state or '')
            if self._last.get(server.id) != state:
                self._last[server.id] = state
                self.history.append((time.time(), server.id, state[0],
                                     state[1]))

    def stop(self) -> None:
        """End the thread after one last look."""
        self._ended.set()
        self.join()
        self.poll()

    def running(self) -> int:
        """Return how many servers run now."""
        return sum(state[0] == 'ACTIVE' for state in self._last.values())

    def states(self) -> dict[str, tuple]:
        """Return the last (status, host, task) of each server."""
        return dict(self._last)


def agent_statuses(names: list[str]) -> list[dict]:
    """Return what the agents of the hosts say, if they do."""
    found = []
    for host in names:
        path = box_hosts.directory(host) / 'agent/status.json'
        with contextlib.suppress(OSError, ValueError):
            found.append(json.loads(path.read_text()))
    return found


def agent_counters(names: list[str]) -> dict[str, float]:
    """Sum the agents' counters over the hosts."""
    sums: dict[str, float] = {}
    for status in agent_statuses(names):
        for name, value in status.get('counters', {}).items():
            sums[name] = sums.get(name, 0) + value
    return sums


STAGE = re.compile(r'secondary-stage batch=(\S+) stage=(\S+) t=([\d.]+)')


def stages(since: float) -> list[dict]:
    """Read the stages of each batch from Watcher's logs.

    Returns one dictionary per batch: {stage: seconds since the epoch}.
    """
    batches: dict[str, dict] = {}
    for path in layout.LOG.glob('watcher-*-service.log'):
        for batch, stage, t in STAGE.findall(path.read_text(
                errors='replace')):
            if float(t) >= since:
                found = batches.setdefault(batch, {})
                found[stage] = min(float(t), found.get(stage, 1e12))
    return sorted(batches.values(), key=lambda b: min(b.values()))


def are_operated(cloud, since: float) -> bool:
    """Return whether an operation that began since an instant is under way."""
    return any(one['state'] == 'ONGOING' for one in operations(cloud, since))


def operations(cloud, since: float) -> list[dict]:
    """Return Watcher's actions since an instant, newest plan last."""
    found = []
    for action in seed.listed(seed.watcher(cloud), 'actions'):
        created = datetime.datetime.fromisoformat(
            action['created_at']).replace(tzinfo=datetime.UTC).timestamp()
        if created < since - 1:
            break
        kind = action['action_type']
        if kind.startswith('secondary_'):
            ended = action['updated_at']
            found.append({
                'kind': kind.removeprefix('secondary_'),
                'state': action['state'], 'created': created,
                'ended': ended and datetime.datetime.fromisoformat(
                    ended).replace(tzinfo=datetime.UTC).timestamp(),
                'parameters': action['input_parameters'],
                'message': action.get('status_message')})
    return sorted(found, key=lambda row: row['created'])
