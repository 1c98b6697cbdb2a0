# SPDX-License-Identifier: Apache-2.0

"""Common parts of the experiments with context switches."""

from secondary_scheduler.simulation.experiments.profiled import (
    ProfiledContext,
    ProfiledExperiment,
)
from secondary_scheduler.simulation.switches.profiles import SwitchProfile

SwitchContext = ProfiledContext[SwitchProfile]
SwitchExperiment = ProfiledExperiment[SwitchProfile]
