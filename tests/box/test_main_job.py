"""The main job, once: secondaries get out of the way and come back."""

import time

import secondaries

BURST_S = 75


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
