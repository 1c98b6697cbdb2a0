# SPDX-License-Identifier: Apache-2.0

"""Reasons of Placement's refusals, by the codes of ``placement.errors``.

Placement answers 409 to very different faults.  Only one of them, a concurrent
change, is a reason to repeat the request.
"""

import typing

CONCURRENT_UPDATE = 'placement.concurrent_update'
DUPLICATE_NAME = 'placement.duplicate_name'
INVENTORY_IN_USE = 'placement.inventory.inuse'
PROVIDER_IN_USE = 'placement.resource_provider.inuse'


class Refusal(typing.NamedTuple):
    """Code and explanation of a refusal.

    :param code: '' without one: from a service without codes, a proxy, or
        Placement before microversion 1.23.
    """

    code: str
    detail: str

    @property
    def may_be_concurrent(self) -> bool:
        """Whether a conflict is, or can be, a concurrent change."""
        return self.code in ('', CONCURRENT_UPDATE)


def read_refusal(answer: typing.Any) -> Refusal:
    """Return the refusal that a response of ``requests`` has."""
    try:
        error = answer.json()['errors'][0]
        return Refusal(str(error.get('code') or ''),
                       ' '.join(str(error.get('detail') or '').split()))
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError,
            ValueError):
        return Refusal('', str(getattr(answer, 'text', ''))[:300])
