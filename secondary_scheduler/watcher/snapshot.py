# SPDX-License-Identifier: Apache-2.0

"""Deprecated path of ``secondary_scheduler.watcher.cloud_snapshot``.

It is removed in the next release.
"""

from secondary_scheduler import deprecated

__getattr__ = deprecated.find_renamed(__name__, {
    'Server': 'secondary_scheduler.watcher.cloud_snapshot.NovaServer',
    'Snapshot': 'secondary_scheduler.watcher.cloud_snapshot.CloudSnapshot',
    'ComputeHost': 'secondary_scheduler.watcher.cloud_snapshot.ComputeHost',
})
