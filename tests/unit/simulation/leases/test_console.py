"""``simulate swf`` as a user runs it."""

import csv
import json
import re

import pytest

from secondary_scheduler.cmd import manage
from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation.leases import profiles
from secondary_scheduler.simulation.leases.figures import COLUMNS

#: Two nodes: 1 runs for 100 s of 200, 2 needs both, 3 fits beside 1.
JOBS = '\n'.join(
    f'{job} {submit} 0 {runs} {nodes} 0 -1 {nodes} {asked} -1 1 1 1 1 1 1 -1'
    ' -1' for job, submit, runs, nodes, asked in (
        (1, 0, 100, 1, 200), (2, 10, 30, 2, 50), (3, 20, 150, 1, 180)))
XML = """<lease-workload><site><resource-types names="CPU Memory"/>
<nodes><node-set><res type="CPU" amount="100"/></node-set></nodes></site>
<lease-requests><lease-request arrival="00:00:00"><lease id="1">
<nodes><node-set><res type="CPU" amount="100"/></node-set></nodes>
<start><exact time="01:00:00"/></start><duration time="00:01:00"/>
</lease></lease-request></lease-requests></lease-workload>"""
RESERVED = "0 400 100 100 2 1 1024 0 'NONE.img' 600\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / 'jobs.swf').write_text(JOBS)
    (tmp_path / 'some.lwf').write_text(RESERVED)
    return tmp_path


def simulate(capsys, *arguments):
    """Return what is printed on standard output, and on the other."""
    code = manage.main(['simulate', 'swf', *map(str, arguments)])
    out, err = capsys.readouterr()
    assert code == (2 if err.startswith('secondary-scheduler:') else 0)
    return out, err


def test_figures_and_leases(files, capsys):
    out, _ = simulate(
        capsys, files / 'jobs.swf', '--nodes', 2, '--format', 'json',
        '--reservations', files / 'some.lwf', '--profile', 'novm-nosr',
        '--leases', files / 'leases.csv')
    document = json.loads(out)
    assert (document['experiment'], document['profile']) == ('swf',
                                                             'novm-nosr')
    found = {name: one['measured']
             for name, one in document['figures'].items()}
    # Lease 3 overtakes 2, which was promised 200.
    assert found['all_best_effort_s'] == 200
    assert found['wait_mean_s'] == pytest.approx((0 + 160 + 0) / 3)
    assert found['bounded_slowdown_mean'] == pytest.approx(
        (1 + 190 / 30 + 1) / 3)
    assert found['reservations_accepted'] == 1
    assert found['reservations_late'] == found['suspends'] == 0
    with open(files / 'leases.csv') as opened:
        rows = list(csv.DictReader(opened))
    assert tuple(rows[0]) == COLUMNS
    assert [(row['lease_id'], row['kind'], row['start'], row['end'],
             row['hosts']) for row in rows] == [
        ('1', 'best-effort', '0', '100', '0'),
        ('some-1', 'reservation', '400', '500', '0 1'),
        ('2', 'best-effort', '170', '200', '0 1'),
        ('3', 'best-effort', '20', '170', '1')]


def test_ids_of_the_trace_and_of_reservations_may_be_the_same(files, capsys):
    """Each runs for as long as it does, and the table tells them apart."""
    (files / 'more.lwf').write_text(XML)
    simulate(capsys, files / 'jobs.swf', '--nodes', 2, '--reservations',
             files / 'more.lwf', '--leases', files / 'leases.csv')
    with open(files / 'leases.csv') as opened:
        ran = {row['lease_id']: row['ran_s'] for row in csv.DictReader(opened)}
    assert ran == {'1': '100', '2': '30', '3': '150', 'more-1': '60'}


def test_the_table(files, capsys):
    out, _ = simulate(capsys, files / 'jobs.swf', '--nodes', 2)
    assert 'all_best_effort_s' in out


@pytest.mark.parametrize('arguments, says', (
    (('--profile', 'nobody'), 'there are: .*novm-nosr, novm-sr, .*predeploy'),
    (('--set', 'suspension=maybe'), "suspension: Unexpected boolean value"),
    (('--set', 'preemption=x'), 'there are: least-run, most-slack, none'),
    (('--set', 'x=3'), 'there is no option x; there are: backfilling'),
    (('--set', 'x'), '--set takes KEY=VALUE'),
    (('--reservations', 'nowhere.lwf'), 'nowhere.lwf: .*No such file'),
    (('--leases', '/nowhere/leases.csv'), 'No such file')))
def test_input_that_is_not_right(files, capsys, arguments, says):
    _, err = simulate(capsys, files / 'jobs.swf', *arguments)
    assert re.search(says, err), err


def test_a_trace_that_is_not_there(capsys):
    _, err = simulate(capsys, 'nowhere.swf')
    assert 'nowhere.swf' in err


def test_every_profile_can_be_read():
    assert profiles.names()
    for name in profiles.names():
        assert profiles.read(name).name == name


def test_a_file_is_a_profile_too(tmp_path):
    path = tmp_path / 'mine.conf'
    path.write_text('[secondary_leases]\nbackfilling = conservative\n'
                    '[lease_simulation]\nruntime_overhead = 10\n')
    profile = profiles.read(str(path))
    assert profile.settings.reservations is None
    assert profile.runtime_overhead == 0.1
    path.write_text('[secondary_leases]\nbackfilling = maybe\n')
    with pytest.raises(InputError, match='maybe'):
        profiles.read(str(path))
