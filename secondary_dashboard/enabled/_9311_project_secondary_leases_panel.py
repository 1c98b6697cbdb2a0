# SPDX-License-Identifier: Apache-2.0

PANEL = 'secondary_leases'
PANEL_GROUP = 'secondary'
PANEL_DASHBOARD = 'project'

ADD_PANEL = 'secondary_dashboard.content.project_leases.panel.ProjectLeases'
