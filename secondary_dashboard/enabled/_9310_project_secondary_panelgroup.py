# SPDX-License-Identifier: Apache-2.0

from django.utils.translation import gettext_lazy as _

PANEL_GROUP = 'secondary'
PANEL_GROUP_NAME = _('Secondary Capacity')
PANEL_GROUP_DASHBOARD = 'project'

ADD_INSTALLED_APPS = ['secondary_dashboard']
ADD_JS_FILES = ['secondary_dashboard/names.js',
                'secondary_dashboard/quote.js',
                'secondary_dashboard/session.js',
                'secondary_dashboard/updates.js']
ADD_SCSS_FILES = ['secondary_dashboard/secondary.scss']
