# SPDX-License-Identifier: Apache-2.0

"""Operations on secondaries: action plans and their timeline."""

import time

from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from horizon import messages, views
from horizon.utils import functions

from secondary_dashboard import api, charts, formats
from secondary_scheduler.leases.client import times


class OperationsView(views.HorizonTemplateView):
    """Action plans of the plug-in, the newest first."""

    template_name = 'secondary_dashboard/operations.html'
    page_title = _('Operations')

    def get_context_data(self, **kwargs):
        """Add the plans of the page and the chart of their operations."""
        context = super().get_context_data(**kwargs)
        query = {name: self.request.GET.get(name, '').strip()
                 for name in ('host', 'server', 'state')}
        context.update(query=query,
                       zone=timezone.get_current_timezone_name())
        given = {name: value for name, value in query.items() if value}
        try:
            found = api.operations(
                self.request, limit=functions.get_page_size(self.request),
                marker=self.request.GET.get('marker') or None, **given)
        except (api.LeaseServiceError, api.LeaseNotFound) as exc:
            messages.error(self.request, str(exc))
            return {**context, 'unavailable': str(exc)}
        if found.warning:
            messages.warning(self.request, found.warning)
        context['chart'] = charts.draw_timeline(
            operation_rows(found.items), int(time.time()),
            timezone.get_current_timezone())
        context['plans'] = [show_plan(one) for one in found.items]
        if found.more:
            context['next'] = found.items[-1]['id']
        return context


def operation_rows(plans):
    """Yield a row of the chart for each server, the newest plan first."""
    rows = {}
    for plan in plans:
        for one in plan['operations']:
            if one['began_at'] is None:
                continue
            name = one['server_name'] or one['server_id'] or (
                one['target'] or one['kind'])
            began = times.to_seconds(one['began_at'])
            ended = one['ended_at'] and times.to_seconds(one['ended_at'])
            if one['state'] == 'ONGOING':
                ended = max(int(time.time()), began)
            rows.setdefault(name, []).append(charts.Span(
                began, ended or began, one['state'],
                f'{one["kind"]} {route(one)}, {one["state"]}'))
    return [(name, '', spans) for name, spans in rows.items()]


def route(operation):
    """Return source and target of an operation, as far as it has them."""
    return ' → '.join(one for one in (
        operation['source'], operation['target']) if one)


def show_plan(plan):
    """Return a plan of the service with the texts of its values."""
    return {
        **plan, 'created': formats.format_moment(plan['created_at']),
        'predicted_text': formats.format_number(plan['predicted'], 1),
        'indicators': [
            {'name': one['name'].replace('_', ' '), 'unit': one['unit'],
             'value': formats.format_number(one['value'])}
            for one in plan['indicators']],
        'operations': [{
            **one, 'route': route(one),
            'seconds_text': formats.format_number(one['seconds']),
            'predicted_text': formats.format_number(one['predicted'])}
            for one in plan['operations']]}
