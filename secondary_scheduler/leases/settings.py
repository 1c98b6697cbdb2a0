# SPDX-License-Identifier: Apache-2.0

"""Settings of the lease scheduler, from the options of [secondary_leases]."""

import typing

from secondary_scheduler.leases.drivers import load
from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.leases.scheduling.images import Preparation
from secondary_scheduler.leases.scheduling.planner import Settings


def from_options(options: typing.Any) -> Settings:
    """Return the settings for a group of options.

    :raises drivers.DriverError: if a policy has no driver
    """
    reservations = {
        'off': 0, 'aggressive': 1, 'conservative': None,
        'intermediate': options.backfilling_reservations}
    preparation = None if options.preparation == 'none' else Preparation(
        options.image_bandwidth / 8, options.image_reuse != 'none',
        options.image_pool if options.image_reuse == 'pool' else 0)
    migration_rates = {'no': None, 'shared': 0.0,
                       'yes': options.migration_rate}
    return Settings(
        reservations=reservations[options.backfilling],
        suspension=options.suspension,
        minimum_run_factor=options.minimum_run_factor,
        slack=options.slack_threshold,
        deadline_replanning_orders=tuple(
            options.deadline_replanning_orders),
        preparation=preparation,
        order=load('order', options.order, options),
        admission=load('admission', options.admission, options),
        selection=load('host_selection', options.host_selection, options),
        preemption=load('preemption', options.preemption, options),
        pricing=load('pricing', options.pricing, options),
        durations=OperationTimes(
            suspend_rate=options.suspend_rate,
            resume_rate=options.resume_rate,
            shared=options.suspend_serialization == 'global',
            command=options.command_latency,
            shutdown=options.shutdown_time,
            margin=options.suspend_margin,
            migration_rate=migration_rates[options.migration]))
