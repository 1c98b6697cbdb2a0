# SPDX-License-Identifier: Apache-2.0

"""Times: bounds, parsing and display.

All times that users write pass ``parse_time``, ``parse_day`` or
``check_time``.  Bounds are compared after the conversion to UTC, so that each
accepted time can be shown in any zone.
"""

import datetime

from secondary_scheduler.reading.values import InputError

#: First and last time that is accepted, in seconds since 1970.
FIRST = 946_684_800
LAST = 4_102_444_799
#: The same as text; a later time is shown as the last one.
FIRST_TEXT, LAST_TEXT = '2000-01-01T00:00:00Z', '2099-12-31T23:59:59Z'
#: Longest duration that is accepted, in seconds: ten years.
LONGEST = 315_360_000

EXPECTED_TIME = f'a time from {FIRST_TEXT} to {LAST_TEXT}'
EXPECTED_DAY = f'a day from {FIRST_TEXT[:10]} to {LAST_TEXT[:10]}'

#: Characters of an error that repeats the given text.
_SHOWN = 80
_LATEST = int(datetime.datetime.max.replace(
    tzinfo=datetime.UTC, microsecond=0).timestamp())


def parse_time(text: str) -> int:
    """Parse a date and time of ISO 8601; return seconds since 1970.

    :param text: without a zone it is in UTC; parts of a second are cut off.
    :raises InputError: if there is no such time, or it is out of bounds.
    """
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError as exc:
        raise InputError(
            f'there is no such time ({str(exc)[:_SHOWN]})') from None
    return check_time(found.replace(tzinfo=found.tzinfo or datetime.UTC))


def check_time(time: datetime.datetime | float) -> int:
    """Return a time within the bounds in whole seconds since 1970.

    :param time: with its zone, or in seconds since 1970.
    :raises InputError: if it is out of bounds.
    """
    # Other than astimezone(), this subtraction cannot leave the calendar.
    seconds = (time.timestamp() if isinstance(time, datetime.datetime)
               else time)
    if not FIRST <= seconds < LAST + 1:
        raise InputError(f'expected {EXPECTED_TIME}')
    return int(seconds)


def parse_day(text: str) -> datetime.date:
    """Parse a day of ISO 8601, like 2027-01-31.

    :raises InputError: if there is no such day, or it is out of bounds.
    """
    try:
        return check_day(datetime.date.fromisoformat(text))
    except InputError:
        raise
    except ValueError as exc:
        raise InputError(
            f'there is no such day ({str(exc)[:_SHOWN]})') from None


def check_day(day: datetime.date) -> datetime.date:
    """Return a day within the bounds.

    :raises InputError: if it is out of bounds.
    """
    if not FIRST_TEXT[:10] <= day.isoformat() <= LAST_TEXT[:10]:
        raise InputError(f'expected {EXPECTED_DAY}')
    return day


def to_datetime(seconds: float) -> datetime.datetime:
    """Convert seconds since 1970 to a time in UTC.

    A time after the year 9999 becomes the last second of that year.
    """
    return datetime.datetime.fromtimestamp(
        min(seconds, _LATEST), datetime.UTC)


def format_time(seconds: float) -> str:
    """Return seconds since 1970 as ISO 8601 in UTC.

    A time after ``LAST`` is shown as ``LAST``: a lease that ends then may be
    saved a little later.
    """
    return to_datetime(min(seconds, LAST)).strftime('%Y-%m-%dT%H:%M:%SZ')
