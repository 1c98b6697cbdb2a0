# SPDX-License-Identifier: Apache-2.0

from django.utils.translation import gettext_lazy as _

PANEL_GROUP = 'secondary'
PANEL_GROUP_NAME = _('Secondary Capacity')
PANEL_GROUP_DASHBOARD = 'admin'
