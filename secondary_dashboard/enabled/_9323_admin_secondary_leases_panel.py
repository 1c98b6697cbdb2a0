# SPDX-License-Identifier: Apache-2.0

PANEL = 'secondary_leases'
PANEL_GROUP = 'secondary'
PANEL_DASHBOARD = 'admin'

ADD_PANEL = 'secondary_dashboard.content.admin_leases.panel.AdminLeases'
