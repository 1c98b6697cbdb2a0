# SPDX-License-Identifier: Apache-2.0

"""The primary of the HLT experiments: stations that serve events.

Each host is a station with one server.  Events arrive in a Poisson stream of
100 a second.  At full speed their service takes the share of each second that
is the load of the host.  Events that are not served within a second wait at
its end.

The resolution is a second, as in the simulator.  Event by event, even constant
service times (an M/D/1 queue) would have 10.1 events waiting at these loads.
No variation of service times would then give the published 8.93.
"""

import numpy as np

from secondary_scheduler.simulation.world import Floats

#: Events a second at each station.
RATE = 100.0
#: Coefficient of variation of the service time at which 8.93 events wait on
#: average without secondaries; a test confirms it.
SERVICE_CV = 2.03


def waiting_events(load: Floats, speed: Floats, seed: tuple[int, ...],
                   cv: float = SERVICE_CV) -> Floats:
    """Return the events waiting at the end of each second, (seconds,).

    ``load`` (percent) and ``speed`` (1: undisturbed) are (seconds, hosts).
    The same seed gives the same arrivals and demands at any speed.
    """
    random = np.random.default_rng(seed)
    events = random.poisson(RATE, load.shape)
    # The demand of n events of mean 1: a sum of gamma variables is one.
    demand = random.gamma(np.maximum(events, 1e-12) / cv**2, cv**2)
    service = load / 100 / RATE
    backlog = np.zeros(load.shape[1])
    total = np.zeros(len(load))
    for second in range(len(load)):
        work = demand[second] * service[second]
        backlog = np.maximum(0.0, backlog + work - speed[second])
        total[second] = np.sum(backlog / np.maximum(
            service[second], 1e-9) * (service[second] > 0))
    return total
