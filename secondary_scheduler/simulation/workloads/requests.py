# SPDX-License-Identifier: Apache-2.0

"""Request for a lease in a trace, common to all formats."""

import dataclasses
import math

from secondary_scheduler.leases.scheduling.lease import Terms

#: Largest number of nodes of a site or a lease.
MOST_NODES = 10**6


@dataclasses.dataclass(frozen=True)
class TraceRequest:
    """Request for a lease in a trace.

    ``arrival`` is in seconds from the start.  ``runs`` is the true run time,
    which the scheduler does not know.  ``bare`` is the run time without VMs
    (None: the same).
    """

    id: str
    arrival: int
    terms: Terms
    runs: int
    bare: int | None = None

    def in_vms(self, share: float, fixed: int, *, haizea: bool = False
               ) -> 'TraceRequest':
        """Return the request with its job run in VMs.

        VMs slow the job by a ``share``, and take ``fixed`` seconds to boot and
        shut down (Sotomayor 2010, section 5.4).  ``haizea`` repeats an error
        of its program: a slowed job requests its true run time, slowed, and
        is not slowed itself.
        """
        def stretched(seconds: int) -> int:
            return math.ceil(seconds * (1 + share)) + fixed

        asked, runs = ((self.runs, self.runs + fixed) if haizea and share
                       else (self.terms.duration, stretched(self.runs)))
        return dataclasses.replace(
            self, runs=runs, bare=self.runs, terms=dataclasses.replace(
                self.terms, duration=stretched(asked)))
