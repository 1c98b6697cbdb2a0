"""Values worked out when asked for, and who is kept alive by them."""

import gc
import unittest
import weakref

from secondary_scheduler.model.lazy import Lazy


class Owner:
    """Has values that a method of its own makes."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.lengths = Lazy(self._length)

    def _length(self, key: str) -> int:
        self.asked.append(key)
        return len(key)


class TestLazy(unittest.TestCase):
    """What is asked for is made once."""

    def test_once(self) -> None:
        owner = Owner()
        self.assertEqual([3, 3], [owner.lengths['abc'] for _ in range(2)])
        self.assertEqual(['abc'], owner.asked)

    def test_any_function(self) -> None:
        self.assertEqual(6, Lazy(lambda key: 2 * key)[3])

    def test_owner_goes_at_once(self) -> None:
        owner = Owner()
        self.assertEqual(1, owner.lengths['a'])
        gone = weakref.ref(owner)
        gc.disable()
        try:
            del owner
            self.assertIsNone(gone())
        finally:
            gc.enable()

    def test_nobody_left_to_ask(self) -> None:
        lengths = Owner().lengths
        with self.assertRaisesRegex(AssertionError, 'is gone'):
            lengths['a']
