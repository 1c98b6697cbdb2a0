# SPDX-License-Identifier: Apache-2.0

"""Values computed at first access, and the life of their owner."""

import gc
import unittest
import weakref

from secondary_scheduler.model.lazy import Lazy


class Owner:
    """Object with values that its method computes."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.lengths = Lazy(self._length)

    def _length(self, key: str) -> int:
        self.asked.append(key)
        return len(key)


class TestLazy(unittest.TestCase):
    def test_value_is_computed_once(self) -> None:
        owner = Owner()
        self.assertEqual([3, 3], [owner.lengths['abc'] for _ in range(2)])
        self.assertEqual(['abc'], owner.asked)

    def test_make_may_be_any_function(self) -> None:
        self.assertEqual(6, Lazy(lambda key: 2 * key)[3])

    def test_owner_is_freed_without_garbage_collection(self) -> None:
        owner = Owner()
        self.assertEqual(1, owner.lengths['a'])
        gone = weakref.ref(owner)
        gc.disable()
        try:
            del owner
            self.assertIsNone(gone())
        finally:
            gc.enable()

    def test_lookup_fails_after_the_owner_is_gone(self) -> None:
        lengths = Owner().lengths
        with self.assertRaisesRegex(AssertionError, 'is gone'):
            lengths['a']
