# SPDX-License-Identifier: Apache-2.0

"""The Ansible role agrees with the documentation and with our files."""

import configparser
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROLE = ROOT / 'ansible/roles/secondary_scheduler'
#: Names that are no variables of the role: a topic of the broker, and an
#: option of the playbooks, which they give a default.
OTHER_NAMES = {'secondary_scheduler_describe', 'secondary_scheduler_serial'}


def assigned(node):
    """Yield the names of variables that tasks set."""
    if isinstance(node, list):
        for one in node:
            yield from assigned(one)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in ('vars', 'ansible.builtin.set_fact'):
                yield from value
            elif key in ('register', 'loop_var'):
                yield value
            yield from assigned(value)


class RoleTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.values = yaml.safe_load((ROLE / 'vars/main.yml').read_text())

    def test_rights_on_the_broker_are_the_documented_ones(self):
        manual = (ROOT / 'doc/source/install/manual.rst').read_text()
        rights = self.values['secondary_scheduler_agent_rights']
        topics = self.values['secondary_scheduler_agent_topic_rights']
        for pattern in (*rights.values(), topics['write'], topics['read']):
            with self.subTest(pattern=pattern):
                self.assertIn(pattern.replace(
                    '{{ secondary_scheduler_host_pattern }}', 'HOST'), manual)

    def test_rules_of_placement_are_those_of_our_file(self):
        rules = yaml.safe_load(
            (ROOT / 'etc/placement/policy.yaml').read_text())
        self.assertEqual(list(rules),
                         self.values['secondary_scheduler_placement_rules'])

    def test_group_of_the_image_is_the_one_that_kolla_builds(self):
        options = configparser.ConfigParser()
        options.read(ROOT / 'kolla/kolla-build.conf')
        self.assertEqual(options['secondary-lease-user']['gid'], self.values[
            'secondary_scheduler_lease_image_group'])

    def test_playbooks_begin_with_a_check_of_all_their_groups(self):
        needed = re.findall(r"'([a-z-]+)'", self.values[
            'secondary_scheduler_needed_groups'])
        known = {'host', 'rabbitmq', 'localhost', *needed,
                 *self.values['secondary_scheduler_optional_groups'],
                 *(self.values[f'secondary_scheduler_{name}_group']
                   for name in ('admin', 'agent', 'lease'))}
        for path in (ROOT / 'ansible/playbooks').glob('*.yml'):
            first, *plays = yaml.safe_load(path.read_text())
            self.assertEqual('all:localhost', first['hosts'])
            self.assertEqual('inventory', first['tasks'][0][
                'ansible.builtin.include_role']['tasks_from'])
            self.assertEqual(set(), {
                name.partition('[')[0] for play in plays
                for name in play['hosts'].split(':')} - known, path.name)

    def test_no_variable_is_both_default_and_derived(self):
        defaults = yaml.safe_load((ROLE / 'defaults/main.yml').read_text())
        self.assertFalse(set(defaults) & set(self.values))
        for name in (*defaults, *self.values):
            self.assertTrue(name.startswith('secondary_scheduler_'), name)

    def test_each_variable_is_set_and_used(self):
        defaults = yaml.safe_load((ROLE / 'defaults/main.yml').read_text())
        files = [path for path in (ROOT / 'ansible').rglob('*')
                 if path.suffix in ('.yml', '.j2')]
        uses = [name for path in files for name in re.findall(
            r'secondary_scheduler_[a-z_]+', path.read_text())]
        tasks = [yaml.safe_load(path.read_text()) for path in files
                 if path.parent.name in ('tasks', 'playbooks')]
        known = {*defaults, *self.values, *assigned(tasks)}
        self.assertEqual(set(), set(uses) - known - OTHER_NAMES)
        # Its own line is one use.
        self.assertEqual([], [name for name in defaults
                              if uses.count(name) < 2])

    def read(self, project, program, options, **files):
        """Return options as the role reads them from files of a service."""
        with tempfile.TemporaryDirectory() as directory:
            for name, text in files.items():
                path = pathlib.Path(directory, name.replace('_AT_', '/'))
                path.parent.mkdir(exist_ok=True)
                path.with_name(path.name + '.conf').write_text(text)
            done = subprocess.run(
                [sys.executable, '-c',
                 self.values['secondary_scheduler_reader'], project, program,
                 f'{directory}/{project}.conf', *options],
                stdout=subprocess.PIPE, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    def test_filters_and_weighers_of_the_operator_are_read(self):
        self.assertEqual(
            {'enabled_filters': ['Own'], 'weight_classes': ['own.Weigher']},
            self.read('nova', 'nova-scheduler', [
                'filter_scheduler', 'enabled_filters', 'weight_classes'], **{
                    'nova': '[filter_scheduler]\nenabled_filters = Other\n'
                            'weight_classes = own.Weigher\n',
                    'nova.conf.d_AT_filters':
                        '[filter_scheduler]\nenabled_filters = Own\n',
                    'nova-scheduler.conf.d_AT_secondary_scheduler-service':
                        '[filter_scheduler]\nenabled_filters = Ours\n'}))

    def test_collectors_of_the_operator_are_read(self):
        self.assertEqual(
            {'collector_plugins': ['compute', 'storage']},
            self.read('watcher', 'watcher-decision-engine', [
                'collector', 'collector_plugins'], watcher=(
                    '[collector]\ncollector_plugins = compute,storage\n')))

    def test_tasks_with_secrets_show_neither_input_nor_difference(self):
        tasks = [one for path in (ROLE / 'tasks').glob('*.yml')
                 for one in yaml.safe_load(path.read_text())]
        given = [one for one in tasks if 'stdin' in (
            one.get('ansible.builtin.command') or {})]
        written = [
            one for one in tasks
            if (one.get('ansible.builtin.template') or {}).get(
                'src') == 'options.conf.j2'
            and one['ansible.builtin.template']['mode'] != '0644']
        self.assertEqual((4, 3), (len(given), len(written)))
        self.assertEqual([], [one['name'] for one in given
                              if one.get('no_log') is not True])
        self.assertEqual([], [one['name'] for one in written
                              if one.get('diff') is not False])
