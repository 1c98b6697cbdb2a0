# SPDX-License-Identifier: Apache-2.0

"""Views of a project's leases."""

import datetime
import logging
import time
import typing

from django import http
from django.middleware import csrf
from django.urls import reverse, reverse_lazy
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.views import generic
from horizon import forms, messages, tabs, views
from horizon.utils import memoized

from secondary_dashboard import api, charts, formats, paging
from secondary_dashboard.content.project_leases import forms as lease_forms
from secondary_dashboard.content.project_leases import tables as lease_tables
from secondary_dashboard.content.project_leases import tabs as lease_tabs
from secondary_scheduler.model.lease_states import FINAL, LeaseState

LOG = logging.getLogger(__name__)

INDEX = 'horizon:project:secondary_leases:index'
#: Largest number of leases in a timeline.
_MOST_ROWS = 100
#: Intervals of the timeline by name, in seconds.
_WINDOWS = {'6h': 6 * 3600, 'day': 86400, 'week': 7 * 86400}


class IndexView(paging.LeasePages):
    """List of the project's leases."""

    table_class = lease_tables.LeasesTable
    page_title = _('Leases')


class CreateView(forms.ModalFormView):
    """Form for a new lease, with a quote."""

    form_class = lease_forms.CreateLeaseForm
    template_name = 'secondary_dashboard/create_lease.html'
    form_id = 'create_secondary_lease'
    modal_id = 'create_secondary_lease_modal'
    modal_header = page_title = submit_label = _('Create Lease')
    submit_url = reverse_lazy('horizon:project:secondary_leases:create')
    success_url = reverse_lazy(INDEX)

    def get_context_data(self, **kwargs):
        """Add the quota of the project, if it can be read."""
        context = super().get_context_data(**kwargs)
        try:
            context['quota'] = api.quota(self.request)
        except (api.LeaseServiceError, api.LeaseNotFound) as exc:
            messages.warning(self.request, str(exc))
        return context

    def get_object_id(self, obj):
        """Return the id of the made lease."""
        return obj['id']

    def get_object_display(self, obj):
        """Return the name of the made lease."""
        return obj['name']


class QuoteView(generic.View):
    """Request a quote for the terms in the form; JSON.

    The response has ``offer`` (a URL to ask for the answer), or ``errors``
    ({field: texts}) or ``message``.
    """

    def post(self, request):
        """Request the quote."""
        form = lease_forms.QuoteForm(request, request.POST)
        if not form.is_valid():
            return http.JsonResponse({'errors': form.errors})
        try:
            quote = api.quote_create(request, **form.terms())
        except (api.LeaseServiceError, api.LeaseNotFound) as exc:
            return http.JsonResponse({'message': str(exc)})
        return http.JsonResponse({'offer': reverse(
            'horizon:project:secondary_leases:offer', args=[quote])})


class OfferView(generic.View):
    """Answer of the scheduler to a quote, as texts; JSON.

    The response is empty until there is an answer.
    """

    def get(self, request, quote_id):
        """Return the offer."""
        try:
            quote = api.quote_get(request, str(quote_id))
        except (api.LeaseServiceError, api.LeaseNotFound) as exc:
            return http.JsonResponse({'message': str(exc)})
        offer = quote['offer']
        if offer is None:
            return http.JsonResponse({})
        return http.JsonResponse({
            'accepted': offer['accepted'],
            'start': formats.format_moment(offer['start']),
            'price': formats.format_number(offer['price']),
            'rate': formats.format_number(offer['rate'], 6),
            'reason': offer['reason']})


class SessionView(generic.View):
    """Verify the session, for a form that is about to be sent.

    The status is 401 if the lease service refuses the token.  Otherwise the
    response has ``csrf``, the form's secret: a new login has changed it.
    """

    def get(self, request):
        """Ask the lease service; another error is not about the session."""
        try:
            api.quota(request)
        except (api.LeaseServiceError, api.LeaseNotFound):
            LOG.debug('Cannot verify the session', exc_info=True)
        return http.JsonResponse({'csrf': csrf.get_token(request)})


class DetailView(tabs.TabView):
    """Details of a lease: terms, servers, events and timeline."""

    tab_group_class = lease_tabs.LeaseTabs
    template_name = 'secondary_dashboard/lease.html'
    page_title = '{{ lease.name|default:lease.id }}'
    lease_table = lease_tables.LeasesTable

    def get_list_url(self):
        """Return the URL of the list."""
        return reverse(INDEX)

    @memoized.memoized_method
    def get_lease(self):
        """Return the lease; go to the list if it cannot be read."""
        return paging.read_or_redirect(
            self.request, lambda: api.lease_get(
                self.request, str(self.kwargs['lease_id'])),
            self.get_list_url())

    def get_tabs(self, request, **kwargs):
        """Return the tabs, which get the lease."""
        return super().get_tabs(request, **{**kwargs,
                                            'lease': self.get_lease()})

    def get_context_data(self, **kwargs):
        """Add the lease and the actions on it."""
        lease = lease_tables.LeaseRecord(self.get_lease())
        context = super().get_context_data(**kwargs, lease=lease)
        table = self.lease_table(self.request)
        context['url'] = self.get_list_url()
        context['actions'] = table.render_row_actions(lease)
        return context


class TimelineView(views.HorizonTemplateView):
    """Planned slots of all leases of the project.

    ``filters`` are further filters of each request; ``url_names`` is the
    namespace of the panel's URLs.
    """

    template_name = 'secondary_dashboard/timeline.html'
    page_title = _('Timeline of Leases')
    filters: dict[str, typing.Any] = {}
    url_names = 'horizon:project:secondary_leases'

    def read_projects(self, leases):
        """Return the names of projects to show with leases, by id."""
        return {}

    def get_context_data(self, **kwargs):
        """Add the chart, and the leases that hold no hosts."""
        context = super().get_context_data(**kwargs)
        now = int(time.time())
        chosen = self.request.GET.get('window', '')
        length = _WINDOWS.get(chosen)
        context.update(chosen=chosen if length else 'all',
                       zone=timezone.get_current_timezone_name(),
                       here=reverse(f'{self.url_names}:timeline'))
        window = {} if length is None else {
            'begin': _moment(now), 'end': _moment(now + length)}
        try:
            slots = api.timeline(self.request, **window, **self.filters)
            listed = api.lease_list(
                self.request, limit=_MOST_ROWS, **self.filters, state=[
                    str(one) for one in LeaseState if one not in FINAL])
        except (api.LeaseServiceError, api.LeaseNotFound) as exc:
            messages.error(self.request, str(exc))
            return context
        if listed.warning:
            messages.warning(self.request, listed.warning)
        held = {}
        for one in slots:
            held.setdefault(one['lease_id'], []).append(
                charts.slot_span(one))
        projects = self.read_projects(listed.items)
        names = {one['id']: _label(one, projects) for one in listed.items}
        shown = dict(list(held.items())[:_MOST_ROWS])
        context['chart'] = charts.draw_timeline(
            [(names.get(lease, lease), self.link(lease), spans)
             for lease, spans in shown.items()],
            now, timezone.get_current_timezone(), **(
                {} if length is None else {'begin': now,
                                           'end': now + length}))
        context['hidden'] = len(held) - len(shown)
        context['waiting'] = [
            {'name': names[one['id']], 'link': self.link(one['id']),
             'state': formats.format_state(one)}
            for one in listed.items if one['id'] not in held]
        return context

    def link(self, lease):
        """Return the URL of a lease's details."""
        return reverse(f'{self.url_names}:detail', args=[lease])


def _label(lease, projects):
    """Return the name of a lease, with that of its project if it is known."""
    name = lease['name'] or lease['id']
    project = projects.get(lease['project_id'])
    return f'{project}: {name}' if project else name


def _moment(seconds):
    return datetime.datetime.fromtimestamp(
        seconds, datetime.UTC).strftime('%Y-%m-%dT%H:%M:%SZ')
