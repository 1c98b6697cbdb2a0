"""Places of secondaries that are held for nobody.

Where Nova is cut off at the end of a live migration, or an instance is
deleted within one, what the migration held on its source stays in Placement.
``nova-manage placement audit`` looks for resource classes of Nova's own, so
that of such an allocation it removes the anchor on the compute node alone.
"""

from collections.abc import Iterable, Iterator, Mapping
import dataclasses
import typing

from openstack import exceptions

from secondary_scheduler.cmd.providers import Providers

#: States of a migration that Nova works on no more.
ENDED = frozenset({'confirmed', 'reverted', 'error', 'failed', 'completed',
                   'cancelled', 'done'})


class Incomplete(Exception):
    """Nova does not tell all of its instances and migrations now."""


@dataclasses.dataclass(frozen=True)
class Orphan:
    """A consumer on a host that Nova has no use for.

    ``resident`` is the instance that runs there and has no allocation but
    this one, if there is such an instance: then the place is not free.
    """

    host: str
    consumer: str
    what: str
    resident: str | None = None


def find(providers: Providers, compute: typing.Any) -> Iterator[Orphan]:
    """Yield the orphans of all hosts.

    Placement is asked first: what holds a place then is known to Nova when
    that is asked, unless it has ended in between.

    :param compute: the SDK's proxy for Nova.
    :raises Incomplete: if a cell does not answer.
    """
    held = {consumer: child.host for child in providers.children()
            for consumer in providers.consumers(child)}
    servers = {server.id: server.status for server in compute.servers(
        details=False, all_projects=True)}
    # Since 2.69 Nova lists what is in such a cell, with this state alone.
    if 'UNKNOWN' in servers.values():
        raise Incomplete('A cell of Nova does not answer, so nobody can tell '
                         'what holds a place for nobody: try again when '
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
    """Return those of some migrations that Nova shows, by UUID.

    It lists the newest first, and the list is read no further than needed.
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
