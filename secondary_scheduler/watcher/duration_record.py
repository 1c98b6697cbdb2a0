# SPDX-License-Identifier: Apache-2.0

"""Record of an operation's duration, in the status message of its action.

Actions write it; ``history`` and ``leases.action_plans`` read it.  Operators
see the text in Watcher, and other versions parse it, so its form is fixed.
"""

import dataclasses
import datetime
import re

from secondary_scheduler.model.cluster import DirtyMemory

_TEXT = re.compile(r'Took (\d+\.\d+) s until (\S+)'
                   r'(?: for (\d+) MiB(?:, (\d+\.\d+) MiB written in 1 s, '
                   r'(\d+\.\d+) in 5 s)?)?')


@dataclasses.dataclass(frozen=True)
class DurationRecord:
    """Duration of an operation that has succeeded.

    :param seconds: the duration.
    :param end: time of its end, in seconds since 1970.
    :param memory_mb: memory of the instance in MiB, None if it is unknown.
    :param dirty: memory that the instance wrote to before a migration or a
        suspend, None if it is unknown.
    """

    seconds: float
    end: float
    memory_mb: int | None = None
    dirty: DirtyMemory | None = None

    def to_message(self) -> str:
        """Return the text of the record."""
        end = datetime.datetime.fromtimestamp(self.end, datetime.UTC)
        text = f'Took {self.seconds:.2f} s until {end:%Y-%m-%dT%H:%M:%S.%f%z}'
        if self.memory_mb is None:
            return text
        text += f' for {self.memory_mb} MiB'
        if self.dirty is None:
            return text
        return text + ', {:.1f} MiB written in 1 s, {:.1f} in 5 s'.format(
            *self.dirty)

    @classmethod
    def from_message(cls, text: str | None) -> 'DurationRecord | None':
        """Return the record of a status message, None if it has none."""
        found = _TEXT.fullmatch(text or '')
        if found is None:
            return None
        seconds, end, memory_mb, *dirty = found.groups()
        try:
            moment = datetime.datetime.fromisoformat(end).timestamp()
        except (OverflowError, ValueError):
            return None
        return cls(float(seconds), moment,
                   None if memory_mb is None else int(memory_mb),
                   None if dirty[0] is None
                   else DirtyMemory(*map(float, dirty)))
