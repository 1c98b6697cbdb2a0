# SPDX-License-Identifier: Apache-2.0

"""Texts of values, for tables and templates."""

from collections.abc import Iterable, Mapping
import datetime
import typing

from django.utils import timezone
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from secondary_scheduler.model.lease_states import FINAL, LeaseState

#: Shown in place of an unknown value.
UNKNOWN = '–'

STATES = {
    'new': _('New'), 'pending': _('Pending'), 'rejected': _('Rejected'),
    'rejected-by-user': _('Rejected: too expensive'),
    'queued': _('Queued'), 'scheduled': _('Scheduled'),
    'preparing': _('Preparing'), 'ready': _('Ready'), 'active': _('Active'),
    'suspending': _('Suspending'),
    'suspended-pending': _('Suspended, pending'),
    'suspended-queued': _('Suspended, queued'),
    'suspended-scheduled': _('Suspended, scheduled'),
    'migrating': _('Migrating'), 'resuming': _('Resuming'),
    'resumed-ready': _('Resumed'), 'starting': _('Starting'),
    'interrupted': _('Interrupted'), 'unknown': _('Unknown'),
    'ending': _('Ending'), 'error': _('Error'),
    'done': _('Done'), 'cancelled': _('Cancelled'), 'failed': _('Failed')}
KINDS = {
    'best-effort': _('As soon as there is room'),
    'immediate': _('Immediate'), 'reservation': _('Reservation'),
    'deadline': _('By a deadline')}

WISHES = {'paused': _('paused'), 'cancelling': _('cancelling')}
#: Text of each value of ``state_key``.
STATE_TEXTS = (*STATES.items(), *(
    (f'{state}/{wish}', format_lazy('{} ({})', text, shown))
    for state, text in STATES.items() for wish, shown in WISHES.items()))

_UNITS = ((86400, 'd'), (3600, 'h'), (60, 'min'), (1, 's'))


def format_duration(seconds: float | None) -> typing.Any:
    """Return a duration like "1 d 12 h"; None is unlimited."""
    if seconds is None:
        return _('unlimited')
    left, parts = int(seconds), []
    for size, name in _UNITS:
        number, left = divmod(left, size)
        if number:
            parts.append(f'{number} {name}')
    return ' '.join(parts) or '0 s'


def parse_moment(text: str | None) -> datetime.datetime | None:
    """Return a time of the service, in the user's time zone."""
    if not text:
        return None
    return timezone.localtime(datetime.datetime.fromisoformat(text))


def format_moment(text: str | None) -> str:
    """Return a time of the service for the user; a dash if there is none."""
    moment = parse_moment(text)
    return UNKNOWN if moment is None else f'{moment:%Y-%m-%d %H:%M:%S}'


def format_nodes(nodes: Iterable[Mapping[str, typing.Any]]) -> str:
    """Return the node sets of a lease, like "4 × secondary.small"."""
    # Without a line break between number and flavor.
    return ', '.join(f'{one["number"]}\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}'
                     f'{one["flavor"]}' for one in nodes)


def state_key(lease: Mapping[str, typing.Any]) -> str:
    """Return the state of a lease with the wish of its owner, if any.

    ``active``, ``active/paused`` or ``active/cancelling``.
    """
    state = str(lease['state'])
    if not is_over(lease):
        if lease['cancelling']:
            return f'{state}/cancelling'
        if lease['paused']:
            return f'{state}/paused'
    return state


def format_state(lease: Mapping[str, typing.Any]) -> str:
    """Return the state of a lease with the wish of its owner, if any."""
    state, _slash, wish = state_key(lease).partition('/')
    text = str(STATES.get(state, state))
    return f'{text} ({WISHES[wish]})' if wish else text


def format_number(value: float | None, digits: int = 2) -> str:
    """Return a number with few digits; a dash if it is unknown."""
    if value is None:
        return UNKNOWN
    return f'{value:.{digits}f}'.rstrip('0').rstrip('.') if digits else (
        f'{value:.0f}')


def is_over(lease: Mapping[str, typing.Any]) -> bool:
    """Return whether a lease has reached a final state."""
    return lease['state'] in FINAL


def can_delete(lease: Mapping[str, typing.Any]) -> bool:
    """Return whether the service lets a lease be deleted."""
    return is_over(lease) or lease['state'] == LeaseState.NEW
