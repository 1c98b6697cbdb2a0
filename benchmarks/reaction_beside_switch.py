# SPDX-License-Identifier: Apache-2.0

"""Seconds of the decision on a violation, alone and beside a context switch.

Watcher's decision engine has a thread for each audit.  One thread decides for
all leases again and again, as the CONTINUOUS audit does; another one decides
on a cluster with violated hosts, and checks the plan.  Prints JSON with
quantiles of elapsed seconds; README.md says what is in it.
"""

import argparse
import itertools
import json
import statistics
import threading
import time

from benchmarks import clusters, forms, switches
from secondary_scheduler.decisions.base import (
    Budget,
    DecisionRequest,
    SwitchOptions,
)
from secondary_scheduler.decisions.context_switch import (
    ContextSwitchDecision,
)
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.plans import checker
from secondary_scheduler.watcher.decision_process import DecisionProcess

_CLUSTERS = 8


class SwitchDecisions(threading.Thread):
    """Thread that decides for all leases until it is stopped.

    ``decided`` is the number of decisions so far.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(daemon=True)
        self._options = options
        self._stopped = threading.Event()
        self.decided = 0

    def run(self) -> None:
        """Decide on one cluster of the simulator after the other.

        The decision engine's thread waits for a process that decides.
        """
        request = DecisionRequest('select', switch=SwitchOptions())
        process = DecisionProcess()
        drawn = []
        for seed in range(1, _CLUSTERS + 1):
            self._options.seed = seed
            drawn.append(switches.draw_cluster(self._options))
        for cluster in itertools.cycle(drawn):
            if self._stopped.is_set():
                return
            process.decide(ContextSwitchDecision(switches.RIGID), cluster,
                           request, self._options.budget)
            self.decided += 1

    def stop(self) -> None:
        """End the thread after the decision that it works on."""
        self._stopped.set()


def react(options: argparse.Namespace) -> list[float]:
    """Return the elapsed seconds of decisions on violations, ascending."""
    found = []
    for seed in range(options.reactions):
        cluster = clusters.easy(options.violated_hosts,
                                10 * options.violated_hosts, 0.01, seed)
        begun = time.monotonic()
        plan = GuidedDecision(switches.RIGID).decide(
            cluster, DecisionRequest('preempt'), Budget())
        faults = checker.check(cluster, plan, switches.RIGID.lanes)
        found.append(time.monotonic() - begun)
        if faults:
            raise SystemExit(f'the checker says: {faults[0]}')
    return sorted(found)


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Return the median, the 95th percentile and the largest value."""
    return {'p50': round(statistics.median(seconds), 4),
            'p95': round(statistics.quantiles(
                seconds, n=20, method='inclusive')[-1], 4),
            'worst': round(seconds[-1], 4)}


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Return the seconds of reactions alone and beside a context switch."""
    alone = react(options)
    beside = SwitchDecisions(options)
    beside.start()
    found = react(options)
    working = beside.is_alive()
    beside.stop()
    return {'reactions': options.reactions, 'alone_s': quantiles(alone),
            'beside_s': quantiles(found), 'switch_decisions': beside.decided,
            'switch_worked_to_the_end': working}


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--reactions', type=int, default=100)
    parser.add_argument('--violated-hosts', type=int, default=1000,
                        help='hosts of the cluster with violations, one in a '
                        'hundred of which is violated (default %(default)s)')
    parser.add_argument('--hosts', type=int, default=200,
                        help='hosts of the context switch')
    parser.add_argument('--instances', type=int, default=760)
    parser.add_argument('--units', type=int, default=2)
    parser.add_argument('--memory', type=int, default=4096)
    parser.add_argument('--busy', type=float, default=0.9)
    parser.add_argument('--budget', type=int, default=100_000)
    forms.add_quick(parser, reactions=3, violated_hosts=100, hosts=40,
                    instances=97)
    return parser.parse_args()


if __name__ == '__main__':
    print(json.dumps(measure(parse()), indent=1))
