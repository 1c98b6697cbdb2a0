# SPDX-License-Identifier: Apache-2.0

"""Names that Nova, Placement, libvirt and Watcher see.

A *flavor* marks a secondary (see reference/decisions, 1).  Flavor extra specs
belong to the operator, so a tenant cannot turn a primary into a secondary or
the reverse.  Nova, Placement, Watcher, libvirt's domain XML and Horizon all
see the same marker.
"""

from collections.abc import Mapping
import dataclasses
import enum
import uuid

MARKER = 'lifecycle:preemptable'
PREEMPT_POLICY = 'lifecycle:preempt_policy'
PRIORITY = 'lifecycle:priority'
#: Class of the load of instances, by which their slow-downs are predicted.
WORKLOAD_CLASS = 'lifecycle:workload_class'

#: Scheduler hint that groups the servers of one project into one lease.
LEASE_HINT = 'secondary_lease'
#: Server metadata key under which the lease label is kept after boot.
LEASE_METADATA = 'secondary:lease'
#: Scheduler hint that keeps a new server from all hosts but one.
HOST_HINT = 'secondary_host'
#: Scheduler hint and metadata key by which an owner may *lower* a priority.
PRIORITY_HINT = 'secondary_priority'
PRIORITY_METADATA = 'secondary:priority'

VCPU = 'CUSTOM_SECONDARY_VCPU'
MEMORY_MB = 'CUSTOM_SECONDARY_MEMORY_MB'
DISK_GB = 'CUSTOM_SECONDARY_DISK_GB'
SLOT = 'CUSTOM_SECONDARY_SLOT'
RESOURCE_CLASSES = (VCPU, MEMORY_MB, DISK_GB, SLOT)

#: Traits of a child provider that was closed on purpose.  The operator sets
#: the first by disabling or draining the host, Watcher the second if its scope
#: is switched off.  Each is removed only by the side that set it.  The agent
#: keeps the whole inventory reserved while any of them is present.
CLOSED_TRAIT = 'CUSTOM_SECONDARY_CLOSED'
SWITCHED_OFF_TRAIT = 'CUSTOM_SECONDARY_SWITCHED_OFF'
CLOSING_TRAITS = frozenset({CLOSED_TRAIT, SWITCHED_OFF_TRAIT})

#: Placement's version from which ``reserved`` may equal ``total``.
PLACEMENT_VERSION = '1.26'

#: Names of the goal and the strategy in Watcher.
GOAL = 'secondary'
STRATEGY = 'secondary_workloads'

#: Namespace of the deterministic UUIDs of child resource providers.
_PROVIDER_NAMESPACE = uuid.UUID('6f0c9b52-3a53-5d0e-9d0e-2d7f6d0c5e11')

DEFAULT_PRIORITY = 5
LOWEST_PRIORITY = 1
HIGHEST_PRIORITY = 10


class PreemptPolicy(enum.StrEnum):
    """Operation that preempts an instance if it cannot be migrated."""

    SUSPEND = 'suspend'
    SHELVE = 'shelve'
    STOP = 'stop'
    DELETE = 'delete'


@dataclasses.dataclass(frozen=True)
class SecondaryMark:
    """Properties of instances that a well-formed secondary flavor sets."""

    preempt_policy: PreemptPolicy = PreemptPolicy.SUSPEND
    priority: int = DEFAULT_PRIORITY


def is_true(value: object) -> bool:
    """Read a flavor extra spec as Nova reads a boolean."""
    return str(value).strip().lower() in ('true', '1', 'yes', 'on', 't', 'y')


def is_marked(extra_specs: Mapping[str, str]) -> bool:
    """Return whether a flavor carries the marker of a secondary."""
    return is_true(extra_specs.get(MARKER, 'false'))


def uses_secondary_resources(extra_specs: Mapping[str, str]) -> bool:
    """Return whether a flavor claims any secondary resource class."""
    return any(_resource(extra_specs, name) for name in RESOURCE_CLASSES)


def _resource(extra_specs: Mapping[str, str], name: str) -> int:
    try:
        return int(extra_specs.get('resources:' + name, 0))
    except (TypeError, ValueError):
        return 0


def read_mark(extra_specs: Mapping[str, str]) -> SecondaryMark | None:
    """Return the mark of a secondary flavor, or None for any other flavor.

    An unreadable priority becomes the lowest one, which is safe for
    primaries.  ``flavor_problems`` reports such values.
    """
    if not is_marked(extra_specs):
        return None
    try:
        policy = PreemptPolicy(extra_specs.get(PREEMPT_POLICY, 'suspend'))
    except ValueError:
        policy = PreemptPolicy.SUSPEND
    try:
        priority = int(extra_specs.get(PRIORITY, DEFAULT_PRIORITY))
    except (TypeError, ValueError):
        priority = LOWEST_PRIORITY
    priority = max(LOWEST_PRIORITY, min(HIGHEST_PRIORITY, priority))
    return SecondaryMark(policy, priority)


def lowered_priority(mark: SecondaryMark, wish: object) -> int:
    """Return the priority of an instance with a request for ``wish``.

    An owner may lower the priority, never raise it; an unreadable wish is
    ignored.
    """
    try:
        return max(LOWEST_PRIORITY, min(mark.priority, int(str(wish))))
    except (TypeError, ValueError):
        return mark.priority


def secondary_extra_specs(vcpus: int, memory_mb: int, disk_gb: int,
                          mark: SecondaryMark) -> dict[str, str]:
    """Return the extra specs of a well-formed secondary flavor.

    The root provider keeps ``MEMORY_MB=1`` as an anchor, since Nova finds no
    valid host for an allocation with nothing on the root; everything else is
    claimed from the child provider (see reference/decisions, 2).
    """
    return {
        MARKER: 'true',
        PREEMPT_POLICY: mark.preempt_policy.value,
        PRIORITY: str(mark.priority),
        'hw:cpu_policy': 'shared',
        'resources:VCPU': '0',
        'resources:DISK_GB': '0',
        'resources:MEMORY_MB': '1',
        'resources:' + VCPU: str(vcpus),
        'resources:' + MEMORY_MB: str(memory_mb),
        'resources:' + DISK_GB: str(disk_gb),
        'resources:' + SLOT: '1',
    }


def claimed_disk_gb(root_gb: int | None, ephemeral_gb: int | None,
                    swap_mb: int | str | None) -> int:
    """Return the disk (GiB) that Nova claims for a flavor.

    Swap is in MiB, rounded up to whole GiB; '' means no swap.
    """
    return (int(root_gb or 0) + int(ephemeral_gb or 0)
            + -(-int(swap_mb or 0) // 1024))


def flavor_problems(extra_specs: Mapping[str, str], vcpus: int,
                    memory_mb: int, disk_gb: int) -> list[str]:
    """Return messages about faults of a flavor.

    A flavor without the marker and without secondary resource classes belongs
    to primaries and has no fault.  Flavors with only one of both are
    dangerous.  With the marker alone, an instance takes a primary's place;
    with the resources alone, it runs unthrottled at no cost.
    """
    marked = is_marked(extra_specs)
    if not marked:
        if uses_secondary_resources(extra_specs):
            return [f'claims CUSTOM_SECONDARY_* without {MARKER}=true']
        return []
    problems = []
    if extra_specs.get(PREEMPT_POLICY, 'suspend') not in list(PreemptPolicy):
        problems.append(f'{PREEMPT_POLICY} must be one of '
                        + ', '.join(PreemptPolicy))
    try:
        priority = int(extra_specs.get(PRIORITY, DEFAULT_PRIORITY))
        in_range = LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY
    except (TypeError, ValueError):
        in_range = False
    if not in_range:
        problems.append(f'{PRIORITY} must be a whole number from '
                        f'{LOWEST_PRIORITY} to {HIGHEST_PRIORITY}')
    wanted = secondary_extra_specs(vcpus, memory_mb, disk_gb, SecondaryMark())
    for key, value in wanted.items():
        if key.startswith('lifecycle:'):
            continue
        if extra_specs.get(key) != value and not (
                value == '0' and key.startswith('resources:CUSTOM')
                and key not in extra_specs):
            problems.append(f'{key} must be {value}, not '
                            f'{extra_specs.get(key, "absent")}')
    for key in extra_specs:
        if key.startswith(('hw:numa', 'pci_passthrough:', 'resources1:',
                           'accel:', 'hw:pci_numa')):
            problems.append(f'{key} is not possible for a secondary')
        elif (key.startswith('resources:') and key not in wanted):
            problems.append(f'{key} would claim a primary\'s resources')
    return problems


def child_provider_uuid(root_uuid: str) -> str:
    """Return the UUID of the secondary child of a compute node's root."""
    return str(uuid.uuid5(_PROVIDER_NAMESPACE, str(root_uuid)))


def child_provider_name(root_uuid: str) -> str:
    """Return the name of the secondary child of a compute node's root.

    Placement wants names unique in the cloud; host names may repeat across
    cells, root UUIDs do not.
    """
    return f'{root_uuid}_secondary'
