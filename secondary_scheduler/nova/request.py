"""What a scheduling request says, and what is wrong with it."""

from collections.abc import Mapping
import typing

from secondary_scheduler.model import vocabulary

#: What an allocation of a secondary holds outside its child provider.
ANCHOR = {'MEMORY_MB': 1}


def extra_specs(flavor: typing.Any) -> Mapping[str, str]:
    """Return a flavor's extra specs without asking the database."""
    if flavor is None or 'extra_specs' not in flavor:
        return {}
    return flavor.extra_specs or {}


def is_secondary(spec: typing.Any) -> bool:
    """Tell whether a request concerns us at all.

    A flavor that claims our resource classes without the marker does: it is
    refused (``problems``), where it would run unthrottled at no cost.
    """
    specs = extra_specs(spec.flavor)
    return (vocabulary.is_marked(specs)
            or vocabulary.uses_secondary_resources(specs))


def moves(spec: typing.Any) -> bool:
    """Tell whether a server that runs somewhere is to go elsewhere."""
    going = _get(spec, 'requested_destination')
    return bool((going is not None and _get(going, 'host'))
                or _get(spec, 'ignore_hosts'))


def wanted_host(spec: typing.Any) -> str | None:
    """Return the only host that a new server is for, if there is one.

    Nova keeps hints: of one that moves they say where it was.
    """
    return None if moves(spec) else hint(spec, vocabulary.HOST_HINT)


def hint(spec: typing.Any, name: str) -> str | None:
    """Return one of a request's hints."""
    found = (_get(spec, 'scheduler_hints') or {}).get(name)
    return str(found[0] if isinstance(found, list) else found
               ) if found else None


def needs(flavor: typing.Any) -> dict[str, int]:
    """Return what a secondary of a flavor takes, by resource class."""
    return dict(zip(vocabulary.RESOURCE_CLASSES, (
        flavor.vcpus, flavor.memory_mb, disk_gb(flavor), 1), strict=True))


def disk_gb(flavor: typing.Any) -> int:
    """Return the disk a flavor takes, as Nova claims it (GiB)."""
    return vocabulary.claimed_disk_gb(flavor.root_gb, flavor.ephemeral_gb,
                                      flavor.swap)


def problems(spec: typing.Any) -> list[str]:
    """Say what a secondary request asks for that no secondary can have.

    Image and ports belong to the tenant: with them a secondary could become
    a pinned, NUMA-accounted taker of a primary's resources (risks.md F5).
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
    # A field that is not set would be loaded, or raise.
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
    """Tell whether a candidate would hold anything but the anchor and ours.

    Whatever made Nova ask for it: this is what Placement would book.
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
