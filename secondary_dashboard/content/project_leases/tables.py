# SPDX-License-Identifier: Apache-2.0

"""Table of leases, and the actions on them."""

import sys
import typing

from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy
from horizon import exceptions, messages, tables

from secondary_dashboard import api, formats
from secondary_scheduler.model.lease_states import FINAL, LeaseState


class LeaseRecord(dict[str, typing.Any]):
    """A lease of the service, with the attributes that tables need."""

    @property
    def id(self) -> str:
        """UUID of the lease."""
        return str(self['id'])

    @property
    def name(self) -> str:
        """Name of the lease, or its id if it has none."""
        return str(self['name'] or self['id'])


def tell_refusal(request: typing.Any, name: str,
                 error: exceptions.HorizonException) -> typing.NoReturn:
    """Show the reason why an action failed.

    :raises HandledException: for Horizon, which shows no further message.
    """
    messages.error(request, f'{name}: {error}')
    raise exceptions.HandledException([type(error), error,
                                       sys.exc_info()[2]])


class LeaseAction(tables.BatchAction):
    """An action of the lease service; shows the reason of a refusal."""

    verb = ''

    def action(self, request, datum_id):
        """Order the action."""
        try:
            self.order(request, datum_id)
        except (api.LeaseServiceError, api.LeaseNotFound) as exc:
            lease = self.table.get_object_by_id(datum_id)
            tell_refusal(request, lease.name if lease else datum_id, exc)

    def order(self, request, lease):
        """Send the request to the service."""
        api.lease_act(request, lease, self.verb)


class PauseLease(LeaseAction):
    """Pause a lease: it is not scheduled, and suspended if it runs."""

    name = verb = 'pause'
    icon = 'pause'
    help_text = _('A paused lease is not scheduled. Its servers are '
                  'suspended, and keep their memory.')

    @staticmethod
    def action_present(count):
        """Return the label."""
        return ngettext_lazy('Pause Lease', 'Pause Leases', count)

    @staticmethod
    def action_past(count):
        """Return the message."""
        return ngettext_lazy('Pausing lease', 'Pausing leases', count)

    def allowed(self, request, datum=None):
        """Return whether the lease can be paused."""
        return datum is None or not (
            datum['paused'] or datum['cancelling'] or formats.is_over(datum))


class UnpauseLease(LeaseAction):
    """Let a paused lease be scheduled again."""

    name = verb = 'unpause'
    icon = 'play'

    @staticmethod
    def action_present(count):
        """Return the label."""
        return ngettext_lazy('Unpause Lease', 'Unpause Leases', count)

    @staticmethod
    def action_past(count):
        """Return the message."""
        return ngettext_lazy('Unpaused lease', 'Unpaused leases', count)

    def allowed(self, request, datum=None):
        """Return whether the lease is paused."""
        return datum is None or (
            datum['paused'] and not datum['cancelling']
            and not formats.is_over(datum))


class CancelLease(LeaseAction):
    """End a lease and delete its servers."""

    name = verb = 'cancel'
    icon = 'stop'
    action_type = 'danger'
    help_text = _('A cancelled lease ends, and its servers are deleted.')

    @staticmethod
    def action_present(count):
        """Return the label."""
        return ngettext_lazy('Cancel Lease', 'Cancel Leases', count)

    @staticmethod
    def action_past(count):
        """Return the message."""
        return ngettext_lazy('Cancelling lease', 'Cancelling leases', count)

    def allowed(self, request, datum=None):
        """Return whether the lease can be cancelled."""
        return datum is None or not (
            datum['cancelling'] or formats.is_over(datum))


class DeleteLease(LeaseAction):
    """Delete a lease that is over or new."""

    name = 'delete'
    icon = 'trash'
    action_type = 'danger'
    help_text = _('The lease and its events are removed from the list.')

    @staticmethod
    def action_present(count):
        """Return the label."""
        return ngettext_lazy('Delete Lease', 'Delete Leases', count)

    @staticmethod
    def action_past(count):
        """Return the message."""
        return ngettext_lazy('Deleted lease', 'Deleted leases', count)

    def order(self, request, lease):
        """Send the request to the service."""
        api.lease_delete(request, lease)

    def allowed(self, request, datum=None):
        """Return whether the lease can be deleted."""
        return datum is None or formats.can_delete(datum)


class CreateLease(tables.LinkAction):
    """Open the form for a new lease."""

    name = 'create'
    verbose_name = _('Create Lease')
    url = 'horizon:project:secondary_leases:create'
    classes = ('ajax-modal',)
    icon = 'plus'


class ShowTimeline(tables.LinkAction):
    """Open the timeline of the project."""

    name = 'timeline'
    verbose_name = _('Timeline')
    url = 'horizon:project:secondary_leases:timeline'
    icon = 'calendar'


class LeaseFilter(tables.FilterAction):
    """Filter by name or state, done by the service."""

    filter_type = 'server'
    filter_choices = (('name', _('Name ='), True),
                      ('state', _('State ='), True))


class LeaseName(tables.Column):
    """Name of a lease; leads to its details in the panel of the table."""

    def get_link_url(self, datum):
        """Return the URL of the details."""
        return reverse(self.table.details, args=[datum.id])


class LeaseRow(tables.Row):
    """A row that is read again while the lease changes by itself."""

    ajax = True

    def get_data(self, request, object_id):
        """Read the lease."""
        return LeaseRecord(api.lease_get(request, object_id))


#: Rows in other states are read again by Horizon.
_STABLE = tuple((str(state), True) for state in (
    *FINAL, LeaseState.ACTIVE, LeaseState.QUEUED, LeaseState.SCHEDULED,
    LeaseState.SUSPENDED_QUEUED, LeaseState.SUSPENDED_SCHEDULED))


class LeasePageTable(tables.DataTable):
    """One page of leases: columns and actions of all lists of leases.

    ``details`` is the name of the URL of a lease's details.
    """

    details = ''

    name = LeaseName(lambda lease: lease.name, verbose_name=_('Name'),
                     classes=('secondary-narrow',), link='details')
    state = tables.Column(
        formats.state_key, verbose_name=_('State'), status=True,
        status_choices=_STABLE, display_choices=formats.STATE_TEXTS)
    reason = tables.Column(
        lambda lease: lease['reason'] or formats.UNKNOWN,
        verbose_name=_('Reason'), classes=('secondary-wide',))
    nodes = tables.Column(
        lambda lease: formats.format_nodes(lease['nodes']),
        verbose_name=_('Nodes'))
    kind = tables.Column(
        lambda lease: formats.KINDS.get(lease['kind'], lease['kind']),
        verbose_name=_('Start'), classes=('secondary-start',))
    duration = tables.Column(
        lambda lease: formats.format_duration(lease['duration']),
        verbose_name=_('Duration'), classes=('secondary-nowrap',))
    created = tables.Column(
        lambda lease: formats.format_moment(lease['created_at']),
        verbose_name=_('Created'), classes=('secondary-nowrap',))

    class Meta:
        """Options that all lists of leases have in common."""

        verbose_name = _('Leases')
        hidden_title = True
        row_class = LeaseRow
        status_columns = ('state',)
        row_actions = (PauseLease, UnpauseLease, CancelLease, DeleteLease)
        table_actions_template = 'secondary_dashboard/_table_actions.html'
        row_actions_dropdown_template = (
            'secondary_dashboard/_row_actions.html')

    def get_object_by_id(self, lookup):
        """Return a lease; one of another page is read from the service.

        The details of a lease have its actions too.
        """
        found = [one for one in self.data if one.id == lookup]
        return found[0] if found else LeaseRecord(
            api.lease_get(self.request, lookup))


class LeasesTable(LeasePageTable):
    """Leases of the project."""

    details = 'horizon:project:secondary_leases:detail'

    class Meta(LeasePageTable.Meta):
        """Options of the table."""

        name = 'leases'
        table_actions = (LeaseFilter, ShowTimeline, CreateLease, CancelLease,
                         DeleteLease)
