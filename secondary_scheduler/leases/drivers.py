# SPDX-License-Identifier: Apache-2.0

"""Loading of lease policies by name (stevedore)."""

import typing

from stevedore import driver, exception, extension

#: Prefix of the namespaces, one for each kind of policy.
NAMESPACE = 'secondary_scheduler.lease_policies'


class DriverError(Exception):
    """No policy has this name."""


def load(kind: str, name: str, options: typing.Any) -> typing.Any:
    """Return the policy of a kind with a name, created with options.

    :raises DriverError: if there is no such policy.
    """
    namespace = f'{NAMESPACE}.{kind}'
    try:
        make: typing.Any = driver.DriverManager(namespace, name).driver
    except exception.NoMatches as exc:
        known = extension.ExtensionManager(namespace).names()
        raise DriverError(f'{kind} = {name}: there is no such policy; there '
                          f'are: {", ".join(sorted(known))}') from exc
    return make(options)
