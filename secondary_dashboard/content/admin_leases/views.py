# SPDX-License-Identifier: Apache-2.0

"""Leases of all projects."""

from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from secondary_dashboard import paging, projects
from secondary_dashboard.content.admin_leases import tables as lease_tables
from secondary_dashboard.content.project_leases import views as lease_views


class AllLeasesView(paging.LeasePages):
    """List of the leases of all projects."""

    table_class = lease_tables.AllLeasesTable
    page_title = _('Leases')
    filters = {'all_projects': True}

    def get_data(self):
        """Return the leases with the names of their projects."""
        leases = super().get_data()
        names = projects.read_names(self.request) if leases else {}
        for one in leases:
            one['project_name'] = names.get(one['project_id'])
        return leases


class LeaseView(lease_views.DetailView):
    """Details of a lease of any project."""

    index = 'horizon:admin:secondary_leases:index'
    lease_table = lease_tables.AllLeasesTable

    def get_list_url(self):
        """Return the URL of the list."""
        return reverse(self.index)


class AllTimelinesView(lease_views.TimelineView):
    """Planned slots of the leases of all projects."""

    filters = {'all_projects': True}
    url_names = 'horizon:admin:secondary_leases'

    def read_projects(self, leases):
        """Return the names of the projects of leases."""
        return projects.read_names(self.request) if leases else {}
