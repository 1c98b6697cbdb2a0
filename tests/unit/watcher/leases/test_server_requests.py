# SPDX-License-Identifier: Apache-2.0

"""Properties of servers from the database of leases."""

import unittest
from unittest import mock

from oslo_db import exception as db_exception

from secondary_scheduler.leases.api.db import errors
from secondary_scheduler.watcher.cloud_errors import CloudError, Refused
from secondary_scheduler.watcher.leases import server_requests


class ReadServerRequestTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        for target, name in ((server_requests, '_database'),
                             (server_requests.requests, 'server_request')):
            patcher = mock.patch.object(target, name)
            self.answer = patcher.start()
            self.addCleanup(patcher.stop)

    def test_properties_are_read_from_the_database(self):
        self.answer.return_value = {'user_data': 'secret'}
        self.assertEqual({'user_data': 'secret'},
                         server_requests.read_server_request('lease', 1))
        self.answer.assert_called_once_with(
            server_requests._database(), 'lease', 1)

    def test_unknown_node_is_refused(self):
        self.answer.side_effect = errors.UnknownLease('no such node')
        with self.assertRaisesRegex(Refused, 'no such node'):
            server_requests.read_server_request('lease', 1)

    def test_error_of_the_database_is_one_line_with_the_option(self):
        self.answer.side_effect = db_exception.DBError(
            Exception('no connection\n(Background on this error at ...)'))
        with self.assertRaises(CloudError) as caught:
            server_requests.read_server_request('lease', 1)
        text = str(caught.exception)
        self.assertIn('[secondary_lease_api] database_url', text)
        self.assertTrue(text.endswith('no connection'))
        self.assertNotIn('\n', text)


class VerifyLeaseTest(unittest.TestCase):

    def test_node_sets_of_the_database_are_verified(self):
        with mock.patch.object(server_requests, '_database'), (
                mock.patch.object(server_requests.requests, 'node_sets')
                ) as read, mock.patch.object(
                    server_requests, '_verifier') as verifier:
            found = server_requests.verify_lease('session', 'lease', 'p1')
            self.assertIs(verifier().verify.return_value, found)
            verifier().verify.assert_called_once_with(
                'session', read.return_value, 'p1')
            read.side_effect = errors.UnknownLease('no such lease')
            with self.assertRaisesRegex(Refused, 'no such lease'):
                server_requests.verify_lease('session', 'lease', 'p1')


if __name__ == '__main__':
    unittest.main()
