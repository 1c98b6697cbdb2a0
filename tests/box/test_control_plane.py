# SPDX-License-Identifier: Apache-2.0

"""Queues, workers and engines of the control plane (issue 2, acceptance 7).
"""

import re
import time

import pytest

import layout
import seed
import shell
import stores
from tests.box import boots, services
from tests.box.primaries import boot_primary, delete, wait_active
from tests.box.services import wait_until

BOOTS = 20
#: In which an audit is cancelled whose engine has died (``audit_timeout``).
ABANDONED_S = 75
#: In which a switch's audit runs several times.
FIRM_S = 45

_REFUSED = re.compile(
    r'^\S+ \S+ (\d+) INFO nova\.filters .*'
    r'SecondaryPolicyFilter returned 0 hosts', re.M)
_BATCH = re.compile(r'secondary-stage batch=(\S+) stage=window')
_LEADS = 'This decision engine leads for secondaries'


def refused(cloud, owner):
    """Boot twenty, none of which may run; return both refusing workers."""
    offset = services.log_size(boots.SCHEDULER_LOG)
    uuids = boots.boot_secondaries(owner, BOOTS)
    try:
        states = boots.outcomes(cloud, uuids)
        assert len(states) == BOOTS
        assert set(states.values()) == {'ERROR'}
    finally:
        delete(cloud, *uuids)
    workers = set(_REFUSED.findall(
        services.log_since(boots.SCHEDULER_LOG, offset)))
    return workers if len(workers) == 2 else None


def test_every_worker_obeys_a_changed_policy(cloud, owner, calm_fleet):
    boots.wait_for_room(cloud, owner, 'before')
    with services.another_policy('cpu <= 1% for 10s on aggregate:secondary',
                                 'nova-scheduler'):
        primaries = [boot_primary(cloud, f'test-meanwhile-{n}')
                     for n in range(2)]
        # A host that its agent has shut for a moment is no candidate, and
        # the filter is not asked: then another twenty are tried.
        workers = wait_until(lambda: refused(cloud, owner), 240,
                             'both workers have refused one of twenty')
        try:
            for uuid in primaries:
                wait_active(cloud, uuid)
        finally:
            delete(cloud, *primaries)
    assert len(workers) == 2
    boots.wait_for_room(cloud, owner, 'after')


@pytest.mark.soak
def test_no_more_run_together_than_a_policy_allows(cloud, owner, calm_fleet,
                                                   hosts):
    boots.wait_for_room(cloud, owner, 'before')
    members = calm_fleet.servers
    allowed = len(members) - 2
    began = services.log_size(boots.SCHEDULER_LOG)

    def down():     # who moves meanwhile runs
        return {uuid for uuid, seen in calm_fleet.look().items()
                if seen.status == 'SUSPENDED'}

    def refuses():  # shut hosts are no candidates: then another is tried
        assert not boots.boots_a_secondary(cloud, owner)
        return _REFUSED.search(
            services.log_since(boots.SCHEDULER_LOG, began))

    with services.another_policy(
            f'slots <= {allowed} in aggregate:secondary', 'nova-scheduler',
            'watcher-engine-1',
            *(f'secondary-agent-{host}' for host in hosts)):
        wait_until(lambda: len(down()) == len(members) - allowed, 180,
                   lambda: f'{allowed} run: {calm_fleet.look()}')
        suspended = down()
        wait_until(refuses, 120, 'the filter has refused one')
        # There is room on the hosts; what is suspended stays so all the same.
        time.sleep(FIRM_S)
        assert down() == suspended
        assert not boots.boots_a_secondary(cloud, owner)
    # The lowest lease, as a whole.
    assert {members[uuid] for uuid in suspended} == {'test-pair-1',
                                                     'test-pair-2'}
    calm_fleet.wait_all_run(240)
    boots.wait_for_room(cloud, owner, 'after')


def messages():
    """Return the messages that wait in each queue.

    Nova's own notifications are for Watcher's compute model and wait for it
    with or without us; each engine has a queue for them by its own name.
    """
    found = {}
    for host in ('/', layout.MEETING):
        for line in stores.rabbitmqctl('list_queues', '-p', host, 'name',
                                        'messages').splitlines():
            name, _, count = line.rpartition('\t')
            if count.isdigit() and not re.search(
                    r'notifications|^control\d+$', name):
                found[host, name] = int(count)
    return found


@pytest.mark.soak
def test_no_queue_grows_without_consumers_of_reports(box, switch, hosts):
    assert messages(), 'rabbitmqctl lists no queue'
    engines = [name for name in shell.running()
               if name.startswith('watcher-engine')]
    with services.without('nova-scheduler', *engines, how=services.stop):
        time.sleep(5)
        before = messages()
        time.sleep(60)
        after = messages()
        for host in hosts:
            assert shell.pid_of(f'secondary-agent-{host}')
    grown = {name: (before.get(name, 0), count)
             for name, count in after.items()
             if count > before.get(name, 0)}
    assert not grown, grown


@pytest.fixture
def two_engines(switch):
    """A second decision engine that is ready to lead."""
    log = 'watcher-engine-2-service.log'
    before = 'watcher-engine-2' in shell.running()
    if not before:
        services.start('watcher-engine-2')
        # Its collector has asked Nova, which it does right after its start.
        wait_until((layout.LOG / log).exists, 30, 'the second engine logs')
        time.sleep(20)
    yield ('watcher-engine-1', 'watcher-engine-2')
    services.start_missing()
    if not before:
        services.stop('watcher-engine-2')
        # Watcher's scheduler would not sleep any more: see "keeps a core
        # busy" in doc/source/admin/troubleshooting.rst.
        stores.sql(
            'DELETE FROM watcher.apscheduler_jobs WHERE service_id IN (SELECT '
            "id FROM watcher.services WHERE host = 'control2' AND "
            "name = 'watcher-decision-engine')")


def leader(engines):
    """Return the engine that was the last to say that it leads."""
    said = {}
    for name in engines:
        for line in (layout.LOG / f'{name}-service.log').read_text(
                errors='replace').splitlines():
            if _LEADS in line:
                said[name] = line[:23]      # the time
    return max(said, key=said.__getitem__)


def shown_leader():
    """Return the lines of 'leader show' by their names."""
    shown = shell.run([
        layout.BIN / 'secondary-scheduler', 'leader', 'show', '--config-file',
        layout.ETC / 'watcher/watcher-1.conf'])
    return dict(line.split(': ', 1) for line in shown.stdout.splitlines())


@pytest.mark.soak
def test_leader_that_was_stopped_leads_no_more(two_engines):
    first = leader(two_engines)
    other = next(name for name in two_engines if name != first)
    logs = [f'{name}-service.log' for name in (first, other)]
    offsets = [services.log_size(log) for log in logs]
    term = int(shown_leader()['term'])
    with services.hung(first):
        wait_until(lambda: _LEADS in services.log_since(logs[1], offsets[1]),
                   15, f'{other} leads')
    wait_until(lambda: 'Leadership for secondaries was lost'
               in services.log_since(logs[0], offsets[0]), 15,
               f'{first} has noticed')
    found = shown_leader()
    assert int(found['term']) > term
    assert 'none' not in found['leader']
    assert _LEADS not in services.log_since(logs[0], offsets[0])


@pytest.mark.soak
def test_each_batch_has_one_audit_when_the_leader_dies(
        cloud, calm_fleet, burst, new_trial, two_engines):
    fleet = calm_fleet
    trial = new_trial()
    offsets = {log: services.log_size(log) for log in (
        f'{name}-service.log' for name in two_engines)}

    def batches(*names):
        return {batch for name in names or two_engines
                for batch in _BATCH.findall(services.log_since(
                    f'{name}-service.log', offsets[f'{name}-service.log']))}

    first = leader(two_engines)
    other = next(name for name in two_engines if name != first)
    with burst(fleet.busiest()):
        wait_until(batches, 60, 'a batch leaves', period=0.05)
        services.kill(first)
        wait_until(lambda: _LEADS in services.log_since(
            f'{other}-service.log', offsets[f'{other}-service.log']), 15,
            f'{other} leads')
        time.sleep(45)
    fleet.wait_all_run(120)
    trial.check()

    def audits():
        return list(seed.listed(seed.watcher(cloud), 'audits'))

    names = [audit['name'] for audit in audits()]
    # Who dies before it has asked for its audit leaves the violation to the
    # other, which makes a batch of its own.
    for batch in batches():
        assert names.count(f'secondary-preempt-{batch}') <= 1, batch
    for batch in batches(other):
        assert names.count(f'secondary-preempt-{batch}') == 1, batch
    # None of ours stays unfinished.
    ours = [audit for audit in audits()
            if any(batch in audit['name'] for batch in batches())]
    assert ours
    wait_until(lambda: not {one['uuid'] for one in ours} & {
        one['uuid'] for one in audits()
        if one['state'] in ('PENDING', 'ONGOING')},
        ABANDONED_S, f'all have ended of {ours}')
    for audit in ours:
        own = list(seed.listed(seed.watcher(cloud), 'action_plans',
                               audit_uuid=audit['uuid']))
        assert len(own) <= 1, (audit, own)
