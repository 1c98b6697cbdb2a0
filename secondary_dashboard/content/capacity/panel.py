# SPDX-License-Identifier: Apache-2.0

"""Use of hosts by primaries and secondaries."""

from django.utils.translation import gettext_lazy as _
import horizon

from secondary_dashboard import api


class Capacity(horizon.Panel):
    """Use of hosts by primaries and secondaries."""

    name = _('Capacity')
    slug = 'secondary_capacity'
    permissions = (api.SERVICE, 'openstack.roles.admin')
