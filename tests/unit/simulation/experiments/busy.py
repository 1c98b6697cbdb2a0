# SPDX-License-Identifier: Apache-2.0

"""A short and busy run for tests."""

from secondary_scheduler.simulation.experiments import (
    efficiency,
)
from secondary_scheduler.simulation.experiments.base import Context


def run_busy(profile, log=None, seconds=120):
    """Return the tally of a short, busy run under a tight policy."""
    workload = efficiency.workload('square', 80, 6, (40, 70), (1,),
                                   seconds=seconds)
    return workload, Context(profile, (1,), log=log).simulate(
        workload, ['a', 'b'])
