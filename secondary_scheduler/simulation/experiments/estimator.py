# SPDX-License-Identifier: Apache-2.0

"""Errors of estimated durations (compare Boettger 2012, section A.5).

The operations are those of ``pattern``, with both models of true durations:
the model behind the estimates, and congestion.  The estimates of decisions
are compared with those learned from past operations, as in a cloud.
"""

from collections.abc import Sequence
import dataclasses
import math
import statistics

from secondary_scheduler.estimation import learning
from secondary_scheduler.estimation.learning import Observed, Score
from secondary_scheduler.simulation.experiments import changes
from secondary_scheduler.simulation.experiments.base import (
    Context,
    Experiment,
    Values,
)

INTERVAL, TIMELIMIT = 40, 50
KINDS = ('migrate', 'suspend', 'resume', 'start')
#: Standard deviations above the mean that bound 90 % of the noise.
NORMAL_90 = 1.2816


def run_estimator(context: Context) -> Values:
    """Compare estimates with true durations, kind by kind.

    The learned model is fitted to two thirds of the operations and tested on
    the last third, three times.  It knows the number of parallel operations.
    """
    values: Values = {}
    for other in (False, True):
        profile = dataclasses.replace(context.profile, congestion=other)
        bound = math.exp(NORMAL_90 * profile.noise)
        seen = changes.run_pattern(
            dataclasses.replace(context, profile=profile), INTERVAL,
            TIMELIMIT, f'congestion={other}')[0].durations
        suffix = '_congestion' * other
        for name, scores in (
                (suffix, [_estimated(row, bound) for row in seen]),
                (suffix + '_learned', [learning.held_out(learning.points(
                    one for one, _estimate in row)) for row in seen])):
            for kind in KINDS:
                known = [row[kind] for row in scores if kind in row]
                if known:   # some profiles have none of a kind
                    values[f'median_error_{kind}{name}'] = [
                        one.error for one in known]
                    values[f'coverage90_{kind}{name}'] = [
                        one.coverage for one in known]
    return values


def _estimated(seen: Sequence[tuple[Observed, float]], bound: float
               ) -> dict[str, Score]:
    """Return the score of the estimates of decisions, by kind.

    Their bound is ``bound`` times as long, which covers 90 % of the noise.
    """
    found = {}
    for kind in KINDS:
        pairs = [(estimate, one.end - one.begin) for one, estimate in seen
                 if one.job.kind == kind]
        if pairs:
            found[kind] = Score(
                len(pairs),
                statistics.median(abs(estimate / true - 1)
                                  for estimate, true in pairs),
                statistics.fmean(true <= estimate * bound
                                 for estimate, true in pairs))
    return found


EXPERIMENTS = (Experiment(
    'estimator', 'estimated and true durations of operations (5.5)',
    run_estimator, {}, lambda name: 'share', runs=3, bounds=False),)
