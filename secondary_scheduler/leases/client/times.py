# SPDX-License-Identifier: Apache-2.0

"""Times and durations on the command line."""

import argparse
import datetime
import re
import time

from secondary_scheduler.reading import times, values

_UNITS = {'d': 86400, 'h': 3600, 'm': 60, 's': 1}
# More digits than any accepted duration has would only cost time.
_PARTS = re.compile('(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?'
                    r'(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s?)?\Z')


def parse_duration(text: str) -> int:
    """Return the seconds of a text like "90", "2h", "1d12h" or "1h30m".

    :raises ArgumentTypeError: if it is no duration of at most ten years.
    """
    found = _PARTS.match(text)
    seconds = times.LONGEST + 1 if not text or found is None else sum(
        int(part or 0) * unit for part, unit in zip(
            found.groups(), _UNITS.values(), strict=True))
    if seconds > times.LONGEST:
        raise argparse.ArgumentTypeError(
            f'{values.shown(text)} is not a duration of at most ten years; '
            'write seconds, or like 2h or 1d12h')
    return seconds


def parse_time(text: str, now: datetime.datetime | None = None) -> str:
    """Convert "+2h" (from now) or ISO 8601 to the format of the service.

    The default time zone is UTC.

    :raises ArgumentTypeError: if it is no time that the service takes.
    """
    try:
        if not text.startswith('+'):
            return times.format_time(times.parse_time(text))
        begin = time.time() if now is None else now.timestamp()
        return times.format_time(times.check_time(
            begin + parse_duration(text[1:])))
    except values.InputError as exc:
        raise argparse.ArgumentTypeError(
            f'{values.shown(text)}: {exc}; write like 2027-01-31T08:00 '
            '(UTC), 2027-01-31T08:00+01:00, or +2h for in two hours') from exc


def parse_time_or_none(text: str) -> str | None:
    """Convert a time like ``parse_time``, or return None for "none"."""
    return None if text == 'none' else parse_time(text)


def parse_day(text: str) -> str:
    """Return a day like 2027-01-31 in the format of the service.

    :raises ArgumentTypeError: if it is no day that the service takes.
    """
    try:
        return times.parse_day(text).isoformat()
    except values.InputError as exc:
        raise argparse.ArgumentTypeError(
            f'{values.shown(text)}: {exc}; write like 2027-01-31') from exc


def to_seconds(moment: str) -> int:
    """Convert a time of the service to seconds since 1970."""
    return int(datetime.datetime.fromisoformat(moment).timestamp())
