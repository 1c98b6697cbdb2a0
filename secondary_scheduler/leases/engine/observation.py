# SPDX-License-Identifier: Apache-2.0

"""Update of lease records from the observed state of servers."""

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
import dataclasses

from secondary_scheduler.leases.engine import adoption, assignment
from secondary_scheduler.leases.engine.events import describe_unreachable
from secondary_scheduler.leases.engine.records import LeaseRecord, Node
from secondary_scheduler.leases.engine.values import (
    OFF,
    RUNNING,
    SAVED,
    CloudState,
    LeaseOperation,
    LeaseServer,
)
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import HOLDING, LeaseState

_ALIVE = HOLDING | lease_states.SAVED | {LeaseState.SUSPENDING}


def servers_by_label(cloud_state: CloudState, known: Container[str]
                     ) -> dict[str, list[LeaseServer]]:
    """Return the servers with a lease's label, by the lease's UUID.

    :param known: servers to leave out, since they belong to a lease already.
    """
    found = defaultdict(list)
    for server in cloud_state.servers.values():
        if server.lease and server.uuid not in known:
            found[server.lease].append(server)
    return found


def update_record(
    record: LeaseRecord,
    cloud_state: CloudState,
    labelled: Sequence[LeaseServer],
    hosts: Sequence[str],
    now: float,
    lead: float,
) -> Iterator[tuple[str, str]]:
    """Update the nodes of a lease; yield events as (kind, text).

    :param labelled: unknown servers that have the lease's label.
    :param hosts: names of the hosts of the schedule.
    :param lead: seconds by which operations are ordered ahead.
    """
    state, booking = record.lease.state, record.lease.booking
    over = booking is not None and booking.down <= now and not booking.saves
    for number, node in enumerate(record.nodes):
        if node.server not in cloud_state.gone or (
                (record.uuid, number) in cloud_state.pending
                and not node.lived):
            continue
        if node.lived and state in _ALIVE and not over:
            node.gone = True
            yield 'server-deleted', f'server {node.server} has been deleted'
        elif (number, LeaseOperation.DELETE) not in record.ordered:
            record.served.end_stretch()     # it ended before the lease
        node.server, node.host, node.ran = None, None, False
    for number, node in enumerate(record.nodes):
        node.server = node.server or cloud_state.booted.get(
            (record.uuid, number))
    for one in labelled:
        found = record.node_of(one, cloud_state.gone)
        if found is not None and found.server is None:
            found.server = one.uuid
    yield from _note_reachability(record, cloud_state, hosts, now)
    for node in record.nodes:
        server = cloud_state.servers.get(node.server or '')
        if server is None:
            continue
        if record.adopted and state in _ALIVE and adoption.has_left(
                record, server, cloud_state, now + lead):
            record.lease.reason = (f'server {server.uuid} is left to its '
                                   f'owner: it is {server.status}')
            node.server, node.gone = None, True
            continue
        node.host = server.host or node.host
        if state in HOLDING and server.status == RUNNING and not server.busy:
            node.ran = node.lived = True
        elif node.lived and server.status == 'ERROR' and (
                record.register_event(f'error {server.uuid}')):
            yield 'server-failed', (f'server {server.uuid} is in ERROR; a '
                                    'hard reboot may help')


def _note_reachability(
    record: LeaseRecord,
    cloud_state: CloudState,
    hosts: Sequence[str],
    now: float,
) -> Iterator[tuple[str, str]]:
    """Note since when the cell of a lease's servers does not answer.

    Yield the events of its begin and its end.  If Nova has changed a server
    meanwhile, it may not have run all the time: then the time in which it was
    unseen is not served.
    """
    away = _is_out_of_reach(record, cloud_state, hosts)
    if away:
        record.last_unreachable = now
    began = away and record.unreachable_since is None
    if began:
        record.unreachable_since = now
    shown = {one.uuid: one.changed for one in _servers(record, cloud_state)
             if one.reachable and one.changed}
    if not away and record.unreachable_since is not None:
        record.unreachable_since = None
        if any(record.changed.get(uuid, changed) != changed
               for uuid, changed in shown.items()):
            record.served.end_stretch()
        yield 'reachable', 'the cell of its servers answers again'
    record.unseen = has_unseen(record, cloud_state)
    if began:
        yield 'unreachable', describe_unreachable(record)
    record.changed = {**{
        node.server: record.changed[node.server] for node in record.nodes
        if node.server in record.changed}, **shown}


def _is_out_of_reach(record: LeaseRecord, cloud_state: CloudState,
                     hosts: Sequence[str]) -> bool:
    """Return whether Nova cannot act on a server, or where one is to boot."""
    if has_unseen(record, cloud_state) or not all(
            one.reachable for one in _servers(record, cloud_state)):
        return True
    booking = record.lease.booking
    if not cloud_state.unreachable_hosts or booking is None or (
            record.lease.state not in HOLDING):
        return False
    places = assignment.assign_hosts(record, booking.vms, hosts)
    return any(node.server is None and not node.gone
               and place in cloud_state.unreachable_hosts
               for node, place in zip(record.nodes, places, strict=True))


def has_unseen(record: LeaseRecord, cloud_state: CloudState) -> bool:
    """Return whether the state of a server of a lease is unknown."""
    return any(cloud_state.is_unseen(node.server) for node in record.nodes)


def is_off(record: LeaseRecord, cloud_state: CloudState) -> bool:
    """Return whether no server of a lease uses resources of its host."""
    return not has_unseen(record, cloud_state) and all(
        server.status in OFF and not server.busy
        for server in _servers(record, cloud_state))


def is_saved(record: LeaseRecord, cloud_state: CloudState) -> bool:
    """Return whether each server is off, or an operation on it is in progress.
    """
    return not has_unseen(record, cloud_state) and all(
        server.status in OFF or server.busy
        for server in _servers(record, cloud_state))


def may_run(record: LeaseRecord, cloud_state: CloudState) -> bool:
    """Return whether a server of a lease runs, or was last observed to run.
    """
    return record.served.since is not None or not all(
        server.status in OFF or server.busy
        for server in _servers(record, cloud_state))


def all_run(record: LeaseRecord, cloud_state: CloudState) -> bool | None:
    """Return whether all servers that were not deleted run, at least one.

    None if that is unknown: the others run, but some are unseen, or were
    deleted for the end of the lease.
    """
    ended = {number for number, node in enumerate(record.nodes)
             if node.server is None and not node.gone
             and (number, LeaseOperation.DELETE) in record.ordered}
    left = [node.server for number, node in enumerate(record.nodes)
            if not node.gone and number not in ended]
    if not all(cloud_state.is_unseen(server)
               or _is_running(cloud_state.servers.get(server or ''))
               for server in left):
        return False
    if ended or has_unseen(record, cloud_state):
        return None
    return bool(left)


def ran_on(record: LeaseRecord, cloud_state: CloudState) -> bool | None:
    """Return whether all servers of a lease that is over ran until its end.

    They do if they still run when they are seen again.  None while one of
    them is unseen.
    """
    if any(server.status != RUNNING
           for server in _servers(record, cloud_state)):
        return False
    return None if has_unseen(record, cloud_state) else True


def _is_running(server: LeaseServer | None) -> bool:
    return (server is not None and server.status == RUNNING
            and not server.busy)


@dataclasses.dataclass(frozen=True)
class Interruption:
    """Reason for which a server of a lease does not run.

    :param excused: the server's owner has caused it.
    :param broken: Nova shows a server in ERROR that has run before.
    :param brief: it ends soon by itself.
    """

    text: str
    excused: bool = False
    broken: bool = False
    brief: bool = False


def find_interruption(record: LeaseRecord,
                      cloud_state: CloudState) -> Interruption | None:
    """Return the gravest reason for which a server that has run does not.

    None if there is none.
    """
    found = [one for one in (
        _interrupts(node, cloud_state.servers.get(node.server or ''))
        for node in record.nodes) if one is not None]
    return max(found, key=lambda one: (one.broken, not one.excused),
               default=None)


def _interrupts(node: Node, server: LeaseServer | None) -> Interruption | None:
    if server is None or _is_running(server) or not node.lived:
        return None
    name = f'server {server.uuid}'
    if server.busy:
        return Interruption(f'an operation on {name} is under way',
                            brief=True)
    if server.status == 'ERROR':
        return Interruption(f'{name} is in ERROR: '
                            + (server.fault or 'Nova gives no reason'),
                            broken=True)
    if server.preempted:
        return Interruption(f'{name} was preempted, since a policy of its '
                            'host is violated')
    if server.status == SAVED and not node.ran:
        return None     # its schedule resumes it
    return Interruption(f'{name} is {server.status} by its owner',
                        excused=True)


def has_ended(record: LeaseRecord, cloud_state: CloudState) -> bool:
    """Return whether all servers have run, and are shut off or deleted now."""
    return not has_unseen(record, cloud_state) and all(
        node.lived for node in record.nodes) and all(
        server.status == 'SHUTOFF' and not (server.busy or server.preempted)
        for server in _servers(record, cloud_state))


def count_by_host(record: LeaseRecord, hosts: Mapping[str, int]
                  ) -> list[dict[str, int]] | None:
    """Return the number of nodes on each host, for each node set.

    None if the host of a node is unknown.
    """
    found: list[dict[str, int]] = [{} for _ in record.lease.terms.nodes]
    for index, number in record.numbered_nodes():
        host = record.nodes[number].host
        if host is None or host not in hosts:
            return None
        found[index][host] = found[index].get(host, 0) + 1
    return found


def _servers(record: LeaseRecord,
             cloud_state: CloudState) -> Iterator[LeaseServer]:
    for node in record.nodes:
        server = cloud_state.servers.get(node.server or '')
        if server is not None:
            yield server
