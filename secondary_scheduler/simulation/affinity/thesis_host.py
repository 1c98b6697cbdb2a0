# SPDX-License-Identifier: Apache-2.0

"""Host and workload classes of Kaffes 2015 (sections 4.1, 4.2 and 5.2).

Two sockets of six cores, each with its cache and its memory.  The classes are
Blackscholes (BS), Jacobi (JA), low and high LAMP (LL, HL), low, medium and
high streaming (LS, MS, HS), and Hadoop (HA).
"""

from secondary_scheduler.cpu_affinity.workload_profiles import (
    ResourceUse,
    SlowdownMatrix,
    WorkloadProfiles,
)
from secondary_scheduler.model.topology import (
    SharedCache,
    Topology,
    singletons,
)

CPUS = 12
_SOCKETS = (frozenset(range(6)), frozenset(range(6, 12)))

TOPOLOGY = Topology(singletons(range(CPUS)),
                    tuple(SharedCache(3, one) for one in _SOCKETS),
                    _SOCKETS, _SOCKETS, _SOCKETS)

CLASSES = ('BS', 'JA', 'LL', 'HL', 'LS', 'MS', 'HS', 'HA')
#: Classes that do a fixed amount of work, and those that serve for a fixed
#: time.
BATCH = frozenset({'BS', 'JA', 'HA'})
SERVICES = frozenset(CLASSES) - BATCH

#: Table 5.1, in percent.
USES = {'BS': ResourceUse(100, 0, 0, 0), 'JA': ResourceUse(100, 18, 0, 0),
        'LL': ResourceUse(59, 0, 5.5, 1), 'HL': ResourceUse(96, 0, 12, 2),
        'LS': ResourceUse(36, 0, 28, 0), 'MS': ResourceUse(66, 0, 50, 0),
        'HS': ResourceUse(73, 0, 75, 0), 'HA': ResourceUse(76, 0, 0, 19)}

#: Table 5.2, transposed: a row for each victim.
_TIME = (
    (2.00, 2.02, 1.84, 1.92, 1.42, 1.71, 1.66, 1.96),
    (2.05, 2.08, 1.98, 2.00, 1.54, 1.70, 1.66, 2.04),
    (1.20, 1.30, 1.25, 1.00, 1.25, 1.40, 2.50, 1.50),
    (2.20, 2.38, 1.16, 2.00, 1.50, 1.87, 1.81, 2.65),
    (1.00, 1.00, 1.03, 1.02, 1.05, 1.08, 1.44, 1.02),
    (1.10, 1.11, 1.00, 1.05, 1.07, 1.18, 1.72, 1.20),
    (2.08, 2.19, 1.20, 2.11, 1.19, 1.31, 1.72, 1.93),
    (1.69, 1.74, 1.42, 1.55, 1.29, 1.45, 1.41, 1.74))

#: Table 5.3, transposed: a row for each victim.
_SPACE = (
    (1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00),
    (1.01, 1.35, 1.12, 1.23, 1.00, 1.07, 1.08, 1.08),
    (1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.47, 1.20),
    (1.04, 1.31, 1.03, 1.05, 1.02, 1.05, 1.10, 1.68),
    (1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00),
    (1.00, 1.00, 1.00, 1.00, 1.00, 1.06, 1.11, 1.00),
    (1.00, 1.00, 1.05, 1.07, 1.30, 1.57, 1.56, 1.05),
    (1.00, 1.08, 1.02, 1.01, 1.00, 1.00, 1.05, 1.35))

PROFILES = WorkloadProfiles(
    USES, SlowdownMatrix('time_sharing', CLASSES, _TIME),
    SlowdownMatrix('space_sharing', CLASSES, _SPACE))
