"""A request for a lease, as all formats give it."""

import dataclasses
import math

from secondary_scheduler.leases.scheduling.lease import Terms

#: The most nodes that a site has, or that a lease may ask for.
MOST_NODES = 10**6


@dataclasses.dataclass(frozen=True)
class TraceRequest:
    """A lease that somebody asks for in a trace.

    ``arrival`` is in seconds from the start; ``runs`` is for how long it
    really runs, which its owner may not know; ``bare`` is for how long it
    would on a machine of its own (None: for as long).
    """

    id: str
    arrival: int
    terms: Terms
    runs: int
    bare: int | None = None

    def in_vms(self, share: float, fixed: int, *, haizea: bool = False
               ) -> 'TraceRequest':
        """Return the same request, its job being run in VMs.

        They make it slower by a ``share``, and take ``fixed`` seconds to boot
        and to shut down (Haizea 4.12).  ``haizea`` repeats a slip of its
        program: who is slowed asks for as long as he runs, and is not slowed.
        """
        def stretched(seconds: int) -> int:
            return math.ceil(seconds * (1 + share)) + fixed

        asked, runs = ((self.runs, self.runs + fixed) if haizea and share
                       else (self.terms.duration, stretched(self.runs)))
        return dataclasses.replace(
            self, runs=runs, bare=self.runs, terms=dataclasses.replace(
                self.terms, duration=stretched(asked)))
