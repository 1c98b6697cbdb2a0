"""Values that are worked out when somebody first asks for them."""

from collections.abc import Callable
import typing

Key = typing.TypeVar('Key')
Value = typing.TypeVar('Value')


class Lazy(dict[Key, Value]):
    """A dictionary that makes a missing value from its key.

    Of a large cluster a decision looks at few hosts: what nobody asks about
    costs nothing.
    """

    def __init__(self, make: Callable[[Key], Value]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Key) -> Value:
        value = self[key] = self._make(key)
        return value
