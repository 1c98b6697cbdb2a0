"""The experiments with leases, on traces of a few dozen jobs."""

import csv
import json

import pytest

from secondary_scheduler.cmd import manage
from secondary_scheduler.leases.scheduling.planner import Settings
from secondary_scheduler.leases.scheduling.pricing import Constant
from secondary_scheduler.simulation.experiments import (
    haizea_prices,
    haizea_reservations,
    leases,
)
from secondary_scheduler.simulation.leases import (
    figures as lease_figures,
)
from secondary_scheduler.simulation.leases import (
    profiles,
)
from secondary_scheduler.simulation.leases.run import LeaseSimulation
from secondary_scheduler.simulation.workloads.requests import TraceRequest
from tests.unit.leases.scheduling.builders import site, terms


@pytest.fixture
def data(tmp_path):
    """Jobs for a day of a busy site, and a reservation of most of it."""
    folder = tmp_path / leases.FOLDER
    reserved = folder / 'injected_leases/30days'
    reserved.mkdir(parents=True)
    (folder / leases.TRACE).write_text('\n'.join(
        f'{job} {900 * job} 0 {600 + 997 * job % 5000} {20 + 31 * job % 90} '
        f'0 -1 {20 + 31 * job % 90} {1800 + 997 * job % 7200} -1 1 {job % 5} '
        '1 1 1 1 -1 -1' for job in range(1, 61)))
    for name in haizea_reservations.TABLE:
        share, hours, _ = name.split('_')
        (reserved / f'work_{share}-dur_{hours}-size_2medium.lwf').write_text(
            ''.join(f'0 {start} 3600 3600 100 1 1024 0 NONE 600\n'
                    for start in range(9000, 50_000, 8000)))
    return tmp_path


def simulate(capsys, name, data, *arguments, code=0):
    """Return what is printed, as a document or as an error."""
    got = manage.main(['simulate', 'run', name, '--data', str(data),
                       '--format', 'json', *map(str, arguments)])
    out, err = capsys.readouterr()
    assert got == code, err
    return json.loads(out) if not code else err


def measured(document):
    return {name: one['measured']
            for name, one in document['figures'].items()}


def test_reservations(data, capsys):
    table = data / 'leases.csv'
    document = simulate(capsys, 'haizea-e1', data, '--quick', '--leases',
                        table, '--plot', data / 'plots')
    found = measured(document)
    assert found['files'] == 3 and found['late'] == found['refused'] == 0
    name = haizea_reservations.TABLE[0]
    without, saved = (found[f'all_best_effort_s_{name}_{profile}']
                      for profile in haizea_reservations.PROFILES[:2])
    assert found[f'suspends_{name}_novm-sr'] > 0 == found[
        f'suspends_{name}_novm-nosr']
    assert saved < without
    assert found[f'excess_pct_{name}_novm-nosr'] == pytest.approx(
        100 * (without / found['baseline_s'] - 1))
    assert found['largest_excess_pct_novm-nosr'] > found[
        'largest_excess_pct_novm-sr']
    ratios = [found[f'ratio_wait_mean_trimmed_s_{one}']
              for one in haizea_reservations.TABLE]
    assert found['ratio_wait_mean_trimmed_s_median'] == sorted(ratios)[1]
    figure = document['figures'][f'excess_pct_{name}_novm-nosr']
    assert (figure['published'], figure['oracle']) == (5.15, 2.77)
    with table.open() as opened:
        rows = list(csv.DictReader(opened))
    assert tuple(rows[0]) == (*lease_figures.COLUMNS, 'run')
    assert len(rows) == 60 + 9 * 66
    assert {row['state'] for row in rows} == {'done'}
    # One chart for all files, one for each of three, and the figures.
    assert len(list((data / 'plots').iterdir())) == 5


def test_drawn_reservations_come_anew_with_each_seed(data, capsys):
    document = simulate(capsys, 'haizea-e1', data, '--runs', 2)
    name = 'all_best_effort_s_{}10_4h_medium_novm-sr'
    figures = document['figures']
    assert len(figures[name.format('')]['per_run']) == 1
    assert len(figures[name.format('drawn_')]['per_run']) == 2


def test_deadlines(data, capsys):
    document = simulate(capsys, 'haizea-e2', data)
    found = measured(document)
    assert not any(value for name, value in found.items()
                   if name.startswith('deadlines_missed'))
    for cell in ('late_tight', 'early_loose'):
        asked = {found[f'asked_spare_{cell}_{profile}']
                 for profile in ('maximum-nop', 'maximum-nosr', 'maximum')}
        assert len(asked) == 1
    assert (found['asked_spare_late_tight_maximum']
            > found['asked_spare_early_loose_maximum'])
    assert found['accepted_early_loose_maximum'] == 60
    for what in ('deadlines', 'starts'):
        assert 0 <= found[f'orders_of_{what}_maximum'] <= 6
    again = simulate(capsys, 'haizea-e2', data, '--quick')['figures']
    assert again == {name: document['figures'][name] for name in again}


def test_images(data, capsys):
    document = simulate(capsys, 'haizea-e3', data, '--quick')
    found = measured(document)
    name = haizea_reservations.TABLE[0]

    def wait(case):
        return found[f'wait_mean_trimmed_s_{name}_{case}']

    def turnaround(case):
        return found[f'turnaround_mean_trimmed_s_{name}_uniform_{case}']

    # 60 jobs with forty images of seven minutes each, or of 41 s.
    assert (turnaround('vm-mult-bw100') > turnaround('vm-mult')
            > turnaround('vm-predeploy') > 0)
    assert wait('uniform_vm-reuse-bw100') < wait('uniform_vm-mult-bw100')
    assert wait('skewed_vm-reuse-bw100') < wait('uniform_vm-reuse-bw100')
    assert found[f'ratio_wait_mean_trimmed_s_{name}_uniform_vm-mult'] == (
        wait('uniform_vm-mult') / wait('uniform_vm-predeploy'))
    assert not any(value for figure, value in found.items()
                   if figure.startswith('reservations_late'))
    assert document['figures'][
        f'wait_mean_trimmed_s_{name}_uniform_vm-predeploy'][
        'published'] == 6180


def test_suspensions(data, capsys):
    document = simulate(capsys, 'haizea-e5', data, '--quick')
    found = measured(document)
    for workload in ('t00', 't30'):
        assert found[f'normalized_{workload}_1_1024_suspend-instant'] == 1
    slower = {name: value for name, value in found.items()
              if name.startswith('normalized_t30') and 'mbps' not in name}
    assert sorted(slower.values())[1] > 1       # the first is the yardstick
    assert found['worst_t30'] == max(slower.values())
    assert found['worst_t30_suspend-global_4096'] == found[
        'normalized_t30_1_4096_suspend-global']
    assert found['difference_pct_t30_1_1024'] == pytest.approx(100 * (
        found['normalized_t30_1_1024_suspend-global-100mbps']
        / found['normalized_t30_1_1024_suspend-global'] - 1))
    assert document['figures']['normalized_t30_1_1024_suspend-global'][
        'published'] == 1.04


def test_prices(data, capsys):
    document = simulate(capsys, 'haizea-e6', data, '--quick')
    found = measured(document)
    for cell in ('early_tight_uniform', 'early_loose_rich'):
        for profile in haizea_prices.STRATEGIES:
            assert sum(found[f'{part}_pct_{cell}_{profile}']
                       for part in haizea_prices.PARTS) == pytest.approx(100)
        assert found[f'missed_price_pct_{cell}_maximum'] == 0
        assert found[f'missed_underpricing_pct_{cell}_maximum'] == 0
    assert found['best_rate_constant'] == found['median_rate_constant'] == 1
    assert found['best_revenue_pct_constant'] == pytest.approx(100)
    assert 0 < found['adaptive_rate_cheap'] < found['adaptive_rate_rich'] < 10


def test_books_that_do_not_balance(monkeypatch):
    asked = TraceRequest('a', 0, terms(1, 10, max_rate=2.0), 10)
    outcomes = LeaseSimulation(site(1), Settings(pricing=Constant(0.5)),
                               [asked]).run()
    run = leases.Run('some', 'constant', 1, [asked])
    found = haizea_prices._row(run, outcomes, (0, 20))
    assert (found['revenue_pct'], found['missed_underpricing_pct'],
            found['utilization_pct']) == (25, 75, 50 / leases.HOSTS)
    monkeypatch.setattr(haizea_prices, 'PARTS', ('revenue', 'missed_price'))
    with pytest.raises(haizea_prices.BooksError, match='some_constant'):
        haizea_prices._row(run, outcomes, (0, 20))


@pytest.mark.parametrize('arguments, says', (
    (('--events', 'e.jsonl'), '--leases FILE.csv tells'),
    (('--set', 'profile=ours'), 'profile=thesis is all there is'),
    (('--set', 'x=3'), '--set: there is no option x; there are: backfilling'),
    (('--set', 'suspend_rate=often'), '--set: suspend_rate'),
    (('--leases', '/nowhere/l.csv'), 'No such file')))
def test_input_that_is_not_right(data, capsys, arguments, says):
    assert says in simulate(capsys, 'haizea-e2', data, '--quick', *arguments,
                            code=2)


def test_options_that_are_set_are_set_in_each_profile(data, capsys):
    document = simulate(capsys, 'haizea-e1', data, '--quick', '--set',
                        'profile=thesis', '--set', 'suspension=false')
    assert document['config'] == {'quick': True, 'suspension': 'false'}
    assert not any(value for name, value in measured(document).items()
                   if name.startswith('suspends'))


def test_haizeas_durations_are_of_jobs_in_vms(data, capsys):
    plain, slipped = (measured(simulate(
        capsys, 'haizea-e1', data, '--quick', *arguments)) for arguments in (
            (), ('--set', 'haizea_durations=true')))
    differ = {name.rpartition('_')[2] for name, value in slipped.items()
              if name.startswith('all_best') and value != plain[name]}
    assert differ == {'vm-predeploy'}


def test_haizeas_migrations_take_all_vms_in_turn():
    """A lease makes way for one of 50 s, which is over after five."""
    def ended(*changes):
        profile = profiles.read('novm-sr', changes)
        one, _ = LeaseSimulation(site(2), profile.settings, [
            TraceRequest('a', 0, terms(2, 1000), 1000),
            TraceRequest('b', 0, terms(2, 50, start=500, preemptible=False), 5)
        ]).run()
        assert one.lease.suspends == 1
        return one.lease.ended

    assert ended() == 1000 + 2 * 21 + 5
    # 1 GB of each of two VMs at 100 MB/s, though neither moves.
    assert ended(('haizea_migrations', 'true')) == ended() + 21


@pytest.mark.parametrize('name', (
    'haizea-e1', 'haizea-e2', 'haizea-e5', 'haizea-e6'))
def test_traces_that_are_not_there(tmp_path, capsys, name):
    says = simulate(capsys, name, tmp_path, code=2)
    assert str(tmp_path / leases.FOLDER) in says
    assert '--data names the folder' in says


def test_use_is_counted_while_hosts_are_held():
    """A lease of 200 s is suspended in 21 s, and resumed after another."""
    outcomes = LeaseSimulation(
        site(1),
        Settings(),
        [
            TraceRequest('a', 0, terms(1, 200), 200),
            TraceRequest(
                'b', 0, terms(1, 50, start=100, preemptible=False), 50
            ),
        ],
    ).run()
    assert [one.held for one in outcomes] == [
        ((0, 100), (150, 150 + 21 + 121)), ((100, 150),)]
    assert lease_figures.utilization(outcomes, 1, 0, 292) == 100
    assert lease_figures.utilization(outcomes, 2, 282, 302) == 25


def test_slowdown_is_of_machines_without_vms():
    asked = TraceRequest('a', 0, terms(1, 200), 100)
    slow, = LeaseSimulation(site(1), Settings(), [asked.in_vms(0.05, 20)]
                            ).run()
    assert slow.lease.served == 125
    assert lease_figures.slowdown(slow) == 1.25
