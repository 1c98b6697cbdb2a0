# SPDX-License-Identifier: Apache-2.0

"""Checks that faulty documents are rejected."""

import copy
import unittest

from secondary_scheduler.reading.fields import DocumentError

#: Texts that are no document, with parts of the error message.
NO_DOCUMENTS = (
    ('', 'line 1, column 1: not JSON'),
    ('{"schema": 1,}', 'line 1', 'not JSON'),
    ('[]', 'the document: expected an object, not []'),
    ('{"schema": 1, "schema": 1}', '"schema" is given twice'),
    ('{"schema": NaN}', 'schema: expected a whole', 'not NaN'),
    ('{"schema": -Infinity}', 'not -Infinity'),
    ('{"schema": 1e999}', 'not 1e999'),
    ('{"schema": ' + '9' * 5000 + '}', 'schema: expected',
     'not 999', '...'),
    ('[' * 100_000, 'too deeply'))


class WrongDocument(unittest.TestCase):
    """Base of tests with faulty documents."""

    def rejects(self, read, whole, path, value, *words):
        """Check the error after a field is set; None removes it."""
        changed = copy.deepcopy(whole)
        spot = changed
        for step in path[:-1]:
            spot = spot[step]
        if value is None:
            del spot[path[-1]]
        else:
            spot[path[-1]] = value
        with self.subTest(path=path, value=value), \
                self.assertRaises(DocumentError) as caught:
            read(changed)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def rejects_other_texts(self, read):
        """Check that texts which are no document are rejected."""
        for text, *words in NO_DOCUMENTS:
            with self.subTest(text[:30]), \
                    self.assertRaises(DocumentError) as caught:
                read(text)
            for word in words:
                self.assertIn(word, str(caught.exception))
