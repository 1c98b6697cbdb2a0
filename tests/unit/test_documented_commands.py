"""Every command line that a document quotes is one that its program takes."""

from concurrent import futures
import itertools
import multiprocessing
import operator

import pytest

from tests.unit import command_lines
from tests.unit.command_lines import Quoted

pytest.importorskip('openstackclient', reason='the documents quote commands '
                    'of the openstack client')
pytest.importorskip('watcherclient', reason='the documents quote commands of '
                    'the openstack client\'s plug-in for Watcher')


def faults(lines):
    """Return what is wrong with command lines."""
    platform = operator.attrgetter('platform')
    groups = itertools.groupby(sorted(lines, key=platform), platform)
    with futures.ProcessPoolExecutor(
            1, multiprocessing.get_context('spawn'),
            max_tasks_per_child=1) as pool:
        found = pool.map(command_lines.faults,
                         [list(group) for _, group in groups])
        return [one for some in found for one in some]


def test_quoted_commands_are_taken_by_their_programs():
    lines = command_lines.quoted()
    programs = {line.words()[0] for line in lines}
    assert programs >= {'python3', 'openstack', 'secondary-agent',
                        'secondary-scheduler', 'tox'}
    assert not (found := faults(lines)), '\n'.join(found)


def test_wrong_commands_are_found():
    wrong = [Quoted('here', text, whole) for text, whole in (
        ('openstack optimize audit create --goal secondary --audit-type X',
         True),
        ('openstack secondary lease creat pair', True),
        ('openstack secondary lease create pair', True),
        ('secondary-scheduler host enable', True),
        ('secondary-scheduler host open HOST', False),
        ('secondary-scheduler simulate run hlt2', True),
        ('secondary-agent stats', False),
        ('secondary-agent status --jsn', True),
        ('secondary-scheduler-status upgrad check', True),
        ('python3 tools/box up --host 2', True),
        ('python3 tools/box exec secondary-scheduler host lst', True),
        ('python3 tools/box test tests/bocks', False),
        ('python benchmarks/decisions.py [--hosts 5]', True),
        ('python benchmarks/decisions.py easy --wachter peer', True),
        ('python benchmarks/decision.py easy', True),
        ('tox -e py3,pep88', True))]
    assert len(faults(wrong)) == len(wrong)


def test_each_benchmark_has_a_smallest_form():
    required = {'decisions': 'easy', 'haizea': 'FOLDER',
                'leases_large': 'JOBS SIZES'}
    benchmarks = [path.stem for path in sorted(
        (command_lines.ROOT / 'benchmarks').glob('*.py'))
        if "if __name__ == '__main__':" in path.read_text()]
    assert len(benchmarks) > 10
    assert not faults([
        Quoted(name, f'python benchmarks/{name}.py {required.get(name, "")} '
               '--quick', True) for name in benchmarks])


def test_what_is_left_out_of_a_command_is_no_fault():
    assert not faults([Quoted('here', text, whole) for text, whole in (
        ('secondary-scheduler host enable', False),
        ('openstack secondary lease create pair ...', True),
        ('python benchmarks/decisions.py easy [--watcher convert|peer]', True),
        ('secondary-scheduler plan decide M.json --algorithm guided > P.json',
         True),
        ('python3 tools/box script benchmarks/FILE', False))])
