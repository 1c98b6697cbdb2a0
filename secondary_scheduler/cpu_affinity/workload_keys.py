# SPDX-License-Identifier: Apache-2.0

"""Workload class of an instance, from its flavor and its image.

Agents and schedulers use this rule alike.  A flavor's extra specs belong to
the operator.  The image is the tenant's choice, so it counts only where the
flavor names no class, and only if the operator has a profile of exactly this
image with this flavor.  Nothing else of a tenant counts.  So a tenant cannot
give its instances a better class than the operator has.
"""

from collections.abc import Container, Mapping

from secondary_scheduler.model import vocabulary


def image_class(image: str, flavor: str) -> str:
    """Return the name of the class of instances without a named class.

    :param image: UUID of the image
    :param flavor: name of the flavor
    """
    return f'{image}/{flavor}'


def class_of(extra_specs: Mapping[str, str], image: str | None,
             flavor: str | None, known: Container[str]) -> str | None:
    """Return the workload class of an instance.

    :param extra_specs: extra specs of its flavor
    :param image: UUID of its image; None if it has none, as with a volume, or
        if it is not known
    :param flavor: name of its flavor; None if it is not known
    :param known: classes with a profile
    :returns: the class that the flavor names, even if it is not a known one,
        so that a message can name it and the worst known class stands in; else
        that of image and flavor, if it is known; else None
    """
    named = extra_specs.get(vocabulary.WORKLOAD_CLASS)
    if named:
        return named
    if not image or not flavor:
        return None
    name = image_class(image, flavor)
    return name if name in known else None
