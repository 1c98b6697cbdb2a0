# SPDX-License-Identifier: Apache-2.0

"""Profiles of the experiments with context switches, and durations of moves.

``doc/source/contributor/simulator.rst`` lists the fields of profiles.
"""

from collections.abc import Mapping
import dataclasses

from secondary_scheduler.model.configuration import Move
from secondary_scheduler.model.operation_kinds import OperationKind

#: Seconds for each GB of memory (Hermenier 2009, section 2.3, figure 3).
MIGRATE_S, LOCAL_S, REMOTE_S = 13.0, 45.0, 90.0
BOOT_S = 6.0
#: Factors by which a busy neighbour slows down (Hermenier 2009, section 2.3).
LOCAL_SLOWDOWN, REMOTE_SLOWDOWN = 1.3, 1.5


@dataclasses.dataclass(frozen=True)
class SwitchProfile:
    """Parameters of a control loop; times in seconds.

    * ``resumes_in_place``: a suspended instance resumes on its own host, and
      may then be migrated, as in Nova;
    * ``claims``: suspended instances hold their claims, of up to this
      multiple of each host's capacity; 0 holds none;
    * ``graph``: a move waits only for the moves that free its room, and not
      for all moves of the pools before;
    * ``steady``: the selection keeps running leases on their hosts while that
      is possible; otherwise it is first fit decreasing alone;
    * ``keeps_sample``: the configuration of the selection itself is replaced
      only by a cheaper one; otherwise one that spreads boots replaces it at
      the same cost;
    * ``headroom``: part of the units of each host that is free in addition
      when a job starts; only with ``steady``;
    * ``minimum_run_s``: time for which a resumed or booted lease is not
      displaced;
    * ``displacement_margin``: places in the queue by which a lease has to be
      before another one to displace it;
    * ``period_s``: time between decisions; ``collect_s``: time after a switch
      until measurements are new;
    * ``stop_s``: duration of a stop; 25 if guests are shut down cleanly;
    * ``objective`` and ``budget`` of the optimiser, in work units;
    * ``fluid`` makes the oracle: operations take no time, and units belong to
      no host.
    """

    name: str
    resumes_in_place: bool
    claims: float
    graph: bool
    steady: bool
    keeps_sample: bool
    minimum_run_s: float
    displacement_margin: float
    headroom: float = 0.0
    period_s: float = 30.0
    collect_s: float = 10.0
    stop_s: float = 1.0
    objective: str = 'cost'
    budget: int = 150_000
    fluid: bool = False

    def seconds(self, move: Move) -> float:
        """Return the duration of a move."""
        if move.kind is OperationKind.BOOT:
            return BOOT_S
        if move.kind is OperationKind.DELETE:
            return self.stop_s
        if move.kind is OperationKind.MIGRATE:
            rate = MIGRATE_S
        else:
            rate = REMOTE_S if move.is_remote else LOCAL_S
        return rate * move.memory_mb / 1024


def slowdown(move: Move, host: str) -> float:
    """Return the factor by which a move slows busy instances of a host.

    Suspensions and resumptions write and read much; others cost nothing
    here.
    """
    if (move.kind not in (OperationKind.SUSPEND, OperationKind.RESUME)
            or host not in (move.source, move.target)):
        return 1.0
    return REMOTE_SLOWDOWN if move.is_remote else LOCAL_SLOWDOWN


#: Algorithms and constants of Hermenier 2009.
THESIS = SwitchProfile('thesis', resumes_in_place=False, claims=0,
                       graph=False, steady=False, keeps_sample=True,
                       minimum_run_s=0, displacement_margin=0)
#: All functions of this project, with Nova's rules.
OURS = SwitchProfile('ours', resumes_in_place=True, claims=4, graph=True,
                     steady=True, keeps_sample=False, minimum_run_s=120,
                     displacement_margin=8)
#: The bound.
ORACLE = dataclasses.replace(OURS, name='oracle', fluid=True)

PROFILES: Mapping[str, SwitchProfile] = {one.name: one for one in (
    THESIS, OURS, ORACLE)}
