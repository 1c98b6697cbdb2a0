# SPDX-License-Identifier: Apache-2.0

"""Sensors of the agent, one module for each kind of resource."""

import typing

from secondary_scheduler import deprecated

if not typing.TYPE_CHECKING:
    __getattr__ = deprecated.find_renamed(__name__, {
        'Rates': 'secondary_scheduler.agent.sensors.base.CounterRates',
        'Reading': 'secondary_scheduler.agent.sensors.base.Reading'})
