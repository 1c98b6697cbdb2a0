# SPDX-License-Identifier: Apache-2.0

"""Orphaned allocations of secondaries in Placement.

If Nova is interrupted at the end of a live migration, or an instance is
deleted within one, the migration's allocation on the source host remains.
``nova-manage placement audit`` only handles Nova's own resource classes: it
removes the part on the compute node's provider, and leaves the secondary
provider's.
"""

from collections.abc import Iterable, Iterator, Mapping
import dataclasses
import typing

from openstack import exceptions

from secondary_scheduler.cmd.providers import Providers

#: Final states of a migration.
ENDED = frozenset({'confirmed', 'reverted', 'error', 'failed', 'completed',
                   'cancelled', 'done'})


class CellDown(Exception):
    """A cell of Nova does not answer, so its instances are unknown."""


@dataclasses.dataclass(frozen=True)
class Orphan:
    """A consumer without an instance or an operation in progress.

    ``resident`` is the instance on the host that has no other allocation
    there, if there is one: then the resources are in use.
    """

    host: str
    consumer: str
    description: str
    resident: str | None = None


def find_orphans(providers: Providers, compute: typing.Any
                 ) -> Iterator[Orphan]:
    """Yield the orphans of all hosts.

    Placement is read before Nova, so a consumer that Nova does not know
    afterwards is an orphan, or has just ended.

    :param compute: the SDK's proxy for Nova.
    :raises CellDown: if a cell does not answer.
    """
    held = {consumer: child.host for child in providers.children()
            for consumer in providers.consumers(child)}
    servers = {server.id: server.status for server in compute.servers(
        details=False, all_projects=True)}
    # From 2.69 on Nova lists instances of such a cell, with this state.
    if 'UNKNOWN' in servers.values():
        raise CellDown('A cell of Nova does not answer, so orphaned '
                       'allocations cannot be determined: try again when '
                       '"openstack server list --all" shows no UNKNOWN.')
    unknown = held.keys() - servers.keys()
    moves = _migrations(compute, unknown)
    for consumer in sorted(unknown, key=lambda one: (held[one], one)):
        host, move = held[consumer], moves.get(consumer)
        if move is None:
            yield Orphan(host, consumer, 'an instance or a migration that '
                         'does not exist any more')
        elif move.status in ENDED:
            alone = held.get(move.server_id) != host and _is_on(
                compute, move.server_id, move.source_compute)
            yield Orphan(
                host, consumer, f'a {move.migration_type} of '
                f'{move.server_id} that ended as "{move.status}"',
                move.server_id if alone else None)


def _migrations(compute: typing.Any, wanted: Iterable[str]
                ) -> Mapping[str, typing.Any]:
    """Return the wanted migrations that Nova has, by UUID.

    Nova lists the newest first; the list is read only as far as needed.
    """
    missing, found = set(wanted), {}
    listed = iter(compute.migrations() if missing else ())
    while missing and (move := next(listed, None)) is not None:
        if move.uuid in missing:
            missing.discard(move.uuid)
            found[move.uuid] = move
    return found


def _is_on(compute: typing.Any, uuid: str, host: str) -> bool:
    try:
        return bool(compute.get_server(uuid).compute_host == host)
    except exceptions.NotFoundException:
        return False
