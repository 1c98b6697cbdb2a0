"""Which operations are due: what servers do, against what they should do.

Nothing is remembered of what was ordered before.  Whatever happened to it, or
behind the schedule's back, what is missing is ordered again.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import enum

from secondary_scheduler.leases.engine import assignment, events
from secondary_scheduler.leases.engine.records import LeaseRecord, Node
from secondary_scheduler.leases.engine.values import (
    RUNNING,
    SAVED,
    CloudState,
    Failure,
    LeaseOperation,
    LeaseServer,
    OperationRequest,
)
from secondary_scheduler.leases.scheduling.kinds import LeaseKind as Kinds
from secondary_scheduler.leases.scheduling.types import Ints
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import LeaseState

#: Seconds in which an operation is to have begun, or is ordered again.
PATIENCE_S = 60
#: Seconds after a failure until the next attempt; twice that after the next.
FIRST_RETRY_S, LONGEST_RETRY_S = 2.0, 300.0


class Goal(enum.Enum):
    """What the servers of a lease are to do."""

    RUN = enum.auto()
    BE_SAVED = enum.auto()
    BE_GONE = enum.auto()
    #: Nothing is known of them yet, or they are on their way.
    WAIT = enum.auto()


@dataclasses.dataclass(frozen=True)
class Aim:
    """A goal from a time on; ``vms`` is where it is to run."""

    goal: Goal
    at: float
    vms: tuple[Ints, ...] = ()


#: How long an operation on one server of a lease is expected to take.
Expected = Mapping[LeaseOperation, float]


def aim(record: LeaseRecord, now: float, lead: float, boots_in: float) -> Aim:
    """Return what the servers of a lease are to do ``lead`` s from now on.

    ``boots_in`` is in how many seconds a server is expected to boot: who has
    to run at a certain second need not begin before that.
    """
    lease, booking = record.lease, record.lease.booking
    state, vms = lease.state, (() if booking is None else booking.vms)
    if state in lease_states.FINAL:
        return Aim(Goal.BE_GONE, now)
    if lease.ahead:
        begin = begins(record, boots_in)
        if begin <= now + lead:
            return Aim(Goal.RUN, max(begin, now), vms)
        return Aim(Goal.WAIT if lease.home is None else Goal.BE_SAVED, now)
    if state in lease_states.HOLDING:
        assert booking is not None
        if booking.down <= now + lead:
            return Aim(Goal.BE_SAVED if booking.saves else Goal.BE_GONE,
                       max(float(booking.down), now))
        return Aim(Goal.RUN, max(begins(record, boots_in), now), vms)
    if state in lease_states.SAVED or state is LeaseState.SUSPENDING:
        return Aim(Goal.BE_SAVED, now)
    return Aim(Goal.BE_GONE, now)


def begins(record: LeaseRecord, boots_in: float) -> float:
    """Return when the servers of a stay begin to boot or to be resumed."""
    lease, booking = record.lease, record.lease.booking
    assert booking is not None
    if lease.terms.kind is not Kinds.RESERVATION:
        return float(booking.begin)
    return booking.begin + max(0.0, record.boot_s - boots_in)


def orders(
    record: LeaseRecord,
    cloud_state: CloudState,
    hosts: Sequence[str],
    now: float,
    lead: float,
    expected: Expected,
) -> Iterator[OperationRequest]:
    """Yield the operations on the servers of a lease that are due."""
    wanted = aim(record, now, lead, expected[LeaseOperation.BOOT])
    places = (assignment.hosts(record, wanted.vms, hosts)
              if wanted.goal is Goal.RUN else [None] * len(record.nodes))
    booking = record.lease.booking
    until = (
        float(booking.down)
        if wanted.goal is Goal.RUN and booking is not None
        else wanted.at + PATIENCE_S
    )
    due = missing(record, cloud_state, wanted.goal)
    record.ordered = {key: said for key, said in record.ordered.items()
                      if due.get(key[0]) is key[1]}
    # All at the same time: a lease of many servers is not tried more often.
    retry = {kind: max(_next_attempt(record, cloud_state, number, kind)
                       for number, one in due.items() if one is kind)
             for kind in set(due.values())}
    for set_, number in record.sets():
        node, place = record.nodes[number], (record.uuid, number)
        server = cloud_state.servers.get(node.server or '')
        kind = due.get(number)
        if kind is None or place in cloud_state.pending or (
                server is not None and server.busy
                and kind is not LeaseOperation.DELETE):
            continue
        if record.adopted and kind is LeaseOperation.DELETE and (
                record.lease.state is not LeaseState.CANCELLED):
            continue    # nobody but its owner ends it
        at = max(wanted.at, retry[kind])
        if at > now + lead:
            continue
        yield OperationRequest(
            kind, place, record.row.project_id,
            places[number] if kind is LeaseOperation.BOOT else node.host, at,
            max(until, at + PATIENCE_S), node.server,
            record.build(
                set_, number) if kind is LeaseOperation.BOOT else None,
            expected[kind])


def notices(
    record: LeaseRecord,
    cloud_state: CloudState,
    now: float,
    lead: float,
    notice: float,
) -> Iterator[OperationRequest]:
    """Yield what servers are told of that they will have to give way.

    Not so late that it would keep them from doing so.
    """
    booking = record.lease.booking
    if (
        not events.is_being_preempted(record, now, notice)
        or booking is None
        or (booking.down <= now + 2 * lead)
    ):
        return
    text = events.moment(booking.down)
    for number, node in enumerate(record.nodes):
        server, place = cloud_state.servers.get(node.server or ''), (
            record.uuid, number)
        if (
            server is not None
            and server.notice != text
            and place not in cloud_state.pending
            and retry_at(
                cloud_state.failures.get((place, LeaseOperation.NOTICE))
            )
            <= now
        ):
            yield OperationRequest(
                LeaseOperation.NOTICE,
                place,
                record.row.project_id,
                node.host,
                now,
                float(booking.down),
                server.uuid,
                text=text,
            )


def missing(record: LeaseRecord, cloud_state: CloudState,
            goal: Goal) -> dict[int, LeaseOperation]:
    """Return the operations that lead to a goal, by number of the node."""
    found = {
        number: _missing(
            goal, node, cloud_state.servers.get(node.server or '')
        )
        for number, node in enumerate(record.nodes)
    }
    return {number: kind for number, kind in found.items()
            if kind is not None}


def _missing(goal: Goal, node: Node, server: LeaseServer |
             None) -> LeaseOperation | None:
    """Return what has to be done to a server, if anything.

    One that has been suspended or stopped since it ran is left alone: its
    owner has done that, or it gave way to a primary and is brought back.
    """
    if goal is Goal.RUN:
        if node.server is None:
            return None if node.gone else LeaseOperation.BOOT
        if server is not None and server.status == SAVED and not (
                node.ran or server.preempted):
            return LeaseOperation.RESUME
        if server is not None and server.status == 'ERROR' and not (
                node.lived):
            return LeaseOperation.BOOT    # which begins anew
    elif server is not None:
        if goal is Goal.BE_SAVED and server.status == RUNNING:
            return LeaseOperation.SUSPEND
        if goal is Goal.BE_GONE:
            return LeaseOperation.DELETE
    return None


def _next_attempt(
    record: LeaseRecord,
    cloud_state: CloudState,
    number: int,
    kind: LeaseOperation,
) -> float:
    """Return from when on an operation that is due may be ordered.

    One that was ordered before is still due, whatever its outcome was said to
    be: so it counts as one that has failed.
    """
    count, last = record.ordered.get((number, kind), (0, 0.0))
    return max(
        retry_at(cloud_state.failures.get(((record.uuid, number), kind))),
        retry_at(Failure(count, last) if count else None),
    )


def retry_at(failure: Failure | None) -> float:
    """Return from when on what has failed may be tried again."""
    if failure is None:
        return 0.0
    pause: float = FIRST_RETRY_S * 2 ** min(failure.count - 1, 16)
    return failure.last + min(LONGEST_RETRY_S, pause)
