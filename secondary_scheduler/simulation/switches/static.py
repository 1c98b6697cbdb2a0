# SPDX-License-Identifier: Apache-2.0

"""Static allocation of jobs, by the project's lease scheduler.

A job reserves a processing unit for each of its members from its start to
its end, as in Hermenier 2009, section 5.2 and figure 12.  Operations take no
time.
"""

from collections.abc import Sequence
import math

import numpy as np

from secondary_scheduler.leases.scheduling.lease import NodeSet, Terms
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.simulation.leases.profiles import read_profile
from secondary_scheduler.simulation.leases.run import LeaseSimulation
from secondary_scheduler.simulation.switches.jobs import PhasedJob
from secondary_scheduler.simulation.workloads.requests import TraceRequest

#: Option ``backfilling`` of the lease scheduler, by strategy.
BACKFILLING = {'fcfs': 'off', 'easy': 'aggressive'}


def static_makespan(jobs: Sequence[PhasedJob], units: int, strategy: str
                    ) -> float:
    """Return the time at which the last of the jobs ends.

    :param strategy: ``fcfs`` (first come, first served) or ``easy`` (with
        backfilling; the lengths of jobs are known)
    """
    profile = read_profile('novm-nosr', (
        ('backfilling', BACKFILLING[strategy]),))
    site = Site(('CPU',), np.ones((units, 1), dtype=np.int64))
    requests = []
    for one in jobs:
        seconds = math.ceil(one.length_s)
        requests.append(TraceRequest(one.name, 0, Terms(
            (NodeSet(len(one.members), (1,)),), seconds), seconds))
    outcomes = LeaseSimulation(site, profile.settings, requests).run()
    return float(max(one.lease.ended or 0 for one in outcomes))
