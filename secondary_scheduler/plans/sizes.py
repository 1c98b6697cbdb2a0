# SPDX-License-Identifier: Apache-2.0

"""Sizes of hosts in documents, and conversion of percentages to amounts.

A document has an instance's use in percent of the host on which it was
measured; the model has amounts (``model.units``).
"""

from collections.abc import Collection, Mapping, Sequence
import dataclasses

from secondary_scheduler.model import units, vocabulary
from secondary_scheduler.model.cluster import Cluster, Host, Instance
from secondary_scheduler.model.resources import RATES
from secondary_scheduler.reading.fields import DocumentError, Fields


def read_capacities(fields: Fields) -> dict[str, float]:
    """Return the capacities of measured resources that a host gives.

    Memory may be 0, as its inventory may.  A rate must be above 0, since
    nothing can be told in percent of a link that does not exist.

    :raises DocumentError: naming the field
    """
    found = {one: fields.number(one, None)
             for one in units.UNITS if one != 'cpu'}
    for resource in RATES:
        if found[resource] == 0:
            raise DocumentError(
                f'{fields.at(resource)}: 0 is not above 0: expected a number '
                f'of {units.UNITS[resource]} above 0')
    return {one: size for one, size in found.items() if size is not None}


def complete(hosts: Sequence[Host], own: Collection[str]) -> list[Host]:
    """Return hosts with the capacities that a document omits.

    The defaults of CPUs and memory are the inventory for secondaries.  If no
    host gives a capacity of a resource, all hosts get the same.

    :param own: those of CPUs and memory that any host gives
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
    return [dataclasses.replace(
        host, cpus=host.cpus if 'cpu' in own else units.WHOLE, capacities={
            'mem': float(host.total[vocabulary.MEMORY_MB]) if 'mem' in own
            else units.WHOLE, **alike, **host.capacities})
        for host in hosts]


def amounts(usage: Mapping[str, float], host: str | None,
            cluster: Cluster) -> dict[str, float]:
    """Return an instance's use as amounts, given in percent of its host.

    A percentage of a resource that the host does not have tells no amount.
    """
    return {resource: units.to_amount(percent, size)
            for resource, percent in usage.items()
            if (size := cluster.capacity(host, resource))}


def percentages(instance: Instance, cluster: Cluster) -> dict[str, float]:
    """Return an instance's use in percent of its host."""
    usage = {**({} if instance.cpu is None else {'cpu': instance.cpu}),
             **instance.usage}
    return {resource: units.to_percent(amount, size)
            for resource, amount in usage.items()
            if (size := cluster.capacity(instance.host, resource))}
