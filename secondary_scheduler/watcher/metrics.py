# SPDX-License-Identifier: Apache-2.0

"""Metrics of a decision engine for Prometheus."""

import collections
from collections.abc import Iterator
from typing import Any

from oslo_config import cfg
from oslo_log import log

from secondary_scheduler.watcher import admission, leader
from secondary_scheduler.watcher.cluster_state import ClusterState
from secondary_scheduler.watcher.decision_measures import DecisionMeasures

LOG = log.getLogger(__name__)

PREFIX = 'secondary_decision_'
ENGINE_PREFIX = 'secondary_lease_engine_'
#: Ports that decision engines of one machine use, from ``metrics_port`` on.
PORTS = 8


def metric_families(state: ClusterState, found: DecisionMeasures,
                    term: int | None) -> Iterator[Any]:
    """Yield the metrics of a decision engine; unknown values are left out.

    :param term: term of the leadership; None if another engine leads.
    """
    from secondary_scheduler import exposition as families
    hosts = {name: host for name, host in state.snapshot.hosts.items()
             if host.total}
    fresh, expected = state.book.hosts(), state.policies_hash
    known = state.snapshot.hosts_time is not None
    admissions = collections.Counter(dict.fromkeys(
        (admission.OPEN, admission.CLOSED, admission.UNKNOWN), 0))
    admissions.update(admission.find_admission(host, fresh.get(name), expected
                                               )[0]
                      for name, host in hosts.items())
    yield families.make_gauge(
        PREFIX + 'leading', 'Whether this engine is the leader',
        term is not None)
    yield families.make_gauge(
        PREFIX + 'term', 'Term in which this engine leads', term)
    waiting = found.waiting if term is not None else None
    yield families.make_gauges(
        PREFIX + 'queued_operations', 'Operations that wait to begin',
        'purpose', {} if waiting is None else {
            'relief': waiting.relief, 'other': waiting.other})
    yield families.make_gauge(
        PREFIX + 'oldest_relief_seconds', 'Longest time for which a violation '
        'waits for its first operation', None if waiting is None else max(
            waiting.oldest_relief or 0.0,
            state.window.longest_wait(state.clock()) or 0.0))
    yield families.make_gauge(
        PREFIX + 'snapshot_age_seconds', 'Age of the facts about hosts',
        state.clock() - state.snapshot.hosts_time
        if state.snapshot.hosts_time is not None else None)
    yield families.make_gauges(
        PREFIX + 'hosts', 'Hosts that take secondaries, by admission',
        'admission', admissions if known else {})
    yield families.make_gauge(
        PREFIX + 'unreachable_hosts', 'Hosts in cells that do not answer Nova',
        sum(host.unreachable for host in hosts.values()) if known else None)
    yield families.make_gauge(
        PREFIX + 'unseen_servers', 'Secondaries that Nova cannot show',
        len(state.snapshot.unseen) if known else None)
    yield families.make_gauge(
        PREFIX + 'violated_hosts', 'Hosts of which a policy is violated',
        sum(bool(one.violated) for one in fresh.values()))
    yield families.make_gauge(
        PREFIX + 'floored_instances', 'Secondaries at the floor',
        sum(one.floored for report in fresh.values()
            for one in report.instances))
    yield families.make_counter(
        PREFIX + 'reports', 'Reports of agents, by verdict', ['verdict'],
        {(verdict,): state.book.counters[verdict] for verdict in (
            'accepted', 'replayed', 'stale', 'future')})
    yield families.make_counter(
        PREFIX + 'decisions', 'Decisions by request; none: no plan needed',
        ['request'], dict(found.decisions))
    yield families.make_histogram(
        PREFIX + 'decision_seconds', 'Duration of a decision', [],
        dict(found.decision_seconds))
    yield families.make_counter(
        PREFIX + 'planned_operations', 'Operations of plans, by kind',
        ['kind'], dict(found.planned))
    yield families.make_counter(
        PREFIX + 'unresolved', 'Violations that a plan did not relieve', [],
        {(): found.unresolved})
    yield families.make_counter(
        PREFIX + 'breaker_stopped_operations', 'Operations that the circuit '
        'breaker left out', [], {(): found.stopped})
    yield families.make_counter(
        PREFIX + 'ended_operations', 'Operations that have ended, by kind '
        'and state', ['kind', 'state'], dict(found.ended))
    yield families.make_histogram(
        PREFIX + 'operation_seconds', 'Duration of operations that have '
        'succeeded', ['kind'], dict(found.operation_seconds))
    yield families.make_counter(
        ENGINE_PREFIX + 'passes', 'Passes over all leases, by result',
        ['result'], dict(found.passes))
    yield families.make_histogram(
        ENGINE_PREFIX + 'pass_seconds', 'Duration of a pass', [],
        dict(found.pass_seconds))
    yield families.make_gauge(
        ENGINE_PREFIX + 'last_pass_timestamp_seconds', 'Time of the last '
        'complete pass', found.last_pass)
    yield families.make_gauges(
        ENGINE_PREFIX + 'leases', 'Leases that are not over, by state of '
        'the scheduler', 'state', found.leases or {})
    yield families.make_gauge(
        ENGINE_PREFIX + 'unknown_servers', 'Servers with the label of a lease '
        'that the database does not know', found.unknown_servers)
    yield families.make_gauge(
        ENGINE_PREFIX + 'unreadable_leases', 'Leases that cannot be read from '
        'the database', found.unreadable_leases)


def start_metrics(conf: cfg.ConfigOpts, state: ClusterState,
                  found: DecisionMeasures,
                  coordination: leader.Coordination) -> None:
    """Serve metrics, if ``metrics_port`` is set; log why that fails.

    :param coordination: tells whether this engine leads.
    """
    options: Any = conf.secondary_watcher
    if not options.metrics_port:
        return
    try:
        from secondary_scheduler import exposition
        exposition.serve_metrics(
            str(options.metrics_address), options.metrics_port,
            lambda: metric_families(
                state, found, coordination.term
                if coordination.am_i_leader() else None), PORTS)
    except ImportError:
        LOG.error('There are no metrics: prometheus_client is missing. '
                  'Install it by "pip install '
                  'secondary-scheduler[metrics]".')
    except OSError as exc:
        LOG.error('There are no metrics on port %(port)d of %(address)s: '
                  '%(why)s', {'port': options.metrics_port,
                              'address': options.metrics_address, 'why': exc})
