"""How far estimated durations are from true ones (Boettger 5.5).

The operations of the experiment ``pattern``, with both models of the true
durations: the one that estimates are made after, and congestion.
"""

import dataclasses
import math
import statistics

from secondary_scheduler.simulation.experiments import changes
from secondary_scheduler.simulation.experiments.base import (
    Context,
    Experiment,
    Values,
)

INTERVAL, TIMELIMIT = 40, 50
KINDS = ('migrate', 'suspend', 'resume', 'start')
#: Standard deviations above the estimate that 90 % of the noise is below.
NORMAL_90 = 1.2816


def estimator(context: Context) -> Values:
    """Compare estimates with what operations took, kind by kind.

    The bound is the estimate with the noise that 90 % stay below.
    """
    values: Values = {}
    for other in (False, True):
        profile = dataclasses.replace(context.profile, congestion=other)
        bound = math.exp(NORMAL_90 * profile.noise)
        tally = changes.run_pattern(
            dataclasses.replace(context, profile=profile), INTERVAL,
            TIMELIMIT, f'congestion={other}')[0]
        for kind in KINDS:
            pairs = [[(estimate, true) for what, estimate, true in row
                      if what == kind] for row in tally.durations]
            pairs = [row for row in pairs if row]
            suffix = kind + '_congestion' * other
            if pairs:   # some profiles have none of a kind
                values[f'median_error_{suffix}'] = [statistics.median(
                    abs(estimate / true - 1) for estimate, true in row)
                    for row in pairs]
                values[f'coverage90_{suffix}'] = [statistics.fmean(
                    true <= estimate * bound for estimate, true in row)
                    for row in pairs]
    return values


EXPERIMENTS = (Experiment(
    'estimator', 'estimated and true durations of operations (5.5)',
    estimator, {}, lambda name: 'share', runs=3, bounds=False),)
