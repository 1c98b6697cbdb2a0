# SPDX-License-Identifier: Apache-2.0

"""Command lines in documents are accepted by their programs."""

from concurrent import futures
import importlib.util
import itertools
import multiprocessing
import operator
import unittest

from tests.unit import command_lines
from tests.unit.command_lines import Quoted


def faults(lines):
    """Return the faults of command lines."""
    platform = operator.attrgetter('platform')
    groups = itertools.groupby(sorted(lines, key=platform), platform)
    with futures.ProcessPoolExecutor(
            1, multiprocessing.get_context('spawn'),
            max_tasks_per_child=1) as pool:
        found = pool.map(command_lines.faults,
                         [list(group) for _, group in groups])
        return [one for some in found for one in some]


class DocumentedCommandsTest(unittest.TestCase):

    def setUp(self):
        for module in ('openstackclient', 'watcherclient'):
            if importlib.util.find_spec(module) is None:
                self.skipTest(f'documents quote commands of {module}, '
                              'which is not installed')

    def test_quoted_commands_are_taken_by_their_programs(self):
        lines = command_lines.quoted()
        programs = {line.words()[0] for line in lines}
        self.assertLessEqual({'python3', 'openstack', 'secondary-agent',
                              'secondary-scheduler', 'tox'}, programs)
        self.assertEqual([], faults(lines))

    def test_wrong_commands_are_found(self):
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
        self.assertEqual(len(wrong), len(faults(wrong)))

    def test_each_benchmark_has_a_smallest_form(self):
        required = {'decisions': 'easy', 'haizea': 'FOLDER',
                    'leases_large': 'JOBS SIZES'}
        benchmarks = [path.stem for path in sorted(
            (command_lines.ROOT / 'benchmarks').glob('*.py'))
            if "if __name__ == '__main__':" in path.read_text()]
        self.assertGreater(len(benchmarks), 10)
        self.assertEqual([], faults([
            Quoted(name, f'python benchmarks/{name}.py '
                   f'{required.get(name, "")} --quick', True)
            for name in benchmarks]))

    def test_omitted_parts_of_a_command_are_no_fault(self):
        self.assertEqual([], faults([
            Quoted('here', text, whole) for text, whole in (
            ('secondary-scheduler host enable', False),
            ('openstack secondary lease create pair ...', True),
            ('python benchmarks/decisions.py easy [--watcher convert|peer]',
             True),
            ('secondary-scheduler plan decide M.json --algorithm guided '
             '> P.json', True),
            ('python3 tools/box script benchmarks/FILE', False))]))
