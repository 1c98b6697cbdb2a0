"""How a site schedules, from the options of [secondary_leases]."""

import typing

from stevedore import driver, exception, extension

from secondary_scheduler.leases.durations import Durations
from secondary_scheduler.leases.planner import Settings

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


def from_options(options: typing.Any) -> Settings:
    """Return the settings that a group of options asks for.

    :raises DriverError: if a policy is none.
    """
    reservations = {
        'off': 0, 'aggressive': 1, 'conservative': None,
        'intermediate': options.backfilling_reservations}
    migration_rates = {'no': None, 'shared': 0.0,
                       'yes': options.migration_rate}
    return Settings(
        reservations=reservations[options.backfilling],
        suspension=options.suspension,
        worthwhile=options.worthwhile,
        slack=options.slack_threshold,
        preemption=load('preemption', options.preemption, options),
        pricing=load('pricing', options.pricing, options),
        durations=Durations(
            suspend_rate=options.suspend_rate,
            resume_rate=options.resume_rate,
            shared=options.exclusion == 'global',
            command=options.enactment_overhead,
            shutdown=options.shutdown_time,
            migration_rate=migration_rates[options.migration]))
