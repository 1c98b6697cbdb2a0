"""The policies that an operator chooses by name, found by stevedore."""

import typing

from stevedore import driver, exception, extension

#: Where drivers are registered, each kind of policy in one of its own.
NAMESPACE = 'secondary_scheduler.lease_policies'


class DriverError(Exception):
    """There is no such policy."""


def load(kind: str, name: str, options: typing.Any) -> typing.Any:
    """Return a policy of a kind by its name, made with these options.

    :raises DriverError: if there is none.
    """
    namespace = f'{NAMESPACE}.{kind}'
    try:
        make: typing.Any = driver.DriverManager(namespace, name).driver
    except exception.NoMatches as exc:
        known = extension.ExtensionManager(namespace).names()
        raise DriverError(f'{kind} = {name}: there is no such policy; there '
                          f'are: {", ".join(sorted(known))}') from exc
    return make(options)
