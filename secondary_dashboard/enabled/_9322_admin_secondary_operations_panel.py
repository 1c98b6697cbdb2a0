# SPDX-License-Identifier: Apache-2.0

PANEL = 'secondary_operations'
PANEL_GROUP = 'secondary'
PANEL_DASHBOARD = 'admin'

ADD_PANEL = 'secondary_dashboard.content.operations.panel.Operations'
