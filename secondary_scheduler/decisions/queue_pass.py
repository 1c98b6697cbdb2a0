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
                runs: Callable[[_Lease], bool] = lambda lease: False,
                keeps_room: Callable[[_Lease], bool] = lambda lease: False,
                ) -> frozenset[_Lease]:
    """Place the leases of a queue one after another.

    :param queue: leases in their order; it may depend on what was placed
    :param place: places a lease as a whole; or takes nothing for it, and
        returns False
    :param runs: tells whether a lease runs already
    :param keeps_room: tells whether room is kept for a lease that does not
        run and does not fit.  No lease after it starts then
    :returns: the leases that are not placed for that reason
    """
    held_back: set[_Lease] = set()
    kept = False
    for lease in queue:
        starts = not runs(lease)
        if starts and kept:
            held_back.add(lease)
        elif not place(lease):
            kept = kept or starts and keeps_room(lease)
    return frozenset(held_back)
