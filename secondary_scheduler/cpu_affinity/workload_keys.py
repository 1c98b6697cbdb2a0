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


def class_name(extra_specs: Mapping[str, str], image: str | None,
               flavor: str | None) -> str | None:
    """Return the name of the class that an instance has, if it is a known one.

    :param extra_specs: extra specs of its flavor
    :param image: UUID of its image; None if it has none, as with a volume, or
        if it is not known
    :param flavor: name of its flavor; None if it is not known
    :returns: the class that the flavor names; else ``IMAGE/FLAVOR``; None
        without both
    """
    named = extra_specs.get(vocabulary.WORKLOAD_CLASS)
    if named:
        return named
    return f'{image}/{flavor}' if image and flavor else None


def class_of(extra_specs: Mapping[str, str], image: str | None,
             flavor: str | None, known: Container[str]) -> str | None:
    """Return the workload class of an instance (see ``class_name``).

    :param known: classes with a profile
    :returns: the class that the flavor names, even if it is not a known one,
        so that a message can name it and the worst known class stands in; else
        that of image and flavor, if it is known; else None
    """
    name = class_name(extra_specs, image, flavor)
    return name if (extra_specs.get(vocabulary.WORKLOAD_CLASS)
                    or name in known) else None
