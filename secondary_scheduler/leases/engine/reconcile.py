# SPDX-License-Identifier: Apache-2.0

"""Reconciliation of the desired and the observed state of servers.

Each pass compares both and yields the operations that are missing.  An
operation that was lost or had no effect is issued again, with a back-off.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import enum

from secondary_scheduler.leases.engine import assignment, events
from secondary_scheduler.leases.engine.records import LeaseRecord, Node
from secondary_scheduler.leases.engine.values import (
    OFF,
    SAVED,
    CloudState,
    Failure,
    LeaseOperation,
    LeaseServer,
    OperationRequest,
)
from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.types import Ints
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import LeaseState
from secondary_scheduler.reading.times import format_time

#: Seconds in which an operation has to begin; else it is ordered again.
START_TIMEOUT_S = 60
#: Seconds after a failure until the next attempt; twice that after the next.
FIRST_RETRY_S, LONGEST_RETRY_S = 2.0, 300.0


class Goal(enum.Enum):
    """Desired state of all servers of a lease."""

    RUN = enum.auto()
    BE_SAVED = enum.auto()
    BE_GONE = enum.auto()
    #: They are not to boot yet.
    WAIT = enum.auto()


@dataclasses.dataclass(frozen=True)
class DesiredState:
    """A goal and the time from which on it holds.

    :param vms: for each node set, the number of VMs on each host.
    """

    goal: Goal
    at: float
    vms: tuple[Ints, ...] = ()


#: Expected duration of each operation on one server of a lease, in s.
Expected = Mapping[LeaseOperation, float]


def desired_state(record: LeaseRecord, now: float, lead: float,
                  boots_in: float) -> DesiredState:
    """Return the desired state of the servers of a lease in ``lead`` s.

    :param boots_in: expected time in which a server boots.
    """
    lease, booking = record.lease, record.lease.booking
    state, vms = lease.state, (() if booking is None else booking.vms)
    if state in lease_states.FINAL:
        return DesiredState(Goal.BE_GONE, now)
    if lease.ahead:
        begin = operations_begin(record, boots_in)
        if begin <= now + lead:
            return DesiredState(Goal.RUN, max(begin, now), vms)
        return DesiredState(
            Goal.WAIT if lease.home is None else Goal.BE_SAVED, now)
    if state in lease_states.HOLDING:
        assert booking is not None
        if booking.down <= now + lead:
            return DesiredState(
                Goal.BE_SAVED if booking.saves else Goal.BE_GONE,
                max(float(booking.down), now))
        return DesiredState(
            Goal.RUN, max(operations_begin(record, boots_in), now), vms)
    if state in lease_states.SAVED or state is LeaseState.SUSPENDING:
        return DesiredState(Goal.BE_SAVED, now)
    return DesiredState(Goal.BE_GONE, now)


def operations_begin(record: LeaseRecord, boots_in: float) -> float:
    """Return the time at which the servers begin to boot or to resume.

    Those of a reservation boot as late as their expected time allows.
    """
    lease, booking = record.lease, record.lease.booking
    assert booking is not None
    if lease.terms.kind is not LeaseKind.RESERVATION:
        return float(booking.begin)
    return booking.begin + max(0.0, record.boot_s - boots_in)


def due_operations(
    record: LeaseRecord,
    cloud_state: CloudState,
    hosts: Sequence[str],
    now: float,
    lead: float,
    expected: Expected,
) -> Iterator[OperationRequest]:
    """Yield the operations on the servers of a lease that are due."""
    wanted = desired_state(record, now, lead, expected[LeaseOperation.BOOT])
    places = (assignment.assign_hosts(record, wanted.vms, hosts)
              if wanted.goal is Goal.RUN else [None] * len(record.nodes))
    booking = record.lease.booking
    until = (
        float(booking.down)
        if wanted.goal is Goal.RUN and booking is not None
        else wanted.at + START_TIMEOUT_S
    )
    due = missing_operations(record, cloud_state, wanted, hosts)
    # The effect of an order on a server that is unseen now shows later.
    record.ordered = {
        key: last for key, last in record.ordered.items()
        if due.get(key[0]) is key[1]
        or cloud_state.is_unseen(record.nodes[key[0]].server)}
    # One time for all nodes: a lease of many servers makes no more attempts.
    retry = {kind: max(_next_attempt(record, cloud_state, number, kind)
                       for number, one in due.items() if one is kind)
             for kind in set(due.values())}
    for set_, number in record.numbered_nodes():
        node, place = record.nodes[number], (record.uuid, number)
        server = cloud_state.servers.get(node.server or '')
        kind = due.get(number)
        if kind is None or place in cloud_state.pending or (
                server is not None and server.busy
                and kind is not LeaseOperation.DELETE):
            continue
        if record.adopted and kind is LeaseOperation.DELETE and (
                record.lease.state is not LeaseState.CANCELLED):
            continue    # only its owner ends it
        at = max(wanted.at, retry[kind])
        if at > now + lead:
            continue
        yield OperationRequest(
            kind, place, record.row.project_id,
            places[number] if kind is LeaseOperation.BOOT else node.host, at,
            max(until, at + START_TIMEOUT_S), node.server,
            record.build_of(set_, number)
            if kind is LeaseOperation.BOOT else None,
            expected[kind])


def due_notices(
    record: LeaseRecord,
    cloud_state: CloudState,
    now: float,
    lead: float,
    notice: float,
) -> Iterator[OperationRequest]:
    """Yield the notices of preemption to servers that have not got one.

    None is sent within twice ``lead`` seconds of the preemption: it would
    delay the preemption itself.
    """
    booking = record.lease.booking
    if (
        not events.is_being_preempted(record, now, notice)
        or booking is None
        or (booking.down <= now + 2 * lead)
    ):
        return
    text = format_time(booking.down)
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


def due_verifications(record: LeaseRecord, cloud_state: CloudState,
                      now: float) -> Iterator[OperationRequest]:
    """Yield the verification of a waiting lease, if it is still missing.

    A service did not answer when the lease was requested.  Attempts go on,
    with the back-off, until the lease begins: its boots show the rest.
    """
    place, state = (record.uuid, 0), record.lease.state
    if (record.row.unverified and record.uuid not in cloud_state.verified
            and state in lease_states.QUEUED | lease_states.AHEAD
            and not any(node.lived or node.server for node in record.nodes)
            and place not in cloud_state.pending
            and retry_at(cloud_state.failures.get(
                (place, LeaseOperation.VERIFY))) <= now):
        yield OperationRequest(
            LeaseOperation.VERIFY, place, record.row.project_id, None, now,
            now + START_TIMEOUT_S, build=record.build_of(0, 0))


def missing_operations(
    record: LeaseRecord,
    cloud_state: CloudState,
    wanted: DesiredState,
    hosts: Sequence[str],
) -> dict[int, LeaseOperation]:
    """Return the operations that lead to a state, by number of the node.

    Nova cannot carry out any in a cell that does not answer.  A server may
    exist there that has not been observed yet, so its node boots nowhere.
    """
    found = {}
    for number, node in enumerate(record.nodes):
        server = cloud_state.servers.get(node.server or '')
        kind = _missing_operation(wanted.goal, node, server)
        if kind is not None and (server is None or server.reachable):
            found[number] = kind
    unreachable = cloud_state.unreachable_hosts
    if not unreachable or LeaseOperation.BOOT not in found.values():
        return found
    places = assignment.assign_hosts(record, wanted.vms, hosts)
    return {
        number: kind for number, kind in found.items()
        if kind is not LeaseOperation.BOOT or unreachable.isdisjoint(
            {places[number], _failed_on(record, cloud_state, number)})}


def _failed_on(record: LeaseRecord, cloud_state: CloudState, number: int
               ) -> str | None:
    """Return the host on which a node has failed to boot last."""
    failure = cloud_state.failures.get(
        ((record.uuid, number), LeaseOperation.BOOT))
    return None if failure is None else failure.host


def _missing_operation(goal: Goal, node: Node, server: LeaseServer | None
                       ) -> LeaseOperation | None:
    """Return the operation that a server needs to reach the goal, if any.

    A server that was suspended or stopped since it ran is left alone: its
    owner did that, or it was preempted for a primary and returns.
    """
    if goal is Goal.RUN:
        if node.server is None:
            return None if node.gone else LeaseOperation.BOOT
        if server is not None and server.status == SAVED and not (
                node.ran or server.preempted):
            return LeaseOperation.RESUME
        if server is not None and server.status == 'ERROR' and not (
                node.lived):
            return LeaseOperation.BOOT    # which replaces the server
    elif server is not None:
        # Nova cannot suspend every server, for instance none in rescue mode.
        # What it answers counts as a failed suspend.
        if goal is Goal.BE_SAVED and server.status not in OFF:
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
    """Return the time from which on an operation may be ordered.

    An operation that is still due after it was ordered counts as failed,
    whatever outcome was reported.
    """
    count, last = record.ordered.get((number, kind), (0, 0.0))
    return max(
        retry_at(cloud_state.failures.get(((record.uuid, number), kind))),
        retry_at(Failure(count, last) if count else None),
    )


def retry_at(failure: Failure | None) -> float:
    """Return the time of the next attempt: an exponential back-off."""
    if failure is None:
        return 0.0
    pause: float = FIRST_RETRY_S * 2 ** min(failure.count - 1, 16)
    return failure.last + min(LONGEST_RETRY_S, pause)
