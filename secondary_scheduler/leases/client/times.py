# SPDX-License-Identifier: Apache-2.0

"""Times and durations on the command line."""

import argparse
import datetime
import re

_UNITS = {'d': 86400, 'h': 3600, 'm': 60, 's': 1}
_PARTS = re.compile(r'(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?\Z')


def parse_duration(text: str) -> int:
    """Return the seconds of a text like "90", "2h", "1d12h" or "1h30m"."""
    found = _PARTS.match(text)
    if not text or found is None:
        raise argparse.ArgumentTypeError(
            f'{text!r} is not a duration; write seconds, or like 2h or 1d12h')
    return sum(int(part or 0) * unit for part, unit in zip(
        found.groups(), _UNITS.values(), strict=True))


def parse_time(text: str, now: datetime.datetime | None = None) -> str:
    """Convert "+2h" (from now) or ISO 8601 to the format of the service.

    The default time zone is UTC.
    """
    if text.startswith('+'):
        found = (now or datetime.datetime.now(datetime.UTC)
                 ) + datetime.timedelta(seconds=parse_duration(text[1:]))
    else:
        try:
            found = datetime.datetime.fromisoformat(text)
        except ValueError as exc:
            raise argparse.ArgumentTypeError(
                f'{text!r} is not a time; write like 2027-01-31T08:00 (UTC), '
                '2027-01-31T08:00+01:00, or +2h for in two hours') from exc
        if found.tzinfo is None:
            found = found.replace(tzinfo=datetime.UTC)
    return found.astimezone(datetime.UTC).strftime('%Y-%m-%dT%H:%M:%SZ')


def parse_time_or_none(text: str) -> str | None:
    """Convert a time like ``parse_time``, or return None for "none"."""
    return None if text == 'none' else parse_time(text)


def to_seconds(moment: str) -> int:
    """Convert a time of the service to seconds since 1970."""
    return int(datetime.datetime.fromisoformat(moment).timestamp())
