# SPDX-License-Identifier: Apache-2.0

"""Capacity of hosts: use, policies, inventories and secondaries."""

from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from horizon import messages, views
from horizon.utils import functions

from secondary_dashboard import api, formats

ADMISSION = {'open': _('Open'), 'closed': _('Closed'),
             'unknown': _('Unknown')}
STATES = {'held': _('Held'), 'failing': _('Failing'),
          'violated': _('Violated'), 'invalid': _('Invalid'),
          'unknown': _('Unknown')}


class CapacityView(views.HorizonTemplateView):
    """Each host that takes secondaries, and its use."""

    template_name = 'secondary_dashboard/capacity.html'
    page_title = _('Capacity')

    def get_context_data(self, **kwargs):
        """Add the hosts of the page."""
        context = super().get_context_data(**kwargs)
        context['zone'] = timezone.get_current_timezone_name()
        try:
            found = api.capacity(
                self.request, limit=functions.get_page_size(self.request),
                marker=self.request.GET.get('marker') or None)
        except (api.LeaseServiceError, api.LeaseNotFound) as exc:
            messages.error(self.request, str(exc))
            return {**context, 'unavailable': str(exc)}
        if found.warning:
            messages.warning(self.request, found.warning)
        context['hosts'] = [show_host(one) for one in found.items]
        if found.more:
            context['next'] = found.items[-1]['host']
        return context


def show_host(host):
    """Return a host of the service with the texts of its values."""
    return {
        **host,
        'admission_text': ADMISSION.get(host['admission'],
                                        host['admission']),
        'reported': formats.format_moment(host['reported_at']),
        'cpus_text': formats.format_number(host['cpus']),
        'memory_text': formats.format_number(host['memory_mb'], 0),
        'at_floor_text': formats.format_number(host['at_floor'], 0),
        'use': [_show_use(one) for one in host['use']],
        'policies': [{
            **one, 'state_text': _state(one, host['secondaries']),
            'usage_text': formats.format_number(one['usage'], 1),
            'failed_text': formats.format_number(one['failed_checks'], 0)}
            for one in host['policies']],
        'inventory': [{**one, 'share': _share(one['used'], one['total'])}
                      for one in host['inventory']],
        'secondaries': [{
            **one, 'condition': _conditions(one),
            'cpu_text': formats.format_number(one['cpu'], 1),
            'limit_text': formats.format_number(one['limit'], 1)}
            for one in host['secondaries']]}


def _state(policy, secondaries):
    """Return the text of a policy's state.

    Use above the threshold violates a policy only if secondaries run.
    """
    text = STATES.get(policy['state'], policy['state'])
    if (policy['state'] == 'held' and not secondaries
            and (policy['usage'] or 0) > policy['threshold']):
        return _('%s: no secondaries run') % text
    return text


def _conditions(secondary):
    """Return the texts of conditions of a secondary other than running."""
    return [text for text, holds in (
        (_('paused'), secondary['paused']),
        (_('at the floor'), secondary['at_floor']),
        (secondary['problem'], secondary['problem'])) if holds]


def _show_use(use):
    """Return the use of a resource with the geometry of its bar.

    Positions are percentages of the bar, which is 100 percent of the host.
    """
    primary, secondary = (
        min(max(use[name] or 0, 0), 100) for name in ('primary',
                                                      'secondary'))
    return {
        **use, 'known': use['primary'] is not None,
        'primary_width': primary,
        'secondary_width': min(secondary, 100 - primary),
        'limit_x': None if use['limit'] is None else min(use['limit'], 100),
        'primary_text': formats.format_number(use['primary'], 1),
        'secondary_text': formats.format_number(use['secondary'], 1),
        'limit_text': formats.format_number(use['limit'], 1)}


def _share(used, total):
    return 0 if not total else round(100 * min(used / total, 1), 1)
