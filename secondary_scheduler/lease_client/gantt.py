# SPDX-License-Identifier: Apache-2.0

"""Deprecated path of ``secondary_scheduler.leases.client.gantt``.

It is removed in the next release.
"""

from secondary_scheduler import deprecated

__getattr__ = deprecated.find_renamed(__name__, {
    'draw': 'secondary_scheduler.leases.client.gantt.draw_chart',
})
