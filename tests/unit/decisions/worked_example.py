# SPDX-License-Identifier: Apache-2.0

"""Worked example of Boettger 2012, section 4.4.3.2, completed.

See reference/errata, Boettger, worked example.
"""

import dataclasses

from secondary_scheduler.decisions import violations
from secondary_scheduler.decisions.base import Budget
from secondary_scheduler.decisions.guided import GuidedDecision
from secondary_scheduler.estimation.durations import ConcurrentDurations
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import (
    Cluster,
    Host,
    HostPolicy,
    Instance,
    InstanceState,
)

LEASES = {1: range(1, 4), 2: range(4, 8), 3: range(8, 13),
          4: range(13, 18), 5: range(18, 23)}
PLACES = {1: (2, 18, 19), 2: (4, 8), 3: (5, 13, 21), 4: (9, 14, 16),
          5: (10, 17), 6: (12, 15, 20), 7: (3, 7), 8: (11, 22), 9: (1, 6)}
THRESHOLDS = {1: 1, 2: 2, 3: 1, 4: 3, 5: 2, 6: 0, 7: 2, 8: 3, 9: 2}
NO_MARGIN = LoadLimits(margin=0.0)


def _host(number):
    threshold = THRESHOLDS[number]
    violated = len(PLACES[number]) > threshold
    policy = HostPolicy(f'slots <= {threshold} for 10s on host:N{number}',
                        'slots', threshold, 10, int(violated), violated)
    total = dict.fromkeys(vocabulary.RESOURCE_CLASSES, 10**6)
    return Host(f'N{number}', 2.0, total, cpu_primary=0.0,
                policies=(policy,))


def cluster():
    """Return the nine hosts, and VM01 to VM22 in their leases L1 to L5."""
    hosts = {f'N{number}': _host(number) for number in PLACES}
    instances = {}
    for lease, numbers in LEASES.items():
        for number in numbers:
            host, = (f'N{one}' for one, those in PLACES.items()
                     if number in those)
            uuid = f'VM{number:02}'
            instances[uuid] = Instance(
                uuid,
                f'L{lease}',
                host,
                InstanceState.ACTIVE,
                1,
                512,
                1,
                priority=lease,
            )
    return Cluster(hosts, instances)


def decision(profile=violations.THESIS, **durations):
    """Return the decision with the thesis's numbers."""
    return GuidedDecision(NO_MARGIN, ConcurrentDurations(**durations),
                          profile)


def searched(elapsed=None, **durations):
    """Return the search of the example after its end."""
    driver = decision(**durations)
    if elapsed is not None:
        driver.elapsed = elapsed
    world = cluster()
    found = [violations.Violation(host.name, policy, driver.profile.deadline(
        policy)) for host in world.hosts.values()
        for policy in host.policies if policy.violated]
    assert {one.deadline_s for one in found} == {9}
    one = driver.search(world, found, Budget())
    one.run()
    return one


def thesis(**values):
    """Return the thesis's profile with something else in it."""
    return dataclasses.replace(violations.THESIS, **values)
