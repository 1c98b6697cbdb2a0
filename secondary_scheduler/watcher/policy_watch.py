"""The leader's thread: violations into audits, and what a switch means."""

import threading
import time
from typing import Any
import uuid

from oslo_config import cfg
from oslo_log import log
from oslo_utils import timeutils

from secondary_scheduler.model import cluster
from secondary_scheduler.watcher import cloud as clouds
from secondary_scheduler.watcher import cluster_builder as snapshots
from secondary_scheduler.watcher import cluster_state, leader, stages
from secondary_scheduler.watcher import history as histories
from secondary_scheduler.watcher import scope as scopes

LOG = log.getLogger(__name__)

_TICK = 1.0             # s between two looks when nothing arrives
_PENDING_TICK = 0.2     # s while a window is open
_BLOCKED_PAUSE = 0.5    # s until a batch that may not leave is tried again
_CHORES = 5.0           # s between two rounds of chores
_LOST_AFTER = 10.0      # s after which an audit's trigger counts as lost
_IN_FLIGHT = ('PENDING', 'ONGOING')
_IN_VAIN = ('FAILED', 'CANCELLED')


class Watch:
    """Creates audits while this decision engine leads.

    All it must remember beyond a few seconds is in Watcher's database, so
    that another engine can go on where this one ended.
    """

    def __init__(self, conf: cfg.ConfigOpts, seen: cluster_state.ClusterState,
                 coordination: leader.Coordination) -> None:
        self._conf: Any = conf
        self._seen = seen
        self._history = seen.history
        self._coordination = coordination
        self._began = seen.clock()
        self._blocked_until = 0.0
        self._next_chores = 0.0
        self._triggered_again: set[str] = set()
        self._warned: set[str] = set()
        self._fallen: frozenset[str] = frozenset()
        self._ended: frozenset[tuple[str, str]] = frozenset()

    def start(self) -> None:
        """Run for the rest of the process's life."""
        threading.Thread(target=self._run, daemon=True,
                         name='secondary-watch').start()

    def _run(self) -> None:
        pending = False
        while True:
            self._seen.arrived.wait(_PENDING_TICK if pending else _TICK)
            self._seen.arrived.clear()
            try:
                pending = self.tick()
            except Exception:
                LOG.exception('Watching over secondaries met a problem.')
                time.sleep(_TICK)

    def tick(self) -> bool:
        """Do what is due now; tell whether violations are waiting."""
        window, now = self._seen.window, self._seen.clock()
        window.forget(self._seen.book.hosts())
        self._seen.note_totals()
        for host, since in self._seen.relief_due().items():
            window.note_relief(host, now, time.time() - (now - since))
        if not self._coordination.am_i_leader():
            return False
        if now >= self._blocked_until and self._knows(now):
            hosts = window.due(
                self._conf.secondary_watcher.collect_window, now)
            if hosts and not self._send(hosts, now):
                self._blocked_until = now + _BLOCKED_PAUSE
        if now >= self._next_chores:
            self._next_chores = now + _CHORES
            self._chores()
        return window.waiting

    def _knows(self, now: float) -> bool:
        """Tell whether every host has had the time to report to us.

        An engine that has just begun takes those it has not heard of for
        closed, and would suspend where there is room to migrate.
        """
        stale_after = self._conf.secondary_scheduler.report_stale_after
        return bool(now >= self._began + stale_after or self._seen.complete)

    # Violations

    def _send(self, hosts: tuple[str, ...], now: float) -> bool:
        """Create an audit for each switched-on scope with due hosts."""
        options = self._conf.secondary_watcher
        children = [c for c in self._history.children(
                        max(60.0, options.backoff, options.audit_timeout))
                    if c.request == 'preempt']
        covered = {host for c in children for host in c.hosts
                   if host in hosts and c.age < options.backoff
                   and not c.failed and c.state not in _IN_VAIN
                   and self._still_counts(c, host, now)}
        left = set(hosts) - covered - self._history.locks().hosts
        sent = False
        for switch in self._history.switches():
            if not switch.on:
                continue
            mine = left & self._resolve(switch).hosts
            own = [c for c in children if c.switch == switch.uuid]
            if not mine or any(c.state in _IN_FLIGHT for c in own):
                continue
            if (sum(c.age < 60 for c in own) >= options.audits_per_minute):
                LOG.warning('Violations on %s wait: %d audits in the last '
                            'minute.', ', '.join(sorted(mine)), len(own))
                continue
            batch = self._seen.window.take(mine, now)
            stages.mark(batch.id, stages.REPORT, batch.reported)
            stages.mark(batch.id, stages.WINDOW)
            self._history.submit('preempt', batch.hosts, switch, batch.id)
            left -= mine
            sent = True
        return sent

    def _still_counts(self, child: histories.OneShotAudit, host: str,
                      now: float) -> bool:
        """Tell whether an audit is a reason to wait with another one.

        One that found nothing to do, since the host held its policies again,
        says nothing of the next violation.
        """
        return (self._seen.window.began(host) <= now - child.age
                or child.state in _IN_FLIGHT
                or self._history.has_actions(child.uuid))

    def _resolve(self, switch: histories.Switch) -> scopes.ResolvedScope:
        return scopes.resolve(switch.scope, self._seen.snapshot.places)

    # Chores

    def _chores(self) -> None:
        switches = self._history.switches()
        children = self._history.children(3600)
        self._look_after_audits(children)
        self._history.give_up_silent_plans()
        for switch in switches:
            if switch.state == 'FAILED':
                self._history.revive(switch)
            elif switch.orphaned and switch.uuid not in self._warned:
                self._warned.add(switch.uuid)
                LOG.warning(
                    'Audit %s was cancelled by Watcher itself since another '
                    'version of this package has another strategy. Until a '
                    'new CONTINUOUS audit is created on its scope, agents '
                    'hold the policies there and nothing is moved.',
                    switch.uuid)
        self._close_what_is_off(switches, children)
        self._forget_old_marks()
        self._mark_killed_instances()
        self._log_instances_in_error()

    def _look_after_audits(
        self, children: list[histories.OneShotAudit]) -> None:
        """See to audits whose trigger or engine was lost."""
        for child in children:
            if child.state not in _IN_FLIGHT:
                continue
            if child.age > self._conf.secondary_watcher.audit_timeout:
                self._history.abandon(child)
            elif (not child.adopted and child.age > _LOST_AFTER
                    and child.uuid not in self._triggered_again):
                self._triggered_again.add(child.uuid)
                self._history.trigger_again(child)
        self._triggered_again &= {c.uuid for c in children}

    def _close_what_is_off(self, switches: list[histories.Switch],
                           children: list[histories.OneShotAudit]) -> None:
        """Close and drain hosts whose switch was cancelled (decision 8).

        Hosts that another switch holds, on or paused, are not closed; those
        that one holds on are opened again, however they came to be closed.
        So neither the order of switches nor their age matters.
        """
        held: frozenset[str] = frozenset().union(*(
            self._resolve(s).hosts for s in switches
            if s.begun and not s.off))
        self._open(self._seen.switched_on(switches))
        locks = self._history.locks()
        drained = {host for c in children for host in c.hosts
                   if c.request == 'drain' and (
                       c.state in _IN_FLIGHT
                       or c.age < self._conf.secondary_watcher.backoff)}
        for switch in switches:
            if not switch.off:
                continue
            hosts = self._resolve(switch).hosts - held
            self._close(hosts)
            running = {
                s.host for s in self._seen.snapshot.servers.values()
                if s.host in hosts and s.uuid not in locks.instances
                and s.state is cluster.InstanceState.ACTIVE}
            due = {h for h in running if h} - drained
            if due:
                drained |= due
                self._history.submit('drain', due, switch,
                                     str(uuid.uuid4()))

    def _close(self, hosts: frozenset[str]) -> None:
        known = self._seen.snapshot.hosts
        for name in sorted(hosts & known.keys()):
            host = known[name]
            if host.total and not (host.switched_off and host.closed):
                self._switch(host, off=True)

    def _open(self, hosts: frozenset[str]) -> None:
        known = self._seen.snapshot.hosts
        for name in sorted(hosts & known.keys()):
            if known[name].switched_off:
                self._switch(known[name], off=False)

    def _switch(self, host: snapshots.ComputeHost, off: bool) -> None:
        if host.root is None:
            return
        cloud, word = self._seen.connect(), 'off' if off else 'on'
        try:
            if off:
                cloud.close_admission(host.root)
            else:
                cloud.open_admission(host.root)
        except clouds.CloudError as exc:
            LOG.warning('Cannot switch secondaries %(word)s on %(host)s: '
                        '%(why)s', {'word': word, 'host': host.name,
                                    'why': exc})
            return
        self._seen.note_switched(host.name, off)
        LOG.info('Secondaries on %(host)s are switched %(word)s.',
                 {'host': host.name, 'word': word})

    def _log_instances_in_error(self) -> None:
        """Say, once, which instances keep their leases down."""
        fallen = {server.uuid: server.lease
                  for server in self._seen.snapshot.servers.values()
                  if server.fallen}
        for one in sorted(fallen.keys() - self._fallen):
            LOG.warning(
                'Instance %(uuid)s was preempted and is in ERROR now, so its '
                'lease %(lease)s cannot run. It returns when the instance '
                'was rebooted (openstack server reboot --hard) or deleted.',
                {'uuid': one, 'lease': fallen[one]})
        self._fallen = frozenset(fallen)

    def _mark_killed_instances(self) -> None:
        """Mark the instances that their hosts have ended: they are to return.

        Once each, so that an owner who takes the mark away has the last word.
        A host speaks for the instances that Nova has on it, and no others.
        """
        servers = self._seen.snapshot.servers
        told = {(host, one): why
                for host, report in self._seen.book.hosts().items()
                for one, why in report.killed.items() if one in servers}
        ended = self._ended & told.keys()
        for host, one in sorted(told.keys() - ended):
            try:
                now = self._seen.connect().server(one)
                if now is None or (now.host, now.status, now.task_state) != (
                        host, 'SHUTOFF', None):
                    continue
                if snapshots.PREEMPTED not in now.metadata:
                    self._seen.connect().set_metadata(
                        one, snapshots.PREEMPTED,
                        f'killed@{timeutils.utcnow():%Y-%m-%dT%H:%M:%SZ}')
                    LOG.warning(
                        'Instance %(uuid)s was ended by its host %(host)s '
                        '(%(why)s) and is started again when there is room.',
                        {'uuid': one, 'host': host, 'why': told[host, one]})
                ended |= {(host, one)}
            except clouds.CloudError as exc:
                LOG.debug('%s is not marked yet: %s', one, exc)
        self._ended = ended

    def _forget_old_marks(self) -> None:
        """Unmark instances that we put down and their owner woke."""
        locked = self._history.locks().instances
        for server in self._seen.snapshot.servers.values():
            if (snapshots.PREEMPTED not in server.metadata
                    or server.state is not cluster.InstanceState.ACTIVE
                    or server.uuid in locked):
                continue
            try:
                now = self._seen.connect().server(server.uuid)
                if now and now.state is cluster.InstanceState.ACTIVE:
                    self._seen.connect().delete_metadata(
                        server.uuid, snapshots.PREEMPTED)
            except clouds.CloudError as exc:
                LOG.debug('The mark of %s stays: %s', server.uuid, exc)
