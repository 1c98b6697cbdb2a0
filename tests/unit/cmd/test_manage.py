# SPDX-License-Identifier: Apache-2.0

"""Tests of ``secondary-scheduler``: choice of the cloud, and errors."""

import contextlib
import io
from unittest import mock

from keystoneauth1 import exceptions as ks_exceptions

from secondary_scheduler.cmd import manage
from tests.unit.cmd.command_case import CommandCase


class ErrorsTest(CommandCase):

    def test_failed_login_gives_a_hint(self):
        code, text = self.run_command(
            'host', 'list', connect=mock.Mock(
                side_effect=ks_exceptions.MissingRequiredOptions([])))
        self.assertEqual(1, code)
        self.assertIn('openstack token issue', text)

    def test_missing_role_is_named(self):
        self.cloud.placement.refuse = 403
        self.assertIn('role admin', self.bad('host', 'list'))

    def test_status_of_placement_error_is_shown(self):
        self.cloud.placement.refuse = 500
        self.assertIn('HTTP 500', self.bad('host', 'list'))

    def test_cloud_is_chosen_by_option(self):
        connect = mock.Mock(return_value=self.cloud)
        self.run_command('--os-cloud', 'mine', 'host', 'list', connect=connect)
        self.assertEqual('mine', connect.call_args.kwargs['cloud'])

    def test_help_of_all_groups(self):
        for arguments in ((), ('host',), ('host', 'enable'),
                          ('flavor', 'create')):
            out = io.StringIO()
            with self.assertRaises(SystemExit) as ended, \
                    contextlib.redirect_stdout(out):
                manage.main((*arguments, '--help'))
            self.assertEqual(0, ended.exception.code)
            self.assertIn('secondary-scheduler', out.getvalue())

    def test_every_action_of_the_parser_has_a_command(self):
        known = {action for module in (*manage.ONLINE, *manage.OFFLINE)
                 for action in module.COMMANDS}
        for arguments, action in (
                (['host', 'list'], 'host_list'),
                (['flavor', 'check'], 'flavor_check'),
                (['lease-db', 'version'], 'lease_db_version'),
                (['simulate', 'list'], 'simulate_list'),
                (['plan', 'check', 'a', 'b'], 'plan_check')):
            found = manage.build_parser().parse_args(arguments).action
            self.assertEqual(action, found)
            self.assertIn(found, known)
