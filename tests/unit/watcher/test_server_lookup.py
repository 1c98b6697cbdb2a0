# SPDX-License-Identifier: Apache-2.0

"""Look-up of servers one by one."""

import unittest

from secondary_scheduler.watcher import cloud_errors, server_lookup


class LookUpTest(unittest.TestCase):

    def test_each_answer_of_nova_has_one_meaning(self):
        answers = {'a': 'server', 'b': None,
                   'c': cloud_errors.NotFound('c'),
                   'd': cloud_errors.Unseen('d'), 'e': 'another',
                   'f': cloud_errors.TimedOut('f'), 'g': 'not requested'}
        requests = []

        class Cloud:
            def server(self, uuid):
                requests.append(uuid)
                if isinstance(answers[uuid], Exception):
                    raise answers[uuid]
                return answers[uuid]

        found = server_lookup.look_up_servers(Cloud(), sorted(answers))
        self.assertEqual(server_lookup.LookUp(
            {'a': 'server', 'e': 'another'}, {'c'}, {'b'}, {'d', 'f'}), found)
        self.assertEqual(list('abcdef'), requests)

    def test_only_one_request_waits_for_a_cell(self):
        for wait, number in ((0.1, 3), (5.0, 1)):
            now = [0.0]

            class Cloud:
                def server(self, uuid, now=now, wait=wait):
                    now[0] += wait
                    raise cloud_errors.Unseen(uuid)

            found = server_lookup.look_up_servers(
                Cloud(), ['a', 'b', 'c'], lambda now=now: now[0])
            self.assertEqual(number, len(found.unseen))

    def test_error_of_nova_itself_is_raised(self):
        class Cloud:
            def server(self, uuid):
                raise cloud_errors.CloudError('500')

        self.assertRaises(cloud_errors.CloudError,
                          server_lookup.look_up_servers, Cloud(), ['a'])
