# SPDX-License-Identifier: Apache-2.0

"""Accounts and services that the Ansible role makes and deletes."""

import importlib.util
import pathlib
import types
import unittest
from unittest import mock

PATH = (pathlib.Path(__file__).resolve().parents[2] / 'ansible/roles'
        / 'secondary_scheduler/files/cloud_objects.py')


def load():
    """Return the program of the role as a module."""
    spec = importlib.util.spec_from_file_location('cloud_objects', PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class CloudObjectsTest(unittest.TestCase):

    def setUp(self):
        self.cloud = mock.Mock()
        self.identity = self.cloud.identity
        self.identity.services.return_value = [
            types.SimpleNamespace(id='s1', type='secondary-lease')]

    def objects(self, **wanted):
        return load().Objects(self.cloud, {
            'check': False, 'present': False, 'domain': 'Default',
            'project': 'service', **wanted})

    def endpoints(self, *regions):
        points = [types.SimpleNamespace(
            service_id='s1', region_id=region, interface='public')
            for region in regions]
        self.identity.endpoints.return_value = points
        return points

    def test_removal_keeps_the_endpoints_of_another_region(self):
        own, _ = self.endpoints('one', 'two')
        self.objects().service('secondary-lease', 'one', 'http://one')
        self.identity.delete_endpoint.assert_called_once_with(own)
        self.identity.delete_service.assert_not_called()

    def test_removal_deletes_the_service_with_its_last_endpoint(self):
        self.endpoints('one')
        self.objects().service('secondary-lease', 'one', 'http://one')
        self.identity.delete_service.assert_called_once()

    def test_removal_keeps_a_role_that_a_user_has(self):
        self.identity.role_assignments.return_value = iter(['assignment'])
        self.objects().role('secondary_agent')
        self.identity.delete_role.assert_not_called()
        self.identity.role_assignments.return_value = iter([])
        self.objects().role('secondary_agent')
        self.identity.delete_role.assert_called_once()

    def test_missing_role_stops_before_the_user_is_made(self):
        self.identity.find_user.return_value = None
        self.identity.find_role.return_value = None
        for check in (False, True):
            with self.assertRaisesRegex(SystemExit,
                                        'openstack role create service'):
                self.objects(present=True, check=check).user(
                    'secondary-lease', 'secret', 'service')
        self.identity.create_user.assert_not_called()

    def test_check_mode_does_not_miss_a_role_that_would_be_made(self):
        self.identity.find_user.return_value = None
        self.identity.find_role.return_value = None
        objects = self.objects(present=True, check=True,
                               role='secondary_agent')
        objects.user('secondary-agent', 'secret', 'secondary_agent')
        self.assertEqual(['user secondary-agent'], objects.changes)
