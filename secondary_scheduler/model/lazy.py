# SPDX-License-Identifier: Apache-2.0

"""A dictionary of values that are computed at first access."""

from collections.abc import Callable
import inspect
import typing
import weakref

Key = typing.TypeVar('Key')
Value = typing.TypeVar('Value')


class Lazy(dict[Key, Value]):
    """A dictionary that computes a missing value from its key.

    A decision looks at few hosts of a large cluster; values of the others are
    never computed.

    If ``make`` is a method, it is held by a weak reference.  Its object
    mostly has the dictionary as an attribute, and the reference cycle would
    keep both in memory until the garbage collector runs.
    """

    def __init__(self, make: Callable[[Key], Value]) -> None:
        super().__init__()
        self._make = (weakref.WeakMethod(make) if inspect.ismethod(make)
                      else lambda: make)

    def __missing__(self, key: Key) -> Value:
        make = self._make()
        assert make is not None, 'the owner of the values is gone'
        value = self[key] = make(key)
        return value
