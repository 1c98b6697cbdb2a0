# SPDX-License-Identifier: Apache-2.0

"""The main job, planned and done: secondaries make room and come back."""

import time

import secondaries
from secondary_scheduler.model import vocabulary
import seed
from tests.box.services import wait_until

BURST_S = 75
#: Seconds in which a plan would have begun that is carried out.
BEGUN_S = 5


def test_a_dry_run_recommends_and_does_nothing(cloud, calm_fleet):
    host = calm_fleet.busiest()
    leaving, began = calm_fleet.on(host), time.time()
    api = seed.watcher(cloud)

    def recommended():
        return next((plan for plan in seed.listed(
            api, 'action_plans', audit_uuid=audit['uuid'])
            if plan['state'] == 'RECOMMENDED'), None)

    audit = api.post('/audits', json={
        'audit_type': 'ONESHOT', 'goal': vocabulary.GOAL,
        'strategy': vocabulary.STRATEGY, 'auto_trigger': False,
        'parameters': {'request': 'drain', 'hosts': [host]}}).json()
    made = wait_until(recommended, 60, lambda: 'a plan is recommended: ' + str(
        api.get(f"/audits/{audit['uuid']}").json()))
    try:
        time.sleep(BEGUN_S)
        # With its indicators, which Watcher stores after the plan.
        plan = recommended()
        assert plan
        assert calm_fleet.on(host) == leaving
        planned = secondaries.operations(cloud, began)
        # Who was operated on a moment ago is left alone.
        assert leaving & {row['parameters']['resource_id']
                          for row in planned}
        assert {row['state'] for row in planned} == {'PENDING'}
    finally:
        api.delete(f"/action_plans/{made['uuid']}")
    values = {one['name']: one['value']
              for one in plan['efficacy_indicators']}
    assert values['migrated_instances_count'] + values[
        'preempted_instances_count'] == len(planned), values
    assert values['work_losing_instances_count'] == 0
    assert 0 < values['cpu_usage_mean_predicted'] <= values[
        'cpu_usage_highest_predicted'] <= 100


def test_a_burst_moves_secondaries_away_and_calm_brings_them_back(
        cloud, calm_fleet, observer, burst, new_trial):
    fleet = calm_fleet
    host = fleet.busiest()
    before = fleet.on(host)
    trial = new_trial()
    units = observer.units.done
    with burst(host):
        time.sleep(BURST_S)
        after = {uuid: seen for uuid, seen in fleet.look().items()
                 if uuid in before}
    away = [uuid for uuid, seen in after.items()
            if seen.host != host or seen.status == 'SUSPENDED']
    assert away, f'all stayed on {host}: {after}'
    # The policy holds while the burst goes on, not only at its end.
    last = observer.since(host, time.time() - 15)
    assert not all(row.failed for row in last), last
    trial.check()

    fleet.wait_all_run(240)
    trial.check()
    assert observer.units.done > units
    done = [row for row in secondaries.operations(cloud, trial.began)
            if row['state'] == 'SUCCEEDED']
    kinds = {row['kind'] for row in done}
    assert kinds & {'migrate', 'suspend'}, done
    suspended = {row['parameters']['resource_id'] for row in done
                 if row['kind'] == 'suspend'}
    resumed = {row['parameters']['resource_id'] for row in done
               if row['kind'] == 'resume'}
    assert suspended <= resumed, (suspended, resumed)
