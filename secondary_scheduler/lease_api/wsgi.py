# SPDX-License-Identifier: Apache-2.0

"""Deprecated path of ``secondary_scheduler.leases.api.wsgi``.

Configurations of WSGI servers may name it; it is removed in the next release.
"""

import logging
import warnings

from secondary_scheduler.leases.api.wsgi import application

__all__ = ['application']

_MESSAGE = (f'The module {__name__} is deprecated and will be removed in the '
            'next release: name secondary_scheduler.leases.api.wsgi in the '
            'configuration of the WSGI server.')

warnings.warn(_MESSAGE, DeprecationWarning, stacklevel=2)
# A WSGI server shows no DeprecationWarning. Logging is not set up before the
# first request, so that Python writes this line to stderr.
logging.getLogger(__name__).warning(_MESSAGE)
