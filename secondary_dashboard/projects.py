# SPDX-License-Identifier: Apache-2.0

"""Names of projects."""

import logging

from django.utils.translation import gettext_lazy as _
from horizon import exceptions, messages
from openstack_dashboard.api import keystone

LOG = logging.getLogger(__name__)


def read_names(request):
    """Return the names of projects by id; {} if Keystone lists none."""
    try:
        return {one.id: one.name
                for one in keystone.tenant_list(request)[0]}
    except exceptions.NotAuthenticated:
        raise
    except Exception:
        LOG.exception('Cannot list projects')
        messages.warning(request, _(
            'Keystone does not list projects now: their ids are shown.'))
        return {}
