# SPDX-License-Identifier: Apache-2.0

"""Sizes of hosts in documents, and conversion of percentages to amounts.

A document has an instance's use in percent of the host on which it was
measured; the model has amounts (``model.units``).
"""

from collections.abc import Mapping, Sequence
import dataclasses

from secondary_scheduler.model import units, vocabulary
from secondary_scheduler.model.cluster import Cluster, Host, Instance
from secondary_scheduler.reading.fields import DocumentError


def complete(hosts: Sequence[Host]) -> list[Host]:
    """Return hosts with the capacities that a document omits.

    The default of memory is the inventory for secondaries.  If no host has a
    capacity of a resource, all hosts get the same.

    :raises DocumentError: naming a host without a capacity that others have
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
    """Return a host's own value of CPUs or memory, 0 if there is none."""
    return host.capacity(resource) or (float(host.total[
        vocabulary.MEMORY_MB]) if resource == 'mem' else 0.0)


def amounts(usage: Mapping[str, float], host: str | None,
            cluster: Cluster) -> dict[str, float]:
    """Return an instance's use as amounts, given in percent of its host."""
    return {resource: units.to_amount(percent, size)
            for resource, percent in usage.items()
            if (size := cluster.capacity(host, resource)) is not None}


def percentages(instance: Instance, cluster: Cluster) -> dict[str, float]:
    """Return an instance's use in percent of its host."""
    usage = {**({} if instance.cpu is None else {'cpu': instance.cpu}),
             **instance.usage}
    return {resource: units.to_percent(amount, size)
            for resource, amount in usage.items() if (
                size := cluster.capacity(instance.host, resource)) is not None}
