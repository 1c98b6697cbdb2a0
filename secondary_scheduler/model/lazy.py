"""Values that are worked out when somebody first asks for them."""

from collections.abc import Callable
import inspect
import typing
import weakref

Key = typing.TypeVar('Key')
Value = typing.TypeVar('Value')


class Lazy(dict[Key, Value]):
    """A dictionary that makes a missing value from its key.

    Of a large cluster a decision looks at few hosts: what nobody asks about
    costs nothing.

    Whose method makes the values is not kept alive: it mostly is the one that
    has the dictionary, and both would stay in memory until the garbage
    collector finds them.
    """

    def __init__(self, make: Callable[[Key], Value]) -> None:
        super().__init__()
        self._make = (weakref.WeakMethod(make) if inspect.ismethod(make)
                      else lambda: make)

    def __missing__(self, key: Key) -> Value:
        make = self._make()
        assert make is not None, 'whoever makes the values is gone'
        value = self[key] = make(key)
        return value
