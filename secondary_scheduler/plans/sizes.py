"""Sizes of hosts in documents, and amounts from and to their percentages.

A document gives an instance's use in percent of the host on which it was
measured; the model holds amounts (``model.units``).
"""

from collections.abc import Mapping, Sequence
import dataclasses

from secondary_scheduler.model import units, vocabulary
from secondary_scheduler.model.cluster import Cluster, Host, Instance
from secondary_scheduler.reading.fields import DocumentError


def complete(hosts: Sequence[Host]) -> list[Host]:
    """Return hosts with the capacities that a document leaves out.

    Memory is then what secondaries may hold.  Of a resource of which no host
    gives its capacity all are alike.

    :raises DocumentError: naming a host that does not give what others give.
    """
    given = {one for host in hosts for one in host.capacities}
    for number, host in enumerate(hosts):
        for resource in sorted(given - host.capacities.keys() - {'mem'}):
            raise DocumentError(
                f'hosts[{number}].capacity.{resource}: is missing: expected '
                f'a number of {units.UNITS[resource]} above 0, since other '
                'hosts give it')
    alike = dict.fromkeys(units.UNITS.keys() - given - {'cpu', 'mem'},
                          units.WHOLE)
    known = {resource for host in hosts
             for resource in ('cpu', 'mem') if _own(host, resource)}
    return [dataclasses.replace(
        host, cpus=host.cpus if 'cpu' in known else units.WHOLE, capacities={
            **alike, **host.capacities,
            'mem': _own(host, 'mem') if 'mem' in known else units.WHOLE})
        for host in hosts]


def _own(host: Host, resource: str) -> float:
    """Return what a host itself says of its CPUs or memory, 0 if nothing."""
    return host.capacity(resource) or (float(host.total[
        vocabulary.MEMORY_MB]) if resource == 'mem' else 0.0)


def amounts(usage: Mapping[str, float], host: str | None,
            cluster: Cluster) -> dict[str, float]:
    """Return what an instance uses, from percent of where it was measured."""
    return {resource: units.to_amount(percent, size)
            for resource, percent in usage.items()
            if (size := cluster.capacity(host, resource)) is not None}


def percentages(instance: Instance, cluster: Cluster) -> dict[str, float]:
    """Return the percentages from which an instance's amounts are read."""
    usage = {**({} if instance.cpu is None else {'cpu': instance.cpu}),
             **instance.usage}
    return {resource: units.to_percent(amount, size)
            for resource, amount in usage.items() if (
                size := cluster.capacity(instance.host, resource)) is not None}
