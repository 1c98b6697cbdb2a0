# SPDX-License-Identifier: Apache-2.0

"""Nova's metadata in the XML of a domain: flavor and image of its instance."""

import typing
from xml.etree import ElementTree  # nosec B405

NOVA = '{http://openstack.org/xmlns/libvirt/nova/1.1}'


class UnreadableDomain(ValueError):
    """A damaged or ambiguous domain XML; its guest counts as a primary."""


class Instance(typing.NamedTuple):
    """Metadata of an instance in the XML of its domain.

    :param extra_specs: those of the flavor; None if Nova has not written
        them, as older releases do not
    """

    element: ElementTree.Element
    flavor: ElementTree.Element
    extra_specs: dict[str, str] | None

    def read_properties(self) -> dict[str, str]:
        """Return the properties of its image.

        The releases that write extra specs write these, too.

        :raises UnreadableDomain: if one is there twice.
        """
        return _read_named(
            self.element, f'{NOVA}image/{NOVA}properties/{NOVA}property')


def find_only(parent: ElementTree.Element, path: str) -> ElementTree.Element:
    """Return the only element of this path.

    :raises UnreadableDomain: if there is none or more than one.
    """
    found = parent.findall(path)
    if len(found) != 1:
        raise UnreadableDomain(f'{len(found)} elements {path} instead of one')
    return found[0]


def read_instance(root: ElementTree.Element) -> Instance | None:
    """Return what Nova has written about the instance of a domain.

    :returns: None if Nova did not make the domain.
    :raises UnreadableDomain: if the metadata are ambiguous.
    """
    elements = root.findall(f'metadata/{NOVA}instance')
    if not elements:
        return None
    if len(elements) > 1:
        raise UnreadableDomain('several Nova instances in the metadata')
    flavor = find_only(elements[0], f'{NOVA}flavor')
    specs = (None if flavor.find(f'{NOVA}extraSpecs') is None else
             _read_named(flavor, f'{NOVA}extraSpecs/{NOVA}extraSpec'))
    return Instance(elements[0], flavor, specs)


def _read_named(parent: ElementTree.Element, path: str) -> dict[str, str]:
    """Return the texts of elements by their attribute ``name``.

    :raises UnreadableDomain: if a name is there twice.
    """
    found: dict[str, str] = {}
    for element in parent.findall(path):
        name = element.get('name', '')
        if name in found:
            raise UnreadableDomain(f'{name} is there twice in {path}')
        found[name] = (element.text or '').strip()
    return found
