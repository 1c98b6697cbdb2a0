# SPDX-License-Identifier: Apache-2.0

"""DevStack plug-in and the tool that runs a DevStack.

The plug-in's phases run with DevStack's own functions, where a DevStack is:
in the directory DEVSTACK_DIR, in /opt/stack/devstack, or in the git base of
the last "tools/devstack run".
"""

import configparser
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = [str(ROOT / 'tools/devstack'), str(ROOT / 'tools/box')]
SETTINGS = pathlib.Path('/var/tmp/secondary-devstack/devstack.json')
PARTS = ('functions', 'functions-common', 'inc', 'lib')
CONTROL = ('n-sch,n-api,n-cpu,placement-api,rabbit,mysql,key,'
           'watcher-decision-engine,watcher-applier,watcher-api')
STACK = ('stack install', 'stack post-config', 'stack extra',
         'stack test-config')


def find_devstack(folder: pathlib.Path) -> pathlib.Path | None:
    """Return a directory with DevStack's functions, None if there is none."""
    for path in filter(None, (os.environ.get('DEVSTACK_DIR'),
                              '/opt/stack/devstack')):
        if pathlib.Path(path, 'functions-common').exists():
            return pathlib.Path(path)
    try:
        base = json.loads(SETTINGS.read_text())['git_base']
        archive = subprocess.run(
            ['git', '-c', 'safe.directory=*', '-C',
             f'{base}/openstack/devstack.git', 'archive', 'HEAD', *PARTS],
            check=True, capture_output=True).stdout
    except (OSError, LookupError, ValueError, subprocess.SubprocessError):
        return None
    target = folder / 'devstack'
    target.mkdir()
    subprocess.run(['tar', '-x', '-C', target], input=archive, check=True)
    return target


class PhasesTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.devstack = find_devstack(self.folder)
        if self.devstack is None:
            self.skipTest('no DevStack is on this machine: DEVSTACK_DIR can '
                          'name one')
        programs = self.folder / 'venv/bin'
        programs.mkdir(parents=True)
        for name in ('secondary-scheduler', 'secondary-agent'):
            (programs / name).write_text(
                f'#!/bin/sh\necho {name} "$@" >> {self.folder}/calls\n')
            (programs / name).chmod(0o755)
        (programs / 'openstack').write_text(
            f'#!/bin/sh\necho openstack "$@" >> {self.folder}/calls\n'
            'case "$*" in *"service list"*) echo host1;; esac\n')
        (programs / 'openstack').chmod(0o755)
        (programs / 'python3').write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} "$@"\n')
        (programs / 'python3').chmod(0o755)
        (programs / 'uwsgi').symlink_to('/bin/true')

    def run_phases(self, *phases, services=CONTROL, code=0, **variables):
        """Run phases; return the commands that they gave."""
        calls = self.folder / 'calls'
        calls.write_text('')
        done = subprocess.run(
            ['bash', ROOT / 'tests/unit/devstack_phases.sh', self.devstack,
             self.folder, ROOT, services, *phases],
            capture_output=True, text=True, env={
                'PATH': f'{self.folder}/venv/bin:{os.environ["PATH"]}',
                **variables})
        self.output = done.stdout + done.stderr
        self.assertEqual(code, done.returncode, self.output[-3000:])
        return calls.read_text()

    def read(self, path):
        """Return a configuration file below etc."""
        found = configparser.ConfigParser(strict=False, interpolation=None)
        found.read(self.folder / 'etc' / path)
        return found

    def files(self):
        """Return the files below etc and data."""
        return {str(path.relative_to(self.folder))
                for place in ('etc', 'data')
                for path in (self.folder / place).rglob('*')
                if not path.is_dir()}

    def test_controller_is_configured_once_and_nothing_is_left(self):
        calls = self.run_phases(*STACK, 'stack post-config')
        self.assertEqual(
            'ComputeFilter,SecondaryPolicyFilter',
            self.read('nova/nova.conf')['filter_scheduler'][
                'enabled_filters'])
        self.assertEqual('compute,secondary', self.read(
            'watcher/watcher.conf')['collector']['collector_plugins'])
        self.assertEqual('RegionOne', self.read(
            'secondary_scheduler/secondary-lease-api.conf')[
                'secondary_lease_api']['region_name'])
        agent = self.folder / 'etc/secondary_scheduler/secondary-agent.conf'
        self.assertEqual(0o600, agent.stat().st_mode & 0o777)
        self.assertEqual('secondary-agent', self.read(
            'secondary_scheduler/secondary-agent.conf')['placement'][
                'username'])
        self.assertEqual(
            (ROOT / 'etc/placement/policy.yaml').read_text(),
            (self.folder / 'etc/placement/policy.yaml').read_text())
        for line in ('secondary-scheduler host enable host1 --claims 2',
                     'run_process secondary-agent',
                     'run_process secondary-lease-api'):
            self.assertIn(line, calls)
        calls = self.run_phases('unstack', 'clean')
        for line in ('secondary-agent release', 'secondary-scheduler host '
                     'disable 0123456789abcdef --delete',
                     'openstack aggregate delete secondary',
                     'openstack flavor delete secondary',
                     'openstack service delete secondary-lease',
                     'openstack role delete secondary_agent'):
            self.assertIn(line, calls)
        # DevStack's own clean.sh removes or writes these anew.
        self.assertEqual(
            {'etc/nova/nova.conf', 'etc/watcher/watcher.conf',
             'etc/placement/policy.yaml'}, self.files())
        watcher = self.folder / 'etc/watcher/watcher.conf'
        for word in ('secondary', 'workers', 'continuous_audit_interval'):
            self.assertNotIn(word, watcher.read_text())

    def test_dashboard_and_tempest_are_configured_where_they_run(self):
        services = f'{CONTROL},horizon,tempest,secondary-lease-api'
        enabled = self.folder / 'horizon/openstack_dashboard/local/enabled'
        calls = self.run_phases(*STACK, services=services)
        self.assertEqual(
            {path.name for path in ROOT.glob(
                'secondary_dashboard/enabled/_*.py')} - {'__init__.py'},
            {path.name for path in enabled.iterdir()})
        self.assertIn(f'TEMPEST_PLUGINS  {self.folder}/stack/'
                      'secondary_scheduler\n', calls)
        tempest = self.read('tempest.conf')
        self.assertEqual('True', tempest['service_available'][
            'secondary_lease'])
        self.assertEqual('secondary', tempest['secondary_lease']['flavor'])
        (enabled / '_1000_project.py').touch()
        static = self.folder / 'horizon/static'
        for name in ('dashboard', 'secondary_dashboard'):
            (static / name).mkdir(parents=True)
        (static / 'secondary_dashboard/quote.js').touch()
        self.run_phases('unstack', 'clean', services=services)
        self.assertEqual(['_1000_project.py'],
                         [path.name for path in enabled.iterdir()])
        self.assertEqual(['dashboard'],
                         [path.name for path in static.iterdir()])
        self.assertIn('TEMPEST_PLUGINS \n', self.run_phases(*STACK))

    def test_compute_node_gets_the_agent_only(self):
        calls = self.run_phases(
            *STACK, services='n-cpu,placement-client',
            DISABLED_SERVICES='secondary-scheduler,secondary-lease-api')
        self.assertIn('run_process secondary-agent', calls)
        self.assertNotIn('lease', calls.partition('setup_develop')[2]
                         .partition('\n')[2])
        self.assertNotIn('host enable', calls)
        self.assertEqual('', (self.folder / 'etc/nova/nova.conf').read_text())

    def test_wrong_policy_stops_before_anything_is_written(self):
        self.run_phases(*STACK, code=1, SECONDARY_POLICY='cpu < lots')
        self.assertIn('SECONDARY_POLICY', self.output)
        self.assertEqual({'etc/nova/nova.conf', 'etc/watcher/watcher.conf'},
                         self.files())

    def test_without_watcher_it_stops_and_says_what_to_do(self):
        self.run_phases(*STACK, code=1, services='n-sch,n-api,n-cpu')
        self.assertIn('enable_plugin', self.output)


class ToolTest(unittest.TestCase):

    def setUp(self):
        patch = mock.patch.object(sys, 'path', [*TOOLS, *sys.path])
        patch.start()
        self.addCleanup(patch.stop)
        self.git_base = importlib.import_module('git_base')
        self.nodes = importlib.import_module('nodes')
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def clone(self, name, *tags):
        """Return a repository with a file that its .gitignore names."""
        path = self.folder / 'openstack' / name
        path.mkdir(parents=True)
        (path / 'ignored').mkdir()
        (path / 'ignored/file').write_text('text')
        (path / '.gitignore').write_text('ignored\n')
        git = ['git', '-C', path, '-c', 'user.name=x', '-c',
               'user.email=x@localhost']
        for command in (['init', '-q'], ['add', '--all', '--force'],
                        ['commit', '-q', '-m', 'x'],
                        *(['tag', '-a', '-m', tag, tag] for tag in tags)):
            subprocess.run([*git, *command], check=True)
        return str(path)

    def git(self, repository, *arguments):
        """Return what git says of a repository of the base."""
        return subprocess.run(
            ['git', '-C', self.folder / f'base/openstack/{repository}.git',
             *arguments], check=True, capture_output=True,
            text=True).stdout.split()

    def test_git_base_has_one_commit_with_the_version_of_the_clone(self):
        base = str(self.folder / 'base')
        self.git_base.add(base, [self.clone('nova', '33.0.0', 'zed-eom'),
                                 self.clone('glance')])
        self.assertEqual(['33.0.0'], self.git('nova', 'describe', 'master'))
        self.assertEqual(['99.0.0'], self.git('glance', 'describe', 'master'))
        self.assertIn('ignored/file', self.git(
            'nova', 'ls-tree', '-r', '--name-only', 'master'))
        self.git_base.add(base, [self.clone('other/x').replace(
            'other/x', 'nova')])
        self.assertEqual(['1'], self.git('nova', 'rev-list', '--count',
                                         'master'))

    def test_incomplete_git_base_names_what_is_missing(self):
        base = str(self.folder / 'base')
        self.git_base.add(base, [self.clone('nova')])
        with self.assertRaisesRegex(Exception, 'devstack, requirements'):
            self.git_base.check(base)
        with self.assertRaisesRegex(Exception, 'tempest, os-test-images'):
            self.git_base.check(base, ['tempest'])
        with self.assertRaisesRegex(Exception, 'NAME='):
            self.git_base.add(base, [str(self.folder)])

    def test_only_the_first_node_has_the_control_plane(self):
        first = self.nodes.local_conf('node1', '/base', ['tempest'])
        second = self.nodes.local_conf('node2', 'https://git.example/', [])
        self.assertIn('enable_service tempest', first)
        self.assertIn('[[test-config|$TEMPEST_CONFIG]]', first)
        self.assertIn('enable_plugin watcher '
                      'file:///opt/git-base/openstack/watcher.git', first)
        self.assertIn('HOST_IP=10.78.0.2', second)
        self.assertIn('SERVICE_HOST=10.78.0.1', second)
        self.assertIn('disable_service secondary-scheduler', second)
        self.assertNotIn('mysql rabbit', second)

    def test_listing_tells_what_is_of_the_plugin(self):
        listing = importlib.import_module('listing')
        self.assertEqual(
            ['text /etc/watcher/watcher.conf', 'user secondary-agent'],
            listing.ours({
                'user secondary-agent', 'user nova', 'file /etc/nova',
                'text /etc/watcher/watcher.conf',
                'text /etc/bash_completion.d/osc.bash_completion'}))


class ParserTest(unittest.TestCase):

    def test_commands_have_help(self):
        done = subprocess.run(
            [sys.executable, ROOT / 'tools/devstack', '--help'],
            capture_output=True, text=True, check=True)
        for command in ('run', 'exec', 'test', 'git-base', 'down'):
            self.assertIn(f'\n    {command} ', done.stdout)
