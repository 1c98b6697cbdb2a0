# SPDX-License-Identifier: Apache-2.0

"""Secondaries and other guests as their domain XML describes them.

This is a security boundary: it decides which guests are secondaries.  Unknown
means primary.  A guest is a secondary only if Nova's metadata in its domain
XML carries the marker of a secondary flavor.
"""

from collections.abc import Iterator
import dataclasses
import re
from xml.etree import ElementTree  # nosec B405

from secondary_scheduler.agent import kernel_files
from secondary_scheduler.agent.nova_metadata import (
    NOVA,
    UnreadableDomain,
    find_only,
    read_instance,
)
from secondary_scheduler.agent.pins import NO_PINS, Pins, read_pins
from secondary_scheduler.model import vocabulary

#: Namespace of the metadata in which ``throttles`` records original limits.
LIMITS = 'https://opendev.org/secondary-scheduler/limits/1.0'

#: Nova accepts larger values in a flavor, but no host could fit them.
_VCPUS = re.compile(r'[1-9][0-9]{0,3}')
_MEMORY = re.compile(r'[0-9]{1,9}')

_IMAGE = re.compile(r'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')
#: Longest name of a flavor in Nova, and longest extra spec.
_LONGEST_NAME = 255

#: Nova's largest domain XML is some tens of kilobytes.
_LARGEST_XML = 1 << 20

#: Names that Linux allows for a network interface.
_TAP = re.compile(r'(?!\.{1,2}$)[^\s/:]{1,15}')
#: Names of disks in a domain, and the types of disks on the host itself.
_DISK = re.compile(r'[a-z]{1,8}')
_LOCAL = frozenset({'file', 'block', 'volume'})


@dataclasses.dataclass(frozen=True)
class DomainGuest:
    """A secondary, as its domain XML describes it.

    ``taps`` are the host's ends of its network interfaces.  ``disks`` are the
    names that its disks have in the domain, without disks of the network.
    ``memory_mb`` is the memory of its flavor (MiB), 0 if unknown.
    ``limited`` is true if the domain carries a record of original device
    limits.  ``cpus`` are the CPUs over which Nova lets it float, as the
    kernel lists CPUs, or '' if the XML names none.  ``workload_class`` is the
    class that its flavor names, ``image`` the UUID of its image, ``flavor``
    the name of its flavor; '' if there is none.
    """

    uuid: str
    name: str
    priority: int
    vcpus: int
    taps: tuple[str, ...] = dataclasses.field(default=(), kw_only=True)
    memory_mb: int = dataclasses.field(default=0, kw_only=True)
    disks: tuple[str, ...] = dataclasses.field(default=(), kw_only=True)
    limited: bool = dataclasses.field(default=False, kw_only=True)
    cpus: str = dataclasses.field(default='', kw_only=True)
    workload_class: str = dataclasses.field(default='', kw_only=True)
    image: str = dataclasses.field(default='', kw_only=True)
    flavor: str = dataclasses.field(default='', kw_only=True)

    @property
    def devices(self) -> tuple[str, ...]:
        """Disks and interfaces together, as ``KIND NAME``."""
        return (*(f'disk {name}' for name in self.disks),
                *(f'interface {name}' for name in self.taps))


@dataclasses.dataclass(frozen=True)
class OtherGuest:
    """A guest that is no secondary; the agent never changes it.

    ``memory`` is the most memory that its QEMU may take of the host's normal
    pages, in bytes.  It is 0 if unknown, or if the guest uses huge pages,
    which the host has set aside already.  ``pins`` are the CPUs to which its
    XML confines it.
    """

    name: str
    memory: int
    pins: Pins = dataclasses.field(default=NO_PINS, kw_only=True)


def _is_cpus(text: str) -> bool:
    try:
        kernel_files.parse_cpus(text, '')
    except ValueError:
        return False
    return True


def _name(text: str) -> str:
    """Return the name of a class or a flavor, '' if it is too long."""
    return text if len(text) <= _LONGEST_NAME else ''


def _image(text: str) -> str:
    """Return the UUID of an image, '' if it is none.

    Nova writes '' for an instance that has booted from a volume.
    """
    return text if _IMAGE.fullmatch(text) else ''


def is_plausible(guest: DomainGuest) -> bool:
    """Return whether the values of a guest could have come from a domain XML.

    It is for guests that were saved on disk.
    """
    return bool(_VCPUS.fullmatch(str(guest.vcpus))
                and all(map(_TAP.fullmatch, guest.taps))
                and all(map(_DISK.fullmatch, guest.disks))
                and _is_cpus(guest.cpus)
                and guest.workload_class == _name(guest.workload_class)
                and guest.flavor == _name(guest.flavor)
                and guest.image == _image(guest.image)
                and vocabulary.LOWEST_PRIORITY <= guest.priority
                <= vocabulary.HIGHEST_PRIORITY)


def read_guest(xml: str, uuid: str) -> DomainGuest | None:
    """Return the secondary that a domain XML describes.

    :returns: None for any other guest: its flavor has no marker, or Nova did
        not make it.
    :raises UnreadableDomain: if the XML is ambiguous or damaged; the caller
        must treat the guest as a primary.
    """
    # The standard parser expands entities, which only a document type can
    # define.  libvirt writes no document type.
    if len(xml) > _LARGEST_XML or '<!DOCTYPE' in xml:
        raise UnreadableDomain('too large, or with a document type')
    try:
        root = ElementTree.fromstring(xml)  # noqa: S314  # nosec B314
    except (ElementTree.ParseError, ValueError) as exc:
        raise UnreadableDomain(str(exc)) from exc
    if root.tag != 'domain' or (
            find_only(root, 'uuid').text or '').strip() != uuid:
        raise UnreadableDomain('the UUID is another domain\'s')
    instance = read_instance(root)
    if instance is None:
        return None
    flavor, specs = instance.flavor, instance.extra_specs or {}
    mark = vocabulary.read_mark(specs)
    if mark is None:
        return None
    vcpus = (flavor.findtext(f'{NOVA}vcpus') or '').strip()
    memory = (flavor.findtext(f'{NOVA}memory') or '').strip()
    vcpu = root.find('vcpu')
    cpus = '' if vcpu is None else vcpu.get('cpuset', '')
    images = instance.element.findall(f'{NOVA}image')
    taps = [target.get('dev', '') for target
            in root.findall('devices/interface/target')]
    return DomainGuest(
        uuid=uuid,
        name=find_only(root, 'name').text or '',
        priority=mark.priority,
        vcpus=int(vcpus) if _VCPUS.fullmatch(vcpus) else 1,
        taps=tuple(filter(_TAP.fullmatch, taps)),
        memory_mb=int(memory) if _MEMORY.fullmatch(memory) else 0,
        disks=tuple(_disks(root)),
        cpus=cpus if _is_cpus(cpus) else '',
        workload_class=_name(specs.get(vocabulary.WORKLOAD_CLASS, '')),
        image=_image(images[0].get('uuid', '')) if len(images) == 1 else '',
        flavor=_name(flavor.get('name', '')),
        limited=root.find(f'metadata/{{{LIMITS}}}limits') is not None,
    )


def read_other_guest(xml: str) -> OtherGuest | None:
    """Return the other guest that a domain XML describes, None if unreadable.
    """
    if len(xml) > _LARGEST_XML or '<!DOCTYPE' in xml:
        return None
    try:
        root = ElementTree.fromstring(xml)  # noqa: S314  # nosec B314
        name = find_only(root, 'name').text or ''
    except (ElementTree.ParseError, ValueError):
        return None
    return OtherGuest(name, _memory(root), pins=read_pins(root))


def _memory(root: ElementTree.Element) -> int:
    """Return the bytes of ``OtherGuest.memory``."""
    found = root.findall('memory')
    # libvirt always writes KiB, regardless of the unit in which it was set.
    if (len(found) != 1 or found[0].get('unit', 'KiB') != 'KiB'
            or root.find('memoryBacking/hugepages') is not None):
        return 0
    try:
        return kernel_files.parse_count(found[0].text or '', '') << 10
    except ValueError:
        return 0


def _disks(root: ElementTree.Element) -> Iterator[str]:
    """Yield the names of disks on the host itself."""
    for disk in root.findall('devices/disk'):
        name = target.get('dev', '') if (
            target := disk.find('target')) is not None else ''
        if (disk.get('type') in _LOCAL
                and disk.get('device', 'disk') in ('disk', 'lun')
                and _DISK.fullmatch(name)):
            yield name
