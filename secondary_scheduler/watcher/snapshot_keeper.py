# SPDX-License-Identifier: Apache-2.0

"""Snapshot of Nova and Placement, refreshed as a whole or in parts.

Nova cannot show the servers of a cell that does not answer.  They are *unseen*
and stay in the snapshot as they were, and their hosts are *unreachable*.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
import dataclasses
import threading
import time

from oslo_log import log

from secondary_scheduler.model import cluster
from secondary_scheduler.reports import book
from secondary_scheduler.watcher import server_lookup
from secondary_scheduler.watcher.cloud import Cloud
from secondary_scheduler.watcher.cloud_errors import CloudError, TimedOut
from secondary_scheduler.watcher.cloud_snapshot import (
    CloudSnapshot,
    ComputeHost,
    NovaServer,
    ServerGroup,
)

LOG = log.getLogger(__name__)

#: Largest number of servers that a refresh looks up one by one.
_LOOK_UPS = 20
#: Seconds for which a list of servers counts if an agent confirms it.
_CONFIRMED_S = 15.0
#: Seconds for which a server counts as seen that awaits its look-up.
_SEEN_S = 60.0


@dataclasses.dataclass(frozen=True)
class _Resolved:
    """Servers that are known after a list and look-ups.

    :param gone: servers that do not exist, or are no secondaries, any more.
    """

    servers: Mapping[str, NovaServer]
    unseen: frozenset[str]
    gone: frozenset[str]


class SnapshotKeeper:
    """Keeps the snapshot; its methods may be called by any thread.

    :param connect: returns this process's ``cloud.Cloud``.
    :param reports: reports of agents.
    :param clock: returns monotonic seconds.
    """

    def __init__(self, connect: Callable[[], Cloud], reports: book.HostBook,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._connect = connect
        self._reports = reports
        self._clock = clock
        self.snapshot = CloudSnapshot()
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._learning = threading.Lock()
        #: Reported instances that are no secondaries, by Nova.
        self._strangers: set[str] = set()
        self._seen_at: dict[str, float] = {}
        #: Times at which Nova has shown a server of a host, without a list.
        self._reached_at: dict[str, float] = {}

    def refresh_all(self) -> None:
        """Refresh all facts.

        :raises CloudError: if Nova or Placement does not answer; the old
            facts stay.
        """
        with self._refreshing:
            cloud, before = self._connect(), self.snapshot
            hosts = cloud.hosts()
            if cloud.gate.closed:   # the states of hosts may be old
                hosts = {name: dataclasses.replace(
                    host, unreachable=host.unreachable
                    or name in before.unreachable_hosts)
                    for name, host in hosts.items()}
            groups = self._find_groups(cloud, hosts)
            self._reached_at = {
                name: at for name, at in self._reached_at.items()
                if name in hosts}
            with self._lock:
                self.snapshot = dataclasses.replace(
                    self.snapshot, hosts=hosts, groups=groups,
                    hosts_time=self._clock())
                self._strangers.clear()
            self.refresh_servers()
            self._refresh_primary_hosts(cloud, groups)

    def _find_groups(self, cloud: Cloud, hosts: Mapping[str, ComputeHost]
                     ) -> tuple[ServerGroup, ...]:
        """Return the server groups; the last known ones beside a silent cell.

        Nova asks the cell of each member before it lists the groups.

        :raises CloudError: if none are known.
        """
        known = self.snapshot.hosts_time is not None
        if not any(one.unreachable for one in hosts.values()):
            return cloud.server_groups()
        if known and cloud.gate.closed:
            return self.snapshot.groups
        try:
            return cloud.server_groups()
        except CloudError as exc:
            if not known:
                raise
            LOG.warning('Server groups are as of the last answer: %s', exc)
            return self.snapshot.groups

    def _refresh_primary_hosts(self, cloud: Cloud,
                               groups: Iterable[ServerGroup]) -> None:
        # A group has few primaries beside secondaries, if any.
        servers = self.snapshot.servers.keys()
        wanted = sorted({uuid for group in groups
                         if not group.members.isdisjoint(servers)
                         for uuid in group.members - servers})[:_LOOK_UPS]
        found = cloud.primary_hosts(wanted)
        with self._lock:
            unreachable = self.snapshot.unreachable_hosts
            kept = {uuid: host for uuid, host
                    in self.snapshot.primary_hosts.items()
                    if uuid in wanted and host in unreachable}
            self.snapshot = dataclasses.replace(
                self.snapshot, primary_hosts={**kept, **found})

    def refresh_servers(self, known: Collection[str] = ()) -> frozenset[str]:
        """Refresh all servers of secondaries.

        :param known: UUIDs of further servers to look up.
        :returns: UUIDs of servers that do not exist, or are no secondaries,
            any more.
        :raises CloudError: if Nova does not answer.
        """
        cloud, now, complete = self._connect(), self._clock(), True
        listed: dict[str, NovaServer] = {}
        closed = cloud.gate.closed
        try:
            listed = cloud.servers()
        except TimedOut:
            complete = False
        reported = {one.uuid for report in self._reports.hosts().values()
                    for one in report.instances}
        found = self._resolve(cloud, listed, complete, {
            *known, *self.snapshot.servers, *(reported - self._strangers)},
            look_up=complete or closed)
        self._strangers |= reported - found.servers.keys() - found.unseen
        self._seen_at = {uuid: self._seen_at[uuid] for uuid in found.servers
                         if uuid in self._seen_at}
        with self._lock:
            self.snapshot = dataclasses.replace(
                self.snapshot, servers=found.servers, unseen=found.unseen
                | self._on_unreachable_hosts(
                    found.servers.keys() - listed.keys()),
                servers_time=now if complete else self.snapshot.servers_time)
        return found.gone

    def refresh_hosts(self, names: Collection[str]) -> None:
        """Refresh the servers on the hosts of a decision.

        * A host is left out if its agent confirms the last list, or if its
          cell does not answer.
        * One call per host: a violation must not wait for a list of the whole
          cloud.  That list is used if there are more hosts than flavors, since
          it is cheaper then, and if ``names`` is empty.
        * Servers on other hosts, possible targets, stay as of the last list:
          each action checks its instance again, and Placement admits by its
          own allocations.

        :raises CloudError: if Nova does not answer.
        """
        cloud = self._connect()
        if not names:
            self.refresh_servers()
            return
        names = [name for name in names if not self._is_confirmed(name)
                 and name not in self.snapshot.unreachable_hosts]
        if len(names) > 1 and len(names) > len(cloud.flavors()):
            self.refresh_servers()
            return
        listed: dict[str, NovaServer] = {}
        complete, closed = True, cloud.gate.closed
        try:
            for name in names:
                listed.update(cloud.servers_on(name))
        except TimedOut:
            complete = False
        # Servers that left one of these hosts are elsewhere now, or deleted.
        there = {uuid for uuid, server in self.snapshot.servers.items()
                 if server.host in names}
        if len(there - listed.keys()) > _LOOK_UPS:
            self.refresh_servers()
            return
        if not complete:
            reports = [self._reports.get(name) for name in names]
            there |= {one.uuid for report in reports if report
                      for one in report.instances} - self._strangers
        found = self._resolve(cloud, listed, complete, there,
                              look_up=complete or closed)
        with self._lock:
            others = {uuid: server for uuid, server
                      in self.snapshot.servers.items() if uuid not in there}
            self.snapshot = dataclasses.replace(
                self.snapshot, servers={**others, **found.servers},
                unseen=self.snapshot.unseen - there | found.unseen)

    def _resolve(self, cloud: Cloud, listed: Mapping[str, NovaServer],
                 complete: bool, wanted: Collection[str], look_up: bool
                 ) -> _Resolved:
        """Find out about the wanted servers that a list does not show.

        :param complete: the list has been answered.  Otherwise running
            servers are as their agents report them.
        :param look_up: no request has waited for a cell yet, so one may.
        """
        before, now = self.snapshot.servers, self._clock()
        missing = set(wanted) - listed.keys()
        hidden = self._on_unreachable_hosts(missing)
        confirmed = set() if complete else {
            uuid for uuid in missing - hidden
            if self._is_reported_running(uuid)}
        asked = sorted(missing - hidden - self._need_no_look_up(confirmed),
                       key=lambda uuid: (self._seen_at.get(uuid, 0.0), uuid))
        answer = server_lookup.look_up_servers(
            cloud, asked[:_LOOK_UPS] if look_up else ())
        for uuid in answer.found:
            self._reached_at[answer.found[uuid].host or ''] = now
        self._note_unreachable({
            before[uuid].host or '' for uuid in answer.unseen
            if uuid in before})
        self._seen_at |= dict.fromkeys(
            {*listed, *answer.found, *confirmed}, now)
        left = missing - answer.found.keys() - answer.gone - answer.strangers
        unseen = answer.unseen | self._on_unreachable_hosts(left) | {
            uuid for uuid in left
            if uuid not in before
            or self._seen_at.get(uuid, float('-inf')) < now - _SEEN_S}
        return _Resolved(
            {**{uuid: before[uuid] for uuid in left if uuid in before},
             **listed, **answer.found},
            frozenset(unseen), frozenset(answer.gone | answer.strangers))

    def _need_no_look_up(self, confirmed: Collection[str]) -> set[str]:
        """Return the servers, confirmed by agents, that need no look-up.

        One server of each host is looked up every minute: an agent does not
        know whether Nova can reach its host.
        """
        now, servers = self._clock(), self.snapshot.servers
        asked = {servers[uuid].host or '': uuid for uuid in confirmed
                 if self._reached_at.get(servers[uuid].host or '', float(
                     '-inf')) < now - _SEEN_S}
        return set(confirmed) - set(asked.values())

    def _on_unreachable_hosts(self, uuids: Iterable[str]) -> set[str]:
        servers, away = self.snapshot.servers, self.snapshot.unreachable_hosts
        return {uuid for uuid in uuids
                if uuid in servers and servers[uuid].host in away}

    def _is_reported_running(self, uuid: str) -> bool:
        """Return whether the agent of its host confirms that a server runs."""
        server = self.snapshot.servers.get(uuid)
        report = self._reports.get(server.host or '') if server else None
        return (server is not None and report is not None
                and server.state is cluster.InstanceState.ACTIVE
                and any(one.uuid == uuid and not one.paused
                        for one in report.instances))

    def _is_confirmed(self, name: str) -> bool:
        """Return whether a host's agent confirms the last list of servers.

        Another request to Nova would take longer than the rest of a decision.
        """
        listed = self.snapshot.servers_time
        report = self._reports.get(name)
        if (listed is None or self._clock() > listed + _CONFIRMED_S
                or report is None):
            return False
        there = {uuid: server.state for uuid, server
                 in self.snapshot.servers.items()
                 if server.host == name and server.state not in cluster.DOWN}
        return (there.keys() == {one.uuid for one in report.instances}
                and set(there.values()) <= {cluster.InstanceState.ACTIVE})

    def note_switched(self, name: str, off: bool) -> None:
        """Note that a host was switched off or on, until the next refresh."""
        host = self.snapshot.hosts.get(name)
        if host is not None:
            self._change_hosts([dataclasses.replace(
                host, switched_off=off,
                reserved=host.total if off else host.reserved)])

    def _note_unreachable(self, names: Collection[str]) -> None:
        """Note hosts of which a server is unseen; learn about all others.

        The other hosts of their cell have the same fault.
        """
        hosts = self.snapshot.hosts
        new = [dataclasses.replace(hosts[name], unreachable=True)
               for name in names
               if name in hosts and not hosts[name].unreachable]
        if not new:
            return
        LOG.warning('The cells of these hosts do not answer Nova: %s. Their '
                    'servers are unknown until they do.', ', '.join(
                        sorted(one.name for one in new)))
        self._change_hosts(new)
        with self._lock:
            self.snapshot = dataclasses.replace(
                self.snapshot, unseen=self.snapshot.unseen
                | self._on_unreachable_hosts(self.snapshot.servers))
        if self._learning.acquire(blocking=False):
            threading.Thread(target=self._learn_reach, daemon=True,
                             name='secondary-cells').start()

    def _learn_reach(self) -> None:
        """Ask Nova once which hosts are unreachable; it may take a minute."""
        try:
            self._note_unreachable(self._connect().unreachable_hosts())
        except Exception as exc:    # the next refresh asks again
            LOG.warning('Nova does not say which cells answer: %s', exc)
        finally:
            self._learning.release()

    def _change_hosts(self, changed: Iterable[ComputeHost]) -> None:
        with self._lock:
            self.snapshot = dataclasses.replace(self.snapshot, hosts={
                **self.snapshot.hosts, **{one.name: one for one in changed}})
