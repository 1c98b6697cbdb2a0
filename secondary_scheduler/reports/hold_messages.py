# SPDX-License-Identifier: Apache-2.0

"""Messages from the lease engine: resources of hosts held for leases."""

from collections.abc import Callable, Mapping
import typing

from oslo_config import cfg

from secondary_scheduler.model.holds import Holds
from secondary_scheduler.reports import transport

#: Not the topic of reports, to which agents send.
TOPIC = 'secondary_scheduler_holds'


class HoldSender(transport.LatestSender):
    """Broadcasts the holds of leases to schedulers."""

    CONTENT = 'Hosts that are held for leases'

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf, TOPIC, 'holds')


class HoldEndpoint(transport.MessageReader[Holds]):
    """RPC endpoint of schedulers for ``HoldSender``."""

    def __init__(self, callback: Callable[[Holds], object]) -> None:
        super().__init__(Holds.from_dict, callback)

    def holds(self, ctxt: Mapping[str, typing.Any], holds: object) -> None:
        """Take in the holds of all leases."""
        self._take(holds)
