"""What is held of hosts for servers of leases that are about to run there."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from secondary_scheduler.lease_engine import capacity, placing
from secondary_scheduler.lease_engine.records import Record
from secondary_scheduler.lease_engine.values import OFF, RESOURCES, Sight
from secondary_scheduler.leases import states
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.holds import MOST_HOSTS, MOST_LEASES, Hold


def holds(records: Iterable[Record], sight: Sight, hosts: Sequence[str],
          soon: float) -> dict[str, Hold]:
    """Return the hosts that servers of leases take by ``soon``, or should.

    And what is left beside them and beside what is there.  Those that begin
    first count if there are too many.
    """
    taken = capacity.taken_by_others(sight, frozenset())
    held: dict[str, list[int]] = {}
    coming = defaultdict(set)
    for record in sorted(records, key=_begin):
        for host, need in _missing(record, sight, hosts, soon):
            if host in sight.hosts and (host in held
                                        or len(held) < MOST_HOSTS):
                of = held.setdefault(host, [0] * len(RESOURCES))
                for index, amount in enumerate(need):
                    of[index] += amount
                coming[host].add(record.uuid)
    return {host: Hold({
        name: max(0, total - there - more) for name, total, there, more in zip(
            vocabulary.RESOURCE_CLASSES, sight.hosts[host].total,
            taken.get(host, [0] * len(RESOURCES)), of, strict=True)},
        frozenset(coming[host])) for host, of in held.items()
        if len(coming[host]) <= MOST_LEASES}


def _begin(record: Record) -> int:
    stay = record.lease.stay
    return 0 if stay is None else stay.begin


def _missing(record: Record, sight: Sight, hosts: Sequence[str], soon: float
             ) -> Iterable[tuple[str, tuple[int, ...]]]:
    """Yield where servers of a lease are to run that do not, and their needs.
    """
    lease, stay = record.lease, record.lease.stay
    if stay is None or stay.begin > soon or not (
            lease.ahead or lease.state in states.HOLDING):
        return
    places = placing.hosts(record, stay.vms, hosts)
    for index, number in record.sets():
        node = record.nodes[number]
        server = sight.servers.get(node.server or '')
        if not node.gone and (server is None or (
                server.status in OFF and not server.busy)):
            yield places[number], lease.terms.nodes[index].need
