# SPDX-License-Identifier: Apache-2.0

"""Served time and charge by project."""

from django.utils.translation import gettext_lazy as _
import horizon

from secondary_dashboard import api


class Accounting(horizon.Panel):
    """Served time and charge by project."""

    name = _('Accounting')
    slug = 'secondary_accounting'
    permissions = (api.SERVICE, 'openstack.roles.admin')
