# SPDX-License-Identifier: Apache-2.0

"""Cluster of the thesis: hosts of two cores, 48 secondaries.

See Boettger 2012, sections 6.1 and 6.3.
"""

import typing

from secondary_scheduler.simulation.world import Shape

HOSTS, CORES = 24, 2
#: Sizes of the leases of all experiments.
LEASES = (1,) * 12 + (2,) * 6 + (4,) * 2 + (8,) * 2


def shape(clusters: int, hosts: int = HOSTS, **values: typing.Any) -> Shape:
    """Return the shape of some clusters side by side."""
    return Shape(clusters, hosts, CORES, LEASES, **values)
