# SPDX-License-Identifier: Apache-2.0

"""Deprecated path of ``secondary_scheduler.agent.sensors.interference``.

It is removed in the next release.
"""

from secondary_scheduler import deprecated

_PLACE = 'secondary_scheduler.agent.sensors.interference'

__getattr__ = deprecated.find_renamed(__name__, {
    'Delays': f'{_PLACE}.RunDelays', 'Pressure': f'{_PLACE}.PressureSensor',
    'Resctrl': f'{_PLACE}.ResctrlSensor', 'Steal': f'{_PLACE}.StealSensor'})
