# SPDX-License-Identifier: Apache-2.0

"""Deprecated path of ``secondary_scheduler.leases.client.client``.

Programs of users may import it; it is removed in the next release.
"""

import warnings

from secondary_scheduler.leases.client.client import (
    SERVICE_TYPE,
    VERSION,
    Client,
    Json,
    LeaseError,
)

__all__ = ['SERVICE_TYPE', 'VERSION', 'Client', 'Json', 'LeaseError']

warnings.warn(f'The module {__name__} is deprecated and will be removed in '
              'the next release: import '
              'secondary_scheduler.leases.client.client.',
              DeprecationWarning, stacklevel=2)
