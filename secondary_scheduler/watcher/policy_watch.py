# SPDX-License-Identifier: Apache-2.0

"""Thread of the leader: creates audits for violations, follows switches."""

import threading
import time
from typing import Any
import uuid

from oslo_config import cfg
from oslo_log import log
from oslo_utils import timeutils

from secondary_scheduler.model import cluster
from secondary_scheduler.watcher import (
    audits,
    cluster_state,
    decision_measures,
    leader,
    stages,
    terms,
)
from secondary_scheduler.watcher.cloud_errors import CloudError
from secondary_scheduler.watcher.cloud_snapshot import PREEMPTED, ComputeHost
from secondary_scheduler.watcher.history import OneShotAudit, Switch
from secondary_scheduler.watcher.scope import ResolvedScope, resolve_scope

LOG = log.getLogger(__name__)

_TICK = 1.0             # s between two passes when no report arrives
_PENDING_TICK = 0.2     # s between two passes while violations wait
_BLOCKED_PAUSE = 0.5    # s until a batch without an audit is retried
_CHORES = 5.0           # s between two rounds of chores
_LOST_AFTER = 10.0      # s after which an audit's trigger counts as lost
_IN_FLIGHT = ('PENDING', 'ONGOING')
_IN_VAIN = ('FAILED', 'CANCELLED')


class PolicyWatch:
    """Creates audits while this decision engine leads.

    State that must outlive a few seconds is in Watcher's database, so the next
    leader continues where this one ended.
    """

    def __init__(self, conf: cfg.ConfigOpts, state: cluster_state.ClusterState,
                 coordination: leader.Coordination) -> None:
        self._conf: Any = conf
        self._state = state
        self._history = state.history
        self._audits = audits.AuditManager()
        self._measures = decision_measures.shared()
        self._coordination = coordination
        self._began = state.clock()
        self._blocked_until = 0.0
        self._next_chores = 0.0
        self._term = 0
        self._taken_over_at = 0.0
        self._triggered_again: set[str] = set()
        self._warned: set[str] = set()
        self._fallen: frozenset[str] = frozenset()
        self._marked: frozenset[tuple[str, str]] = frozenset()

    def start(self) -> None:
        """Run for the rest of the process's life."""
        threading.Thread(target=self._run, daemon=True,
                         name='secondary-watch').start()

    def _run(self) -> None:
        pending = False
        while True:
            self._state.arrived.wait(_PENDING_TICK if pending else _TICK)
            self._state.arrived.clear()
            try:
                pending = self.tick()
            except Exception:
                LOG.exception('A pass of the policy watch failed.')
                time.sleep(_TICK)

    def tick(self) -> bool:
        """Run one pass; return whether violations are waiting."""
        window, now = self._state.window, self._state.clock()
        window.forget(self._state.book.hosts())
        self._state.note_totals()
        for host, since in self._state.relief_due().items():
            window.note_relief(host, now, time.time() - (now - since))
        if not self._coordination.am_i_leader():
            self._measures.waiting = None
            return False
        self._take_over_plans(now)
        if now >= self._blocked_until and self._has_heard_all(now):
            hosts = window.due(
                self._conf.secondary_watcher.collect_window, now)
            if hosts and not self._submit_audits(hosts, now):
                self._blocked_until = now + _BLOCKED_PAUSE
        if now >= self._next_chores:
            self._next_chores = now + _CHORES
            self._chores()
            self._measures.waiting = terms.find_waiting()
        return window.waiting

    def _take_over_plans(self, now: float) -> None:
        """Take over the plans of earlier leaders.

        For a while, since another engine may be about to store one.
        """
        term = self._coordination.term
        if term != self._term:
            self._term, self._taken_over_at = term, now + terms.TAKEOVER_S
        if now < self._taken_over_at:
            terms.take_over_plans(term)

    def _has_heard_all(self, now: float) -> bool:
        """Return whether every host has had the time to report.

        To an engine that has just started, hosts without a report are closed.
        It would suspend instances that could be migrated there.
        """
        stale_after = self._conf.secondary_scheduler.report_stale_after
        return bool(now >= self._began + stale_after or self._state.complete)

    # Violations

    def _submit_audits(self, hosts: tuple[str, ...], now: float) -> bool:
        """Create an audit for each switched-on scope with due hosts."""
        options = self._conf.secondary_watcher
        preempts = [
            audit for audit in self._history.one_shot_audits(
                max(60.0, options.backoff, options.audit_timeout))
            if audit.request == 'preempt']
        covered = {host for c in preempts for host in c.hosts
                   if host in hosts and c.age < options.backoff
                   and not c.failed and c.state not in _IN_VAIN
                   and self._covers(c, host, now)}
        left = set(hosts) - covered - self._history.locks().hosts
        sent = False
        for switch in self._history.switches():
            if not switch.on:
                continue
            mine = left & self._resolve(switch).hosts
            own = [c for c in preempts if c.switch == switch.uuid]
            if not mine or any(c.state in _IN_FLIGHT for c in own):
                continue
            if (sum(c.age < 60 for c in own) >= options.audits_per_minute):
                LOG.warning('Violations on %s wait: %d audits in the last '
                            'minute.', ', '.join(sorted(mine)), len(own))
                continue
            batch = self._state.window.take(mine, now)
            stages.mark(batch.id, stages.REPORT, batch.reported)
            stages.mark(batch.id, stages.WINDOW)
            self._audits.submit_audit('preempt', batch.hosts, switch, batch.id)
            left -= mine
            sent = True
        return sent

    def _covers(self, audit: OneShotAudit, host: str, now: float) -> bool:
        """Return whether a recent audit covers the host's present violation.

        An audit that found nothing to do, since the host had recovered, does
        not cover a violation that began after it.
        """
        return (self._state.window.began(host) <= now - audit.age
                or audit.state in _IN_FLIGHT
                or self._history.has_actions(audit.uuid))

    def _resolve(self, switch: Switch) -> ResolvedScope:
        return resolve_scope(switch.scope, self._state.snapshot.places)

    # Chores

    def _chores(self) -> None:
        switches = self._history.switches()
        one_shots = self._history.one_shot_audits(3600)
        self._look_after_audits(one_shots)
        self._audits.cancel_silent_plans()
        for switch in switches:
            if switch.state == 'FAILED':
                self._audits.revive_switch(switch)
            elif switch.orphaned and switch.uuid not in self._warned:
                self._warned.add(switch.uuid)
                LOG.warning(
                    'Audit %s was cancelled by Watcher itself since another '
                    'version of this package has another strategy. Until a '
                    'new CONTINUOUS audit is created on its scope, agents '
                    'hold the policies there and nothing is moved.',
                    switch.uuid)
        self._close_what_is_off(switches, one_shots)
        self._remove_old_marks()
        self._mark_killed_instances()
        self._log_instances_in_error()

    def _look_after_audits(self, one_shots: list[OneShotAudit]) -> None:
        """Retrigger audits without an engine, and cancel overdue ones."""
        for audit in one_shots:
            if audit.state not in _IN_FLIGHT:
                continue
            if audit.age > self._conf.secondary_watcher.audit_timeout:
                self._audits.cancel_audit(audit)
            elif (not audit.adopted and audit.age > _LOST_AFTER
                    and audit.uuid not in self._triggered_again):
                self._triggered_again.add(audit.uuid)
                self._audits.retrigger_audit(audit)
        self._triggered_again &= {c.uuid for c in one_shots}

    def _close_what_is_off(self, switches: list[Switch],
                           one_shots: list[OneShotAudit]) -> None:
        """Close and drain the hosts of cancelled switches.

        Hosts in the scope of another switch that is on or paused are not
        closed.  Hosts in the scope of a switch that is on are opened,
        whichever switch closed them.  So neither the order of switches nor
        their age matters (see reference/decisions, 8).
        """
        held: frozenset[str] = frozenset().union(*(
            self._resolve(s).hosts for s in switches
            if s.begun and not s.off))
        self._open(self._state.switched_on(switches))
        locks = self._history.locks()
        drained = {host for c in one_shots for host in c.hosts
                   if c.request == 'drain' and (
                       c.state in _IN_FLIGHT
                       or c.age < self._conf.secondary_watcher.backoff)}
        for switch in switches:
            if not switch.off:
                continue
            hosts = self._resolve(switch).hosts - held
            self._close(hosts)
            running = {
                s.host for s in self._state.snapshot.servers.values()
                if s.host in hosts and s.uuid not in locks.instances
                and s.state is cluster.InstanceState.ACTIVE}
            due = {h for h in running if h} - drained
            if due:
                drained |= due
                self._audits.submit_audit('drain', due, switch,
                                          str(uuid.uuid4()))

    def _close(self, hosts: frozenset[str]) -> None:
        known = self._state.snapshot.hosts
        for name in sorted(hosts & known.keys()):
            host = known[name]
            if host.total and not (host.switched_off and host.closed):
                self._switch(host, off=True)

    def _open(self, hosts: frozenset[str]) -> None:
        known = self._state.snapshot.hosts
        for name in sorted(hosts & known.keys()):
            if known[name].switched_off:
                self._switch(known[name], off=False)

    def _switch(self, host: ComputeHost, off: bool) -> None:
        if host.root is None:
            return
        cloud, word = self._state.connect(), 'off' if off else 'on'
        try:
            if off:
                cloud.close_admission(host.root)
            else:
                cloud.open_admission(host.root)
        except CloudError as exc:
            LOG.warning('Cannot switch secondaries %(word)s on %(host)s: '
                        '%(why)s', {'word': word, 'host': host.name,
                                    'why': exc})
            return
        self._state.note_switched(host.name, off)
        LOG.info('Secondaries on %(host)s are switched %(word)s.',
                 {'host': host.name, 'word': word})

    def _log_instances_in_error(self) -> None:
        """Log, once each, the instances in ERROR that keep a lease down."""
        fallen = {server.uuid: server.lease
                  for server in self._state.snapshot.servers.values()
                  if server.fallen}
        for one in sorted(fallen.keys() - self._fallen):
            LOG.warning(
                'Instance %(uuid)s was preempted and is in ERROR now, so its '
                'lease %(lease)s cannot run. It returns when the instance '
                'was rebooted (openstack server reboot --hard) or deleted.',
                {'uuid': one, 'lease': fallen[one]})
        self._fallen = frozenset(fallen)

    def _mark_killed_instances(self) -> None:
        """Mark instances that their host's agent killed as preempted.

        Each kill is marked once, so that an owner's removal of the mark is
        not overridden.  A report counts only for instances that Nova places
        on that host.
        """
        servers = self._state.snapshot.servers
        killed = {(host, one): why
                  for host, report in self._state.book.hosts().items()
                  for one, why in report.killed.items() if one in servers}
        marked = self._marked & killed.keys()
        for host, one in sorted(killed.keys() - marked):
            try:
                now = self._state.connect().server(one)
                if now is None or (now.host, now.status, now.task_state) != (
                        host, 'SHUTOFF', None):
                    continue
                if PREEMPTED not in now.metadata:
                    self._state.connect().set_metadata(one, {
                        PREEMPTED: 'killed@'
                        f'{timeutils.utcnow():%Y-%m-%dT%H:%M:%SZ}'})
                    LOG.warning(
                        'Instance %(uuid)s was killed by its host %(host)s '
                        '(%(why)s) and is started again when there is room.',
                        {'uuid': one, 'host': host, 'why': killed[host, one]})
                marked |= {(host, one)}
            except CloudError as exc:
                LOG.debug('Instance %s is not marked yet: %s', one, exc)
        self._marked = marked

    def _remove_old_marks(self) -> None:
        """Remove the mark of preempted instances that their owner started."""
        locked = self._history.locks().instances
        for server in self._state.snapshot.servers.values():
            if (PREEMPTED not in server.metadata
                    or server.state is not cluster.InstanceState.ACTIVE
                    or server.uuid in locked):
                continue
            try:
                now = self._state.connect().server(server.uuid)
                if now and now.state is cluster.InstanceState.ACTIVE:
                    self._state.connect().delete_metadata(
                        server.uuid, PREEMPTED)
            except CloudError as exc:
                LOG.debug('The mark of instance %s stays: %s',
                          server.uuid, exc)
