# SPDX-License-Identifier: Apache-2.0

"""The Ansible role where it needs no cloud: checks, and files for Kolla."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from oslo_config import cfg
import yaml

ANSIBLE = pathlib.Path(__file__).resolve().parents[2] / 'ansible'
#: The filters of Nova, and ours at the end.
FILTERS = ('ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,'
           'ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter,'
           'SecondaryPolicyFilter')
POLICY = 'cpu <= 90% for 10s on aggregate:secondary'
PLAYBOOKS = ('deploy', 'remove', 'kolla')
SECRETS = ('agent_password', 'broker_control_password', 'broker_agent_secret',
           'lease_password', 'lease_database_password')
#: All groups on this machine; the playbooks stop before they change it.
INVENTORY = ''.join(
    f'[{group}]\nlocalhost ansible_connection=local '
    f'ansible_python_interpreter={sys.executable}\n' for group in (
        'secondary-admin', 'secondary-agent', 'nova-api', 'nova-scheduler',
        'placement-api', 'watcher-engine', 'watcher-applier', 'rabbitmq'))


def read_ini(path):
    """Return {section: {option: values}} of a file of oslo.config."""
    found, section = {}, None
    for line in path.read_text().splitlines():
        if line.startswith('['):
            section = found.setdefault(line.strip('[]'), {})
        elif '=' in line:
            name, _, value = line.partition('=')
            section.setdefault(name.strip(), []).append(value.strip())
    return found


class PlaybookCase(unittest.TestCase):
    """Runs playbooks with a directory as Kolla's configuration."""

    def setUp(self):
        self.program = shutil.which('ansible-playbook')
        if self.program is None:
            self.skipTest('ansible-playbook is not installed: '
                          'tox -e ansible')
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.inventory = self.directory / 'inventory.ini'
        self.inventory.write_text(INVENTORY)
        self.kolla = self.directory / 'config'
        self.variables = {
            'secondary_scheduler_policies': [POLICY],
            'secondary_scheduler_version': '0.1.0',
            'secondary_scheduler_auth_url': 'https://cloud.example:5000/v3',
            'secondary_scheduler_brokers': ['192.0.2.1:5672',
                                            '192.0.2.2:5672'],
            'secondary_scheduler_host': 'compute1',
            'secondary_scheduler_venv': str(self.directory / 'venv'),
            'node_custom_config': str(self.kolla),
            **{f'secondary_scheduler_{name}': f'{name}/1'
               for name in SECRETS}}

    def play(self, playbook, *arguments, **changes):
        """Run a playbook; return its exit code, its recap, its output."""
        variables = {**self.variables, **changes}
        done = subprocess.run(
            [self.program, '-i', self.inventory, '-e', json.dumps(variables),
             *arguments, playbook if isinstance(playbook, pathlib.Path)
             else f'playbooks/{playbook}.yml'],
            cwd=ANSIBLE, capture_output=True, text=True,
            env={**os.environ, 'ANSIBLE_NOCOLOR': '1',
                 'ANSIBLE_STDOUT_CALLBACK': 'ansible.builtin.default',
                 'ANSIBLE_LOCALHOST_WARNING': 'false'})
        text = done.stdout + done.stderr
        line = re.findall('^localhost +:(.*)$', text, re.MULTILINE)[-1:]
        recap = dict(part.split('=') for part in ''.join(line).split())
        return done.returncode, recap, text


class CheckTest(PlaybookCase):

    def refused(self, **changes):
        code, recap, text = self.play('deploy', **changes)
        self.assertEqual((2, '0', '1'),
                         (code, recap['changed'], recap['failed']), text)
        self.assertIn('Nothing was changed.', text)
        return text

    def test_missing_policy_stops_the_run_with_an_example(self):
        self.assertIn('["cpu <= 90% for 10s on',
                      self.refused(secondary_scheduler_policies=[]))

    def test_policy_that_is_no_list_stops_the_run(self):
        self.assertIn('is a list of policies',
                      self.refused(secondary_scheduler_policies=POLICY))

    def test_broker_that_is_no_list_stops_the_run(self):
        self.assertIn('write ["HOST:PORT"]', self.refused(
            secondary_scheduler_brokers='192.0.2.1:5672'))

    def test_incomplete_flavor_and_unknown_total_stop_the_run(self):
        self.assertIn('needs name, vcpus, ram and disk', self.refused(
            secondary_scheduler_flavors=[{'name': 'one', 'vcpus': 1}]))
        self.assertIn('may have vcpus, memory_mb', self.refused(
            secondary_scheduler_totals={'memory': 1024}))

    def test_missing_secret_stops_the_run(self):
        self.assertIn(
            'Set secondary_scheduler_broker_agent_secret',
            self.refused(secondary_scheduler_broker_agent_secret=''))

    def test_missing_wheel_stops_the_run(self):
        self.assertIn('python3 -m build --wheel', self.refused(
            secondary_scheduler_wheel='/nowhere/a-1-py3-none-any.whl'))

    def test_unknown_deployment_stops_the_run(self):
        self.assertIn('"host" or "kolla"', self.refused(
            secondary_scheduler_deployment='docker'))


class InventoryTest(PlaybookCase):
    """A playbook that would do nothing is an error."""

    def refused(self, playbook, *arguments, text=INVENTORY, **environment):
        self.inventory.write_text(text)
        with mock.patch.dict(os.environ, environment):
            code, _, output = self.play(playbook, *arguments)
        self.assertNotEqual(0, code, output)
        self.assertNotIn('PLAY [Check the variables]', output)
        self.assertFalse(self.kolla.exists())
        return ' '.join(output.split())

    def test_replaced_characters_of_groups_stop_all_playbooks(self):
        for playbook in PLAYBOOKS:
            with self.subTest(playbook):
                text = self.refused(
                    playbook, ANSIBLE_TRANSFORM_INVALID_GROUP_CHARS='always')
                self.assertIn('No host is in the group secondary-admin, nor '
                              'in secondary-agent', text)
                self.assertIn('Rename secondary_admin, secondary_agent', text)
                self.assertIn('force_valid_group_names = ignore', text)

    def test_missing_and_empty_and_misspelt_groups_stop_all_playbooks(self):
        for playbook, group in (
                *((playbook, 'secondary-agent') for playbook in PLAYBOOKS),
                ('deploy', 'rabbitmq'), ('deploy', 'watcher-applier')):
            for new in ('[others]', f'[{group}]\n[others]',
                        f'[{group.title()}s]'):
                with self.subTest(f'{playbook}: {new}'):
                    self.assertIn(f'No host is in the group {group}.', (
                        self.refused(playbook, text=INVENTORY.replace(
                            f'[{group}]', new))))

    def test_misspelt_group_of_an_optional_part_stops_the_run(self):
        for wrong, right in (('secondary_lease_apis', 'secondary-lease-api'),
                             ('Horizon', 'horizon')):
            text = self.refused('deploy', text=INVENTORY
                                + f'[{wrong}]\nlocalhost\n')
            self.assertIn(f'No host is in the group {right}. Rename {wrong}.',
                          text)

    def test_empty_inventory_stops_all_playbooks(self):
        for playbook in PLAYBOOKS:
            self.assertIn('No host is in the group secondary-admin', (
                self.refused(playbook, text='')))

    def test_several_hosts_with_the_commands_stop_the_run(self):
        self.assertIn('Put one host into the group secondary-admin', (
            self.refused('deploy', text=INVENTORY.replace(
                '[secondary-admin]\n', '[secondary-admin]\nother\n'))))

    def test_limit_without_the_needed_host_stops_all_playbooks(self):
        text = INVENTORY.replace('localhost', 'control') + (
            '[compute]\nnode1 ansible_connection=local\n')
        for playbook, needed in (('deploy', 'control'), ('remove', 'control'),
                                 ('kolla', 'localhost')):
            self.assertIn(f'"--limit" has to include {needed}', self.refused(
                playbook, '--limit', 'node1', text=text))
            self.refused(playbook, '--limit', 'nosuchhost', text=text)

    def test_parts_without_hosts_are_named(self):
        code, _, text = self.play('kolla')
        self.assertEqual(0, code, text)
        self.assertIn('No host is in the group secondary-lease-api, nor in '
                      'horizon, nor in prometheus, nor in grafana',
                      ' '.join(text.split()))


class OptionsTest(PlaybookCase):

    def test_services_read_passwords_and_region_of_the_operator(self):
        role = ANSIBLE / 'roles/secondary_scheduler'
        playbook = self.directory / 'options.yml'
        playbook.write_text(json.dumps([{
            'hosts': 'localhost', 'gather_facts': False,
            'vars': {'role_path': str(role),
                     'secondary_scheduler_trustee': 'watcher'},
            'vars_files': [str(role / f'{name}/main.yml')
                           for name in ('defaults', 'vars')],
            'tasks': [{
                'ansible.builtin.template': {
                    'src': str(role / 'templates/options.conf.j2'),
                    'dest': f'{self.directory}/{name}.conf'},
                'vars': {'secondary_scheduler_sections':
                         f'{{{{ secondary_scheduler_{name}_sections }}}}'}}
                for name in ('agent', 'lease')]}]))
        password = 'a$b$$c%d\\e#f'
        code, _, text = self.play(
            playbook, secondary_scheduler_agent_password=password,
            secondary_scheduler_region='RegionTwo',
            secondary_scheduler_lease_password=password)
        self.assertEqual(0, code, text)
        for name, group, option, expected in (
                ('agent', 'placement', 'password', password),
                ('agent', 'placement', 'region_name', 'RegionTwo'),
                ('lease', 'keystone_authtoken', 'password', password),
                ('lease', 'keystone_authtoken', 'region_name', 'RegionTwo'),
                ('lease', 'secondary_lease_api', 'region_name', 'RegionTwo'),
                ('lease', 'secondary_lease_api', 'valid_interfaces',
                 'internal,public')):
            options = cfg.ConfigOpts()
            options.register_opt(cfg.StrOpt(option), group)
            options(['--config-file', f'{self.directory}/{name}.conf'],
                    default_config_files=[])
            self.assertEqual(expected, options[group][option])


#: Prints the output that a file names for its arguments, and logs these.
COMMAND = """#!{python}
import json, sys
given = ' '.join(sys.argv[1:])
with open({log!r}, 'a') as log:
    log.write(given + '\\n')
for words, output in json.load(open({outputs!r})).items():
    if words in given:
        print(json.dumps(output))
"""


class CommandTest(PlaybookCase):
    """Tasks that change the cloud, with commands that only log."""

    def setUp(self):
        super().setUp()
        self.log = self.directory / 'log'
        self.log.touch()
        self.outputs = self.directory / 'outputs.json'
        programs = self.directory / 'venv/bin'
        programs.mkdir(parents=True)
        for name in ('openstack', 'secondary-scheduler', 'rabbitmqctl',
                     'python3', 'django-admin'):
            (programs / name).write_text(COMMAND.format(
                python=sys.executable, log=str(self.log),
                outputs=str(self.outputs)))
            (programs / name).chmod(0o755)
        self.variables.update(
            ansible_become=False, secondary_scheduler_rabbitmqctl=[
                str(programs / 'rabbitmqctl')])

    def run_tasks(self, name, outputs, facts=None, **changes):
        """Run tasks of the role; return exit code, output and commands."""
        self.outputs.write_text(json.dumps(outputs))
        playbook = self.directory / 'tasks.yml'
        playbook.write_text(json.dumps([{
            'hosts': 'secondary-admin', 'gather_facts': False, 'tasks': [
                {'ansible.builtin.set_fact': facts or {'unused': True}},
                {'ansible.builtin.include_role': {
                    'name': str(ANSIBLE / 'roles/secondary_scheduler'),
                    'tasks_from': name}}]}]))
        code, _, text = self.play(playbook, **changes)
        return code, text, self.log.read_text()

    def audits(self, **terms):
        return {'goal list': [{'Name': 'secondary'}],
                'audittemplate list': [{'Name': 'secondary'}],
                'audit list': [{
                    'UUID': 'a1', 'Name': 'secondary', 'State': 'ONGOING',
                    'Interval': '10', 'Parameters': {'leases': False},
                    **terms}]}

    def test_another_interval_of_the_switch_is_set(self):
        code, text, commands = self.run_tasks(
            'switch', self.audits(), secondary_scheduler_switch_interval=30)
        self.assertEqual(0, code, text)
        self.assertIn('audit update a1 replace interval=30', commands)
        self.assertNotIn('audit create', commands)

    def test_switch_with_the_same_terms_stays(self):
        code, text, commands = self.run_tasks('switch', self.audits())
        self.assertEqual(0, code, text)
        self.assertEqual(3, len(commands.splitlines()), commands)

    def test_switch_that_runs_no_leases_stops_the_run(self):
        code, text, commands = self.run_tasks(
            'switch', self.audits(), secondary_scheduler_leases=True)
        self.assertEqual(2, code, text)
        self.assertIn('runs no leases', text)
        self.assertEqual(3, len(commands.splitlines()), commands)

    def remove_cloud(self, *accounts):
        rights = {'configure': '.*', 'write': '.*', 'read': '.*'}
        return self.run_tasks('remove_cloud', {
            'host list': [{'host': 'another'}],
            'flavor list --all --long': [
                {'Name': 'spare', 'Properties': {
                    'lifecycle:preemptable': 'true'}},
                {'Name': 'm1.small', 'Properties': {}},
                {'Name': 'm1.old', 'Properties': None}],
            'import openstack': {'changes': []},
            'export_definitions': {
                'users': [{'name': name} for name in accounts],
                'vhosts': [{'name': '/'}, {'name': 'shared'}],
                'permissions': [
                    {'user': name, 'vhost': 'shared', **rights}
                    for name in accounts]}},
            secondary_scheduler_vhost='shared', secondary_scheduler_users=[],
            secondary_scheduler_flavors=[{'name': name} for name in (
                'spare', 'm1.small', 'm1.old')],
            secondary_scheduler_service=None)

    def test_virtual_host_of_other_accounts_stays(self):
        _, text, commands = self.remove_cloud('secondary-control', 'nova')
        self.assertIn('delete_user secondary-control', commands, text)
        self.assertNotIn('delete_vhost', commands)
        self.assertNotIn('delete_user nova', commands)
        self.assertIn('the accounts nova have rights there', ' '.join(
            text.split()))

    def test_virtual_host_of_ours_is_deleted(self):
        _, text, commands = self.remove_cloud('secondary-control')
        self.assertIn('delete_vhost shared', commands, text)

    def test_another_flavor_with_the_same_name_stops_the_run(self):
        own = {'name': 'spare', 'vcpus': 1, 'ram': 128, 'disk': 1}
        found = {'Name': 'spare', 'VCPUs': 1, 'RAM': 128, 'Disk': 1,
                 'Properties': {'lifecycle:preemptable': 'true'}}
        for changes, expected in (({}, 0), ({'RAM': 256}, 2),
                                  ({'Properties': {}}, 2)):
            code, text, _ = self.run_tasks(
                'flavor_checks', {'flavor list': [{**found, **changes}]},
                secondary_scheduler_flavors=[own])
            self.assertEqual(expected, code, text)

    def test_removal_keeps_a_flavor_of_primaries(self):
        _, text, commands = self.remove_cloud('secondary-control')
        self.assertEqual(['flavor delete spare'], [
            line for line in commands.splitlines() if 'flavor delete' in line],
            text)

    def horizon(self):
        """Make files of Horizon; return the places of its files."""
        enabled = self.directory / 'enabled'
        enabled.mkdir()
        (enabled / '_9310_project_secondary_panelgroup.py').touch()
        (enabled / '_1000_project.py').touch()
        (self.directory / 'static/secondary_dashboard').mkdir(parents=True)
        manifest = self.directory / 'manifest.json'
        manifest.touch()
        self.variables.update(
            secondary_scheduler_horizon_venv=str(self.directory / 'venv'),
            secondary_scheduler_horizon_unit='no-such-unit')
        return {'enabled': str(enabled), 'compress': True,
                'static': str(self.directory / 'static'),
                'manifest': str(manifest)}

    def test_static_files_are_made_anew_without_the_panels(self):
        code, text, commands = self.run_tasks('remove_horizon', {
            'import openstack_dashboard': self.horizon()})
        self.assertEqual(0, code, text)
        self.assertEqual(['_1000_project.py'], [
            one.name for one in (self.directory / 'enabled').iterdir()])
        self.assertFalse(any((self.directory / 'static').iterdir()))
        self.assertIn('compress --force', commands)

    def test_static_files_are_compressed_for_a_newer_package(self):
        self.variables['secondary_scheduler_at'] = self.horizon()
        _, text, commands = self.run_tasks('horizon_static', {})
        self.assertEqual('collectstatic --noinput\n', commands, text)
        (self.directory / 'venv/lib/python3.12/site-packages'
         / 'secondary_scheduler-0.2.0.dist-info').mkdir(parents=True)
        _, text, commands = self.run_tasks('horizon_static', {})
        self.assertIn('compress --force', commands, text)

    def test_removal_keeps_an_account_that_the_role_did_not_make(self):
        code, text, _ = self.run_tasks('agent_account', {}, facts={
            'secondary_scheduler_definitions': {'stdout': json.dumps({
                'users': [{'name': 'secondary-agent-compute1'}],
                'permissions': [{
                    'user': 'secondary-agent-compute1', 'vhost': '/',
                    'configure': '.*', 'write': '.*', 'read': '.*'}],
                'topic_permissions': []})}})
        self.assertEqual(2, code, text)
        self.assertIn('exists with other rights', ' '.join(text.split()))


class KollaTest(PlaybookCase):

    def test_options_are_those_of_the_documentation(self):
        code, recap, text = self.play('kolla')
        self.assertEqual(0, code, text)
        url = ('rabbit://secondary-control:broker_control_password%2F1@'
               '192.0.2.1:5672,secondary-control:broker_control_password%2F1@'
               '192.0.2.2:5672/secondary')
        shared = {'policy': [POLICY], 'transport_url': [url]}
        self.assertEqual({
            'secondary_scheduler': shared,
            'filter_scheduler': {
                'available_filters': [
                    'nova.scheduler.filters.all_filters',
                    'secondary_scheduler.nova.filters.all_filters'],
                'enabled_filters': [FILTERS],
                'weight_classes': [
                    'secondary_scheduler.nova.weights.all_weighers']},
        }, read_ini(self.kolla / 'nova/nova-scheduler.conf'))
        for service in ('watcher-engine', 'watcher-applier'):
            self.assertEqual({
                'secondary_scheduler': shared,
                'collector': {'collector_plugins': ['compute,secondary']},
                'watcher_cluster_data_model_collectors.secondary': {
                    'period': ['30']},
                'watcher_applier': {'workers': ['16'],
                                    'workflow_engine': ['secondary']},
                'watcher_workflow_engines.secondary': {'max_workers': ['8']},
                'watcher_decision_engine': {
                    'continuous_audit_interval': ['5']},
            }, read_ini(self.kolla / f'watcher/{service}.conf'))
        self.assertIn('role:secondary_agent', (
            self.kolla / 'placement/policy.yaml').read_text())

    def test_check_mode_and_second_run_change_nothing(self):
        self.play('kolla', '--check')
        self.assertEqual({}, self.contents())
        self.assertEqual(0, self.play('kolla')[0])
        before = self.contents()
        code, recap, text = self.play('kolla')
        self.assertEqual((0, '0'), (code, recap['changed']), text)
        self.assertEqual(before, self.contents())

    def test_other_options_of_the_operator_stay(self):
        path = self.kolla / 'nova/nova-scheduler.conf'
        path.parent.mkdir(parents=True)
        path.write_text('[DEFAULT]\ndebug = true\n[filter_scheduler]\n'
                        'enabled_filters = ComputeFilter\n'
                        'host_subset_size = 3\n')
        code, _, text = self.play(
            'kolla', secondary_scheduler_kolla_filters=['ComputeFilter'],
            secondary_scheduler_kolla_weighers=['own.Weigher'])
        self.assertEqual(0, code, text)
        found = read_ini(path)
        self.assertEqual(['true'], found['DEFAULT']['debug'])
        self.assertEqual(['3'], found['filter_scheduler']['host_subset_size'])
        self.assertEqual(['ComputeFilter,SecondaryPolicyFilter'],
                         found['filter_scheduler']['enabled_filters'])
        self.assertEqual(
            ['own.Weigher,secondary_scheduler.nova.weights.all_weighers'],
            found['filter_scheduler']['weight_classes'])

    def test_leases_without_a_database_stop_the_run(self):
        code, recap, text = self.play('kolla', secondary_scheduler_leases=True)
        self.assertEqual((2, '0'), (code, recap['changed']), text)
        self.assertIn('Set secondary_scheduler_lease_database_host', text)

    def test_rule_of_the_operator_stops_the_run(self):
        path = self.kolla / 'placement/policy.yaml'
        path.parent.mkdir(parents=True)
        path.write_text(
            '"placement:resource_providers:list": "role:auditor"\n')
        before = self.contents()
        code, recap, text = self.play('kolla')
        self.assertEqual((2, '0'), (code, recap['changed']), text)
        self.assertIn('or role:secondary_agent', text)
        self.assertEqual(before, self.contents())

    def test_no_output_shows_a_secret(self):
        # A directory in the place of a file: the second run fails.
        other = self.directory / 'other'
        (other / 'nova/nova-scheduler.conf').mkdir(parents=True)
        for directory, expected in ((self.kolla, 0), (other, 2)):
            code, _, text = self.play(
                'kolla', '--diff', '-vvv', node_custom_config=str(directory),
                secondary_scheduler_leases=True,
                secondary_scheduler_lease_database_host='db.example')
            self.assertEqual(expected, code, text)
            self.assertIn('enabled_filters', text)
            for name in SECRETS:
                self.assertNotRegex(text, f'{name}(/|%2F)1')

    def test_alerts_and_dashboards_are_where_kolla_looks_for_them(self):
        code, _, text = self.play('kolla', secondary_scheduler_metrics=True)
        self.assertEqual(0, code, text)
        monitoring = ANSIBLE.parent / 'monitoring'
        self.assertEqual(
            (monitoring / 'prometheus/secondary.rules.yaml').read_text(),
            (self.kolla / 'prometheus/secondary.rules').read_text())
        for path in (monitoring / 'grafana').glob('*.json'):
            self.assertEqual(path.read_text(), (
                self.kolla / 'grafana/dashboards' / path.name).read_text())
        scraped = yaml.safe_load((
            self.kolla / 'prometheus/prometheus.yml.d/secondary.yml'
        ).read_text())['scrape_configs']
        self.assertEqual([{
            'job_name': 'secondary-agent',
            'static_configs': [{'targets': ['localhost:9911']}]}],
            [one for one in scraped if one['job_name'] == 'secondary-agent'])

    def test_kolla_ansible_takes_passwords_and_options(self):
        generate = shutil.which('kolla-genpwd')
        if generate is None:
            self.skipTest('kolla-genpwd (pip install kolla-ansible) is not '
                          'installed')
        share = pathlib.Path(generate).parents[1] / 'share/kolla-ansible'
        passwords = self.directory / 'passwords.yml'
        passwords.write_text((
            share / 'etc_examples/kolla/passwords.yml').read_text()
            + ''.join(f'\nsecondary_scheduler_{name}:' for name in SECRETS))
        subprocess.run([generate, '-p', passwords], check=True)
        self.inventory.write_text(
            (share / 'ansible/inventory/all-in-one').read_text()
            + '\n[secondary-admin]\nlocalhost\n'
            '[secondary-agent:children]\ncompute\n')
        # Kolla's inventory names none.
        python = f'ansible_python_interpreter={sys.executable}'
        for name in SECRETS:
            del self.variables[f'secondary_scheduler_{name}']
        code, _, text = self.play('kolla', '-e', f'@{passwords}', '-e', python,
                                  secondary_scheduler_deployment='kolla')
        self.assertEqual(0, code, text)
        merged = self.directory / 'nova.conf'
        own = self.directory / 'prometheus.yml'
        own.write_text('scrape_configs: [{job_name: prometheus}]')
        playbook = self.directory / 'merge.yml'
        playbook.write_text(json.dumps([{
            'hosts': 'localhost', 'gather_facts': False, 'tasks': [{
                'merge_configs': {
                    'sources': [str(self.kolla / 'nova/nova-scheduler.conf')],
                    'dest': str(merged)}}, {
                'merge_yaml': {
                    'sources': [str(own), str(
                        self.kolla / 'prometheus/prometheus.yml.d'
                        / 'secondary.yml')],
                    'dest': str(own), 'extend_lists': True}}]}]))
        subprocess.run(
            [self.program, '-i', self.inventory, '-e', python, playbook],
            check=True,
            stdout=subprocess.PIPE, env={
                **os.environ,
                'ANSIBLE_ACTION_PLUGINS': str(share
                                              / 'ansible/action_plugins'),
                'ANSIBLE_LIBRARY': str(share / 'ansible/library')})
        self.assertEqual(
            read_ini(self.kolla / 'nova/nova-scheduler.conf'),
            read_ini(merged))
        self.assertEqual(['prometheus', 'secondary-agent'], [
            one['job_name'] for one in yaml.safe_load(
                own.read_text())['scrape_configs']])
        url, = read_ini(merged)['secondary_scheduler']['transport_url']
        self.assertRegex(url, r'secondary-control:\w{20,}@192.0.2.1:5672,')

    def contents(self):
        """Return the digest of each file below Kolla's configuration."""
        return {path: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in self.kolla.rglob('*') if path.is_file()}
