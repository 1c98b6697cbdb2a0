# SPDX-License-Identifier: Apache-2.0

"""Record of an operation's duration."""

import unittest

from secondary_scheduler.model.cluster import DirtyMemory
from secondary_scheduler.watcher.duration_record import DurationRecord

#: Texts of this and of earlier releases, and their records.
MESSAGES = (
    ('Took 2.50 s until 2027-01-31T08:00:00.250000+0000 for 512 MiB, '
     '3.2 MiB written in 1 s, 7.0 in 5 s',
     DurationRecord(2.5, 1801382400.25, 512, DirtyMemory(3.2, 7.0))),
    ('Took 12.04 s until 2027-01-31T08:00:00.000000+0000 for 0 MiB',
     DurationRecord(12.04, 1801382400.0, 0)),
    ('Took 1.25 s until 2027-01-31T08:00:00.000000+0000',
     DurationRecord(1.25, 1801382400.0)),
)


class DurationRecordTest(unittest.TestCase):

    def test_message_has_a_fixed_form(self):
        for message, record in MESSAGES:
            with self.subTest(message):
                self.assertEqual(message, record.to_message())

    def test_record_is_read_from_its_message(self):
        for message, record in MESSAGES:
            with self.subTest(message):
                self.assertEqual(record, DurationRecord.from_message(message))

    def test_other_messages_have_no_record(self):
        message = MESSAGES[0][0]
        for other in (None, '', 'Took 1.00 s until tea', 'Took 1.00 s',
                      'Took 1.00 s until 0001-01-01T00:00:00',
                      message + '.', ' ' + message, message.lower()):
            with self.subTest(other):
                self.assertIsNone(DurationRecord.from_message(other))


if __name__ == '__main__':
    unittest.main()
