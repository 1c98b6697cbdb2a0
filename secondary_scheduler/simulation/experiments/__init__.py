# SPDX-License-Identifier: Apache-2.0

"""Experiments by name; one module a family."""

from collections.abc import Mapping

from secondary_scheduler.simulation.experiments import (
    ablations,
    changes,
    efficiency,
    entropy_cluster,
    entropy_cost,
    estimator,
    haizea_deadlines,
    haizea_images,
    haizea_prices,
    haizea_reservations,
    haizea_suspensions,
    hlt,
    interference,
    kaffes,
    kaffes_primary,
    losses,
    realday,
    suspects,
)
from secondary_scheduler.simulation.experiments.base import Runnable

EXPERIMENTS: Mapping[str, Runnable] = {
    one.name: one for module in (
        hlt, efficiency, changes, ablations, losses, interference,
        estimator, realday, haizea_reservations, haizea_deadlines,
        haizea_images, haizea_suspensions, haizea_prices, entropy_cost,
        entropy_cluster, kaffes, kaffes_primary, suspects)
    for one in module.EXPERIMENTS}
