"""Reasons for failed and skipped actions, as Watcher's database keeps them."""

import re
import textwrap

from secondary_scheduler.leases.engine.values import Nature

#: Watcher keeps 255 characters, its own words included; MariaDB refuses more,
#: which ends the plan.
_LONGEST = 200
_FAILED = re.compile(r'\bfailed \((' + '|'.join(Nature) + r')\): (.*)',
                     re.DOTALL)


def shortened(message: str) -> str:
    """Return a message that fits into the column of the database."""
    return textwrap.shorten(message, _LONGEST, placeholder=' ...')


def failed(kind: str, uuid: str, nature: Nature, why: str) -> str:
    """Return the message of an action that failed.

    :param kind: of the operation.
    :param uuid: of the instance, or of the lease.
    :param why: in the words of the service that refused.
    """
    return shortened(f'{kind} of {uuid} failed ({nature}): {why}')


def failure(message: str | None) -> tuple[Nature, str]:
    """Return the nature and the reason that the message of an action gives.

    An action that another program has ended, or that was skipped, gives no
    nature: the operation may succeed the next time.
    """
    said = _FAILED.search(message or '')
    if said is None:
        return Nature.TRANSIENT, message or ''
    return Nature(said[1]), said[2]
