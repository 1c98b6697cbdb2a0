# SPDX-License-Identifier: Apache-2.0

"""Content of a scheduling request, and its faults."""

from collections.abc import Mapping
import typing

from secondary_scheduler.cpu_affinity import workload_keys
from secondary_scheduler.model import vocabulary

#: Allocation of a secondary outside its child provider.
ANCHOR = {'MEMORY_MB': 1}


def extra_specs(flavor: typing.Any) -> Mapping[str, str]:
    """Return a flavor's extra specs, without a query."""
    if flavor is None or 'extra_specs' not in flavor:
        return {}
    return flavor.extra_specs or {}


def is_secondary(spec: typing.Any) -> bool:
    """Return whether a request is for a secondary.

    A flavor that claims our resource classes without the marker counts too:
    ``problems`` rejects it, since its instances would run unthrottled.
    """
    specs = extra_specs(spec.flavor)
    return (vocabulary.is_marked(specs)
            or vocabulary.uses_secondary_resources(specs))


def is_move(spec: typing.Any) -> bool:
    """Return whether an existing server is moved to another host."""
    going = _get(spec, 'requested_destination')
    return bool((going is not None and _get(going, 'host'))
                or _get(spec, 'ignore_hosts'))


def wanted_host(spec: typing.Any) -> str | None:
    """Return the host for which a new server is scheduled, if any.

    The hint is ignored on a move: Nova keeps the one of the original boot,
    which names the old host.
    """
    return None if is_move(spec) else hint(spec, vocabulary.HOST_HINT)


def hint(spec: typing.Any, name: str) -> str | None:
    """Return the value of a scheduler hint."""
    found = (_get(spec, 'scheduler_hints') or {}).get(name)
    return str(found[0] if isinstance(found, list) else found
               ) if found else None


def workload_class(spec: typing.Any) -> str | None:
    """Return the name of the workload class of an instance, if it has one."""
    image = _get(spec, 'image')
    return workload_keys.class_name(
        extra_specs(spec.flavor),
        None if image is None else _get(image, 'id'),
        _get(spec.flavor, 'name'))


def claims_of(flavor: typing.Any) -> dict[str, int]:
    """Return the claim of a secondary, by resource class."""
    return dict(zip(vocabulary.RESOURCE_CLASSES, (
        flavor.vcpus, flavor.memory_mb, disk_gb(flavor), 1), strict=True))


def disk_gb(flavor: typing.Any) -> int:
    """Return the disk of a flavor (GiB), as Nova claims it."""
    return vocabulary.claimed_disk_gb(flavor.root_gb, flavor.ephemeral_gb,
                                      flavor.swap)


def problems(spec: typing.Any) -> list[str]:
    """Return the faults of a request for a secondary.

    Image and ports belong to the tenant.  With them a secondary could claim
    dedicated CPUs, NUMA cells or devices of primaries.
    """
    flavor = spec.flavor
    found = vocabulary.flavor_problems(
        extra_specs(flavor), flavor.vcpus, flavor.memory_mb, disk_gb(flavor))
    if _get(spec, 'numa_topology') is not None:
        found.append('it has a NUMA topology (flavor, image or huge pages)')
    pci_requests = _get(spec, 'pci_requests')
    if pci_requests is not None and pci_requests.requests:
        found.append('it asks for PCI devices')
    if any(group.resources for group in _get(spec, 'requested_resources')
           or ()):
        found.append('its ports or accelerators claim resources')
    found.extend(_image_problems(_get(spec, 'image')))
    return found


def _get(thing: typing.Any, name: str) -> typing.Any:
    # Access to a missing field would load it, or raise.
    return getattr(thing, name) if name in thing else None


def _image_problems(image: typing.Any) -> list[str]:
    properties = _get(image, 'properties') if image is not None else None
    if properties is None:
        return []
    found = []
    if _get(properties, 'hw_cpu_policy') not in (None, 'shared'):
        found.append('its image asks for dedicated CPUs')
    if _get(properties, 'hw_mem_encryption'):
        found.append('its image asks for encrypted memory')
    found.extend(f'its image sets {name}'
                 for name in ('hw_numa_nodes', 'hw_numa_cpus', 'hw_numa_mem',
                              'hw_pci_numa_affinity_policy')
                 if _get(properties, name) is not None)
    return found


def takes_primary_resources(host_state: typing.Any) -> bool:
    """Return whether an allocation candidate has resources of primaries.

    Everything but the anchor and our resource classes counts, whichever part
    of the request claims it.
    """
    for candidate in host_state.allocation_candidates or ():
        for provider, allocation in candidate['allocations'].items():
            resources = dict(allocation['resources'])
            if provider == host_state.uuid:
                for name, amount in ANCHOR.items():
                    if resources.pop(name, None) != amount:
                        return True
            if not set(resources) <= set(vocabulary.RESOURCE_CLASSES):
                return True
    return False
