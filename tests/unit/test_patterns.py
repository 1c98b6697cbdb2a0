# SPDX-License-Identifier: Apache-2.0

"""Regular expressions that meet foreign text take a time with its length."""

import importlib
import itertools
import pkgutil
import re
import time
import unittest

import secondary_scheduler
from secondary_scheduler.leases.api import openapi, resources

#: Length of the texts, and seconds of CPU: a thousand times those of a pattern
#: whose time grows with the length, a tenth of those of one with its square.
LENGTH, MOST_S = 20_000, 0.3
#: Repeated parts of the texts; each is followed by a character that fits none.
PARTS = ('\n', '\r\n', ' ', 'a', 'a ', '=', '0', '0.', 'm', 's', 'r', '-', '/',
         'A0+', 'u0', '1d', '\\0', 'node0', 'failed (', 'é', '+')
#: Packages whose modules import another service of OpenStack.
LEFT_OUT = ('secondary_scheduler.nova', 'secondary_scheduler.watcher',
            'secondary_scheduler.simulation')


def schema_patterns(schema):
    """Yield the patterns in a JSON schema."""
    if isinstance(schema, dict):
        if isinstance(schema.get('pattern'), str):
            yield schema['pattern']
        yield from schema.get('patternProperties', ())
        schema = list(schema.values())
    if isinstance(schema, list | tuple):
        for one in schema:
            yield from schema_patterns(one)


def module_patterns():
    """Yield the name and the pattern of each constant of a module."""
    for found in pkgutil.walk_packages(
            secondary_scheduler.__path__, 'secondary_scheduler.',
            onerror=lambda name: None):
        if found.name.startswith(LEFT_OUT) or '.migrations' in found.name:
            continue
        try:
            module = importlib.import_module(found.name)
        except ImportError:     # of an extra that is not installed
            continue
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                yield f'{found.name}.{name}', value


def slow_texts(pattern, *methods):
    """Yield the repeated parts of texts for which a pattern is slow.

    :param methods: names of the methods with which it is used.
    """
    for part, end in itertools.product(PARTS, '!\x00'):
        text = part * (LENGTH // len(part)) + end
        for match in (getattr(pattern, one) for one in methods):
            began = time.process_time()
            match(text)
            if time.process_time() - began > MOST_S:
                yield part
                break


class PatternsTest(unittest.TestCase):

    def test_patterns_of_the_lease_service(self):
        patterns = set(schema_patterns(
            openapi.describe_service(resources.TABLE, '')))
        self.assertGreater(len(patterns), 4)
        for pattern in patterns:
            with self.subTest(pattern):
                self.assertEqual([], [*slow_texts(
                    re.compile(pattern), 'search')])

    def test_patterns_of_modules(self):
        patterns = dict(module_patterns())
        self.assertGreater(len(patterns), 20)
        for name, pattern in patterns.items():
            with self.subTest(name):
                self.assertEqual([], [*slow_texts(
                    pattern, 'match', 'fullmatch')])

    def test_pattern_with_the_square_of_the_length_is_found(self):
        slow = re.compile(r'^[A-Za-z0-9+/\r\n]*={0,2}[\r\n]*$')
        self.assertIn('\n', [*itertools.islice(
            slow_texts(slow, 'search'), 1)])
