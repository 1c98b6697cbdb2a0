# SPDX-License-Identifier: Apache-2.0

"""Django settings of the dashboard's tests: Horizon's, with our panels."""

import openstack_dashboard.enabled
from openstack_dashboard.test.settings import *  # noqa: F403,H303
from openstack_dashboard.utils import settings

import secondary_dashboard.enabled

for _name in ('dashboards', 'default_dashboard'):
    HORIZON_CONFIG.pop(_name, None)  # noqa: F405
settings.update_dashboards(
    [openstack_dashboard.enabled, secondary_dashboard.enabled],
    HORIZON_CONFIG, INSTALLED_APPS)  # noqa: F405
INSTALLED_APPS = list(dict.fromkeys(INSTALLED_APPS))  # noqa: F405
COMPRESS_ENABLED = False
# The style sheets are compiled by Horizon itself; no test reads them.
COMPRESS_PRECOMPILERS = ()
