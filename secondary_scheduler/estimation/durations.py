"""How long an operation is expected to take.

For now a profile of constants, in the order of magnitude of small guests on
shared storage (Boettger 3.4 fits them to the operations under way).
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Durations:
    """Seconds by kind of operation; the fields are the kinds' values."""

    migrate: float = 5.0
    suspend: float = 3.0
    resume: float = 3.0
    stop: float = 2.0
    start: float = 5.0
    shelve: float = 10.0
    unshelve: float = 15.0

    def of(self, kind: str) -> float:
        """Return the expected duration of one operation, in seconds."""
        return float(getattr(self, kind))
