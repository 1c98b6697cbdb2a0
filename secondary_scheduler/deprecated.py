# SPDX-License-Identifier: Apache-2.0

"""Module attributes that were renamed, found with a warning."""

from collections.abc import Callable, Mapping
import importlib
import typing
import warnings


def find_renamed(module: str, names: Mapping[str, str]
                 ) -> Callable[[str], typing.Any]:
    """Return a function ``__getattr__`` of a module (PEP 562).

    :param names: path of the new attribute by old name.
    """
    def find(name: str) -> typing.Any:
        if name not in names:
            raise AttributeError(f'module {module!r} has no attribute '
                                 f'{name!r}')
        place, _, attribute = names[name].rpartition('.')
        warnings.warn(f'{module}.{name} is deprecated and will be removed in '
                      f'the next release: use {names[name]}.',
                      DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(place), attribute)
    return find
