# SPDX-License-Identifier: Apache-2.0

"""Panel of a project's leases."""

from django.utils.translation import gettext_lazy as _
import horizon

from secondary_dashboard import api


class ProjectLeases(horizon.Panel):
    """Leases of the user's project."""

    name = _('Leases')
    slug = 'secondary_leases'
    permissions = (api.SERVICE,)
