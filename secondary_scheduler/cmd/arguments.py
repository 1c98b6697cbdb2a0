"""Types of arguments that several commands have."""

from collections.abc import Callable

from secondary_scheduler.reading import values


def whole_number(least: int, most: int = values.MOST) -> Callable[[str], int]:
    """Return an argument type for whole numbers from ``least`` to ``most``."""
    def convert(text: str) -> int:
        return values.parse_whole(text, least, most)

    convert.__name__ = f'whole number from {least} to {most}'
    return convert
