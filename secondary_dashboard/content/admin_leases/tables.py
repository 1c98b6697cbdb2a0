# SPDX-License-Identifier: Apache-2.0

"""Table of the leases of all projects."""

from django.utils.translation import gettext_lazy as _
from horizon import tables

from secondary_dashboard import projects
from secondary_dashboard.content.project_leases import tables as leases


class AllLeasesFilter(leases.LeaseFilter):
    """Filter by project, name or state, done by the service."""

    filter_choices = (('project_id', _('Project ID ='), True),
                      *leases.LeaseFilter.filter_choices)


class ShowAllTimelines(leases.ShowTimeline):
    """Open the timeline of all projects."""

    url = 'horizon:admin:secondary_leases:timeline'


class AllLeasesRow(leases.LeaseRow):
    """A row with the name of its project."""

    def get_data(self, request, object_id):
        """Read the lease and the name of its project."""
        lease = super().get_data(request, object_id)
        lease['project_name'] = projects.read_names(request).get(
            lease['project_id'])
        return lease


class AllLeasesTable(leases.LeasePageTable):
    """Leases of all projects."""

    details = 'horizon:admin:secondary_leases:detail'

    project = tables.Column(
        lambda lease: lease.get('project_name') or lease['project_id'],
        verbose_name=_('Project'), classes=('secondary-narrow',))

    class Meta(leases.LeasePageTable.Meta):
        """Options of the table."""

        name = 'all_leases'
        row_class = AllLeasesRow
        columns = ('project', 'name', 'state', 'reason', 'nodes', 'duration',
                   'created')
        table_actions = (AllLeasesFilter, ShowAllTimelines,
                         leases.CancelLease, leases.DeleteLease)
