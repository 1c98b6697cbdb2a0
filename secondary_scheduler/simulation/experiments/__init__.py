"""The experiments by name; one module a family."""

from collections.abc import Mapping

from secondary_scheduler.simulation.experiments import (
    ablations,
    changes,
    efficiency,
    estimator,
    hlt,
    interference,
    losses,
    realday,
)
from secondary_scheduler.simulation.experiments.base import Experiment

EXPERIMENTS: Mapping[str, Experiment] = {
    one.name: one for module in (
        hlt, efficiency, changes, ablations, losses, interference,
        estimator, realday)
    for one in module.EXPERIMENTS}
