# SPDX-License-Identifier: Apache-2.0

"""Facts about leases that only decisions on all leases need."""

from collections.abc import Mapping
import dataclasses


@dataclasses.dataclass(frozen=True)
class LeaseFacts:
    """Facts about leases beside those of Nova and of the agents.

    :param returned: seconds since the last return, by instance
    :param default_demand: percent of its vCPUs that an instance wants which
        is down, if that was not stored
    :param unlimited: CPUs that instances used before a recent limit held
        them, by instance
    :param expected_claims: claims of running secondaries once the leases that
        start soon run, by host and resource class; only of their hosts
    :param guaranteed: ids of leases with a guaranteed start
    """

    returned: Mapping[str, float] = dataclasses.field(default_factory=dict)
    default_demand: float = 100.0
    unlimited: Mapping[str, float] = dataclasses.field(default_factory=dict)
    expected_claims: Mapping[str, Mapping[str, int]] = dataclasses.field(
        default_factory=dict)
    guaranteed: frozenset[str] = frozenset()


#: Facts of a cluster without leases that anything is known about.
NO_FACTS = LeaseFacts()
