# SPDX-License-Identifier: Apache-2.0

"""Types of arguments that several commands have."""

import argparse
from collections.abc import Callable
import typing

from secondary_scheduler.reading import values

#: The command groups, as ``ArgumentParser.add_subparsers`` returns them.
Groups: typing.TypeAlias = (
    'argparse._SubParsersAction[argparse.ArgumentParser]')


def whole_number(least: int, most: int = values.MOST) -> Callable[[str], int]:
    """Return an argument type for whole numbers from ``least`` to ``most``."""
    def convert(text: str) -> int:
        return values.parse_whole(text, least, most)

    convert.__name__ = f'whole number from {least} to {most}'
    return convert
