# SPDX-License-Identifier: Apache-2.0

"""Round robin over CPUs (Kaffes 2015, section 3.2.1, algorithm 2)."""

from secondary_scheduler.cpu_affinity.base import (
    AffinityDecision,
    AffinityGuest,
    AffinityView,
    CpuAffinityDriver,
    check_guests,
)
from secondary_scheduler.cpu_affinity.one_cpu import one_cpu_decision
from secondary_scheduler.model.topology import Cpus


class RoundRobinAffinity(CpuAffinityDriver):
    """Gives each new vCPU the next CPU, and never changes it.

    Neither use nor idleness counts.  A guest is placed again only if one of
    its CPUs is taken away from it.
    """

    def decide(self, view: AffinityView,
               previous: AffinityDecision | None) -> AffinityDecision:
        """Place new guests; leave the others."""
        check_guests(view)
        turn = previous.placed if previous else 0
        before = previous.sets if previous else {}
        sets: dict[str, tuple[Cpus, ...]] = {}
        for guest in view.guests:
            present = before.get(guest.name, ())
            if len(present) == guest.vcpus and all(
                    cpus <= guest.usable for cpus in present):
                sets[guest.name] = present
            else:
                sets[guest.name] = _take_turns(guest, turn)
                turn += guest.vcpus
        return one_cpu_decision(view, frozenset(), sets, previous, turn)


def _take_turns(guest: AffinityGuest, turn: int) -> tuple[Cpus, ...]:
    cpus = sorted(guest.usable)
    return tuple(frozenset({cpus[(turn + number) % len(cpus)]})
                 for number in range(guest.vcpus))
