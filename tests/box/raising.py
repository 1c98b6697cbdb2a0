# SPDX-License-Identifier: Apache-2.0

"""Broken copy of our code in nova-scheduler, for tests of the guards.

With ``available_filters = tests.box.raising.all_filters`` in its
configuration, a scheduler imports this module, and from then on every
function and method of ours behind the guards raises.  The guards are what
Nova itself calls: they are there to catch it.
"""

import inspect
import types

from secondary_scheduler.model import reports, vocabulary
from secondary_scheduler.nova import (
    filters,
    records,
    report_books,
    request,
    secondary_usage,
    settings,
    weights,
)
from secondary_scheduler.policies import language
from secondary_scheduler.reports import book, report_messages, transport

MESSAGE = 'made to raise by a test'

#: Functions that Nova calls, at its start or for each request.
GUARDS = {'all_filters', 'all_weighers', 'load_plugins', 'filter_all',
          'host_passes', '_concerns_us', 'weigh_objects',
          'weight_multiplier'}


def _raise(*args: object, **kwargs: object) -> None:
    raise RuntimeError(MESSAGE)


def _break(owner: type | types.ModuleType, module: str) -> list[str]:
    broken = []
    for name, value in list(vars(owner).items()):
        if name in GUARDS or getattr(value, '__module__', '') != module:
            continue
        if inspect.isfunction(value):
            # The replaced weighers' guard asks Nova's own method first.
            if not (name == '_weigh_object' and owner
                    is weights._WithoutSecondaries):
                setattr(owner, name, _raise)
                broken.append(name)
        elif inspect.isclass(value) and not issubclass(value, Exception):
            broken += _break(value, module)
    return broken


BROKEN = [
    name
    for module in (
        request,
        settings,
        report_books,
        secondary_usage,
        records,
        weights,
        filters,
        book,
        report_messages,
        transport,
        reports,
        vocabulary,
        language,
    )
    for name in _break(module, module.__name__)
]


def all_filters() -> list[type]:
    """Return no filter."""
    return []
