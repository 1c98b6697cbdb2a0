# SPDX-License-Identifier: Apache-2.0

"""Reasons for failed and skipped actions, as Watcher's database keeps them."""

import re
import textwrap

from secondary_scheduler.leases.engine.values import Nature

#: Longest message.  Watcher's column has 255 characters, for its own text too;
#: MariaDB rejects more, which fails the plan.
_LONGEST = 200
_FAILED = re.compile(r'\bfailed \((' + '|'.join(Nature) + r')\): (.*)',
                     re.DOTALL)


def shorten_message(message: str) -> str:
    """Shorten a message to the column of the database."""
    return textwrap.shorten(message, _LONGEST, placeholder=' ...')


def format_failure(kind: str, uuid: str, nature: Nature, why: str) -> str:
    """Return the message of an action that failed.

    :param kind: of the operation.
    :param uuid: of the instance, or of the lease.
    :param why: the reason as the service gave it.
    """
    return shorten_message(f'{kind} of {uuid} failed ({nature}): {why}')


def parse_failure(message: str | None) -> tuple[Nature, str]:
    """Return the nature and the reason in the message of an action.

    The nature is TRANSIENT if the message has none, as for a skipped action
    or one that another program set to FAILED.
    """
    said = _FAILED.search(message or '')
    if said is None:
        return Nature.TRANSIENT, message or ''
    return Nature(said[1]), said[2]
