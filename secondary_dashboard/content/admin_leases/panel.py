# SPDX-License-Identifier: Apache-2.0

"""Leases of all projects."""

from django.utils.translation import gettext_lazy as _
import horizon

from secondary_dashboard import api


class AdminLeases(horizon.Panel):
    """Leases of all projects."""

    name = _('Leases')
    slug = 'secondary_leases'
    permissions = (api.SERVICE, 'openstack.roles.admin')
