# SPDX-License-Identifier: Apache-2.0

"""Table of the leases of all projects."""

from django.utils.translation import gettext_lazy as _
from horizon import tables

from secondary_dashboard import formats
from secondary_dashboard.content.project_leases import tables as leases


class AllLeasesFilter(tables.FilterAction):
    """Filter by project, name or state, done by the service."""

    filter_type = 'server'
    filter_choices = (('project_id', _('Project ID ='), True),
                      ('name', _('Name ='), True),
                      ('state', _('State ='), True))


class AllLeasesTable(leases.LeasePageTable):
    """Leases of all projects."""

    project = tables.Column(
        lambda lease: lease.get('project_name') or lease['project_id'],
        verbose_name=_('Project'), classes=('secondary-narrow',))
    name = tables.Column(lambda lease: lease.name, verbose_name=_('Name'),
                         classes=('secondary-narrow',),
                         link='horizon:admin:secondary_leases:detail')
    state = tables.Column(formats.format_state, verbose_name=_('State'))
    reason = tables.Column(
        lambda lease: lease['reason'] or formats.UNKNOWN,
        verbose_name=_('Reason'), classes=('secondary-wide',))
    nodes = tables.Column(
        lambda lease: formats.format_nodes(lease['nodes']),
        verbose_name=_('Nodes'))
    duration = tables.Column(
        lambda lease: formats.format_duration(lease['duration']),
        verbose_name=_('Duration'))
    created = tables.Column(
        lambda lease: formats.format_moment(lease['created_at']),
        verbose_name=_('Created'))

    class Meta:
        """Options of the table."""

        name = 'all_leases'
        verbose_name = _('Leases')
        hidden_title = True
        table_actions = (AllLeasesFilter, leases.CancelLease)
        row_actions = (leases.PauseLease, leases.UnpauseLease,
                       leases.CancelLease, leases.DeleteLease)
