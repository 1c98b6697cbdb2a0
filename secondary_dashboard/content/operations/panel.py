# SPDX-License-Identifier: Apache-2.0

"""Operations on secondaries, by action plan."""

from django.utils.translation import gettext_lazy as _
import horizon

from secondary_dashboard import api


class Operations(horizon.Panel):
    """Operations on secondaries, by action plan."""

    name = _('Operations')
    slug = 'secondary_operations'
    permissions = (api.SERVICE, 'openstack.roles.admin')
