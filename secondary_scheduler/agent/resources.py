# SPDX-License-Identifier: Apache-2.0

"""Deprecated path of ``secondary_scheduler.agent.sensors``.

It is removed in the next release.
"""

from secondary_scheduler import deprecated

__getattr__ = deprecated.find_renamed(__name__, {
    'Disk': 'secondary_scheduler.agent.sensors.disk.DiskSensor',
    'Memory': 'secondary_scheduler.agent.sensors.memory.MemorySensor',
    'Network': 'secondary_scheduler.agent.sensors.network.NetworkSensor',
})
