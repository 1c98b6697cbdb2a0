# SPDX-License-Identifier: Apache-2.0

"""Storage of the prices that a pricing driver has learned."""

import json

from oslo_log import log as logging

from secondary_scheduler.leases.api.db import schedules
from secondary_scheduler.leases.api.db.session import Database
from secondary_scheduler.leases.scheduling.pricing import Pricing

LOG = logging.getLogger(__name__)


class PricingStore:
    """The stored state of a pricing driver; does nothing without a driver."""

    def __init__(self, database: Database, pricing: Pricing | None) -> None:
        self._database = database
        self._pricing = pricing
        self._stored: str | None = None

    @property
    def _name(self) -> str:
        return f'pricing.{type(self._pricing).__name__}'

    def restore(self) -> None:
        """Restore the driver's state, or reset it if it cannot be read."""
        if self._pricing is None:
            return
        self._stored = schedules.read_learned(self._database, self._name)
        try:
            self._pricing.recall(json.loads(self._stored or 'null'))
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            LOG.warning('The stored state of %(name)s cannot be read; it '
                        'starts without: %(exc)r',
                        {'name': self._name, 'exc': exc})
            self._pricing.recall(None)

    def unsaved_state(self) -> dict[str, str]:
        """Return {name: state} if the state has changed since the last call.
        """
        known = None if self._pricing is None else self._pricing.learned()
        if known is None:
            return {}
        text = json.dumps(known, separators=(',', ':'))
        if text == self._stored:
            return {}
        self._stored = text
        return {self._name: text}
