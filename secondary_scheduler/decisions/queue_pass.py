# SPDX-License-Identifier: Apache-2.0

"""One pass over a queue of leases, for every scheduler of this project.

The first lease of the queue is served first.  Each is placed as a whole or
not at all.  One that does not fit does not block the next ones (backfilling),
unless room is kept for it.

What counts as room is the caller's:

* The selection of a context switch has free amounts of hosts, by demand.
* Returns and provisioning have a draft of a plan, with all policies.
* The lease engine has the slot table.  A lease fits if it can begin now, or
  may have a planned start.  So the room of leases behind it is what bookings
  and planned starts leave free for their duration.
"""

from collections.abc import Callable, Iterable
import typing

#: A lease of a queue, in the form of the caller.
_Lease = typing.TypeVar('_Lease')


def serve_queue(queue: Iterable[_Lease], place: Callable[[_Lease], bool], *,
                keeps_room: Callable[[_Lease], bool] = lambda lease: False,
                runs: Callable[[_Lease], bool] | None = None,
                ) -> _Lease | None:
    """Place the leases of a queue one after another.

    :param queue: leases in their order; it may depend on what was placed
    :param place: places a lease as a whole; or takes nothing for it, and
        returns False
    :param keeps_room: tells whether room is kept for a lease that does not
        fit.  Then only leases that run already are placed after it
    :param runs: tells whether a lease runs already; by default none does
    :returns: the lease for which room is kept, None if there is none
    """
    rest = iter(queue)
    kept_for = next((lease for lease in rest
                     if not place(lease) and keeps_room(lease)), None)
    if runs is not None:
        for lease in filter(runs, rest):
            place(lease)
    return kept_for
