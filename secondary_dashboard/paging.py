# SPDX-License-Identifier: Apache-2.0

"""Pages of leases in a table, with links forwards and backwards."""

import typing

from django.utils.translation import gettext_lazy as _
from horizon import exceptions, messages, tables
from horizon.utils import functions

from secondary_dashboard import api
from secondary_dashboard.content.project_leases.tables import LeaseRecord


class LeasePages(tables.PagedTableMixin, tables.DataTableView):
    """A view that reads one page of leases from the service.

    ``filters`` are further filters of each request; ``newest_first`` is the
    order of the creation.
    """

    filters: dict[str, typing.Any] = {}
    template_name = 'secondary_dashboard/leases.html'

    def get_data(self):
        """Return the leases of the page; none after an error."""
        marker, direction = self._get_marker()
        backwards = direction == 'asc'
        try:
            found = api.lease_list(
                self.request, limit=functions.get_page_size(self.request),
                marker=marker, sort_key='created_at',
                sort_dir='asc' if backwards else 'desc',
                **self.filters, **self.table_filters())
        except (api.LeaseServiceError, api.LeaseNotFound) as exc:
            messages.error(self.request, str(exc))
            return []
        if found.warning:
            messages.warning(self.request, found.warning)
        self._has_more_data = backwards or found.more
        self._has_prev_data = found.more if backwards else bool(marker)
        leases = [LeaseRecord(one) for one in found.items]
        return leases[::-1] if backwards else leases

    def post(self, request, *args, **kwargs):
        """Run an action; an error about its lease is a message."""
        return read_or_redirect(
            request, lambda: super(LeasePages, self).post(
                request, *args, **kwargs), request.path)

    def table_filters(self):
        """Return the filter that the user has chosen in the table."""
        return {name: value for name, value in self.get_filters().items()
                if value}

    def get_filters(self, filters=None, filters_map=None):
        """Return the filter of the table as {field: value}."""
        self.update_server_filter_action(self.request)
        found = self.get_server_filter_info(self.request) or {}
        if found.get('field') and found.get('value'):
            return {found['field']: found['value']}
        return {}


def read_or_redirect(request, read, redirect):
    """Return the result of a call; show an error on another page.

    :param read: a function without parameters.
    :param redirect: URL of the other page.
    :raises Http302: after an error of the service.
    """
    try:
        return read()
    except (api.LeaseServiceError, api.LeaseNotFound) as exc:
        messages.error(request, str(exc) or _('There is no such lease.'))
        raise exceptions.Http302(redirect) from exc
