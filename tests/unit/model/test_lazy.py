import unittest

from secondary_scheduler.model.lazy import Lazy


class TestLazy(unittest.TestCase):

    def test_each_value_is_made_once(self):
        made = []
        squares = Lazy(lambda key: made.append(key) or key * key)
        self.assertEqual([9, 4, 9], [squares[key] for key in (3, 2, 3)])
        self.assertEqual([3, 2], made)
