# SPDX-License-Identifier: Apache-2.0

"""Tabs of the details of a lease."""

import json
import logging
import time

from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from horizon import exceptions, messages, tabs
from openstack_dashboard.api import glance, nova

from secondary_dashboard import api, charts, formats
from secondary_scheduler.model import vocabulary

LOG = logging.getLogger(__name__)


class LeaseTab(tabs.Tab):
    """A tab that shows an error of the service in place of its content."""

    preload = False

    @property
    def lease(self):
        """The lease, as the view has read it."""
        return self.tab_group.kwargs['lease']

    def get_context_data(self, request):
        """Return the context of the template."""
        try:
            return self.read(request)
        except (api.LeaseServiceError, api.LeaseNotFound) as exc:
            messages.error(request, str(exc))
            return {'unavailable': str(exc)}

    def read(self, request):
        """Return the content."""
        raise NotImplementedError


class OverviewTab(LeaseTab):
    """State, terms and price."""

    name = _('Overview')
    slug = 'overview'
    template_name = 'secondary_dashboard/_lease_overview.html'
    preload = True

    def read(self, request):
        """Return the lease and the texts of its values."""
        lease = self.lease
        return {
            'lease': lease, 'state': formats.format_state(lease),
            'kind': formats.KINDS.get(lease['kind'], lease['kind']),
            'duration': formats.format_duration(lease['duration']),
            'served': formats.format_duration(lease['served']),
            'price': formats.format_number(lease['price']),
            'charge': formats.format_number(lease['charge']),
            'max_rate': formats.format_number(lease['max_rate'], 6),
            'times': [(name, formats.format_moment(lease[field]))
                      for name, field in (
                          (_('Created'), 'created_at'),
                          (_('Updated'), 'updated_at'),
                          (_('Start'), 'start'),
                          (_('Deadline'), 'deadline'),
                          (_('Next Possible Start'), 'next_start'))
                      if lease[field]],
            'zone': timezone.get_current_timezone_name(),
            'nodes': [{**one, 'image_name': _image_name(
                request, one.get('image'))} for one in lease['nodes']]}


def _image_name(request, image):
    """Return the name of an image; its id if it cannot be read."""
    if not image:
        return ''
    try:
        return glance.image_get(request, image).name or image
    except Exception:
        LOG.debug('Cannot read image %s', image, exc_info=True)
        return image


class ServersTab(LeaseTab):
    """Servers of the lease and their states."""

    name = _('Servers')
    slug = 'servers'
    template_name = 'secondary_dashboard/_lease_servers.html'

    def read(self, request):
        """Return the servers; an unknown state is None."""
        expected = self.lease['servers']
        return {'servers': _read_servers(request, self.lease['id'],
                                         expected) if expected else []}


def _read_servers(request, lease, expected):
    """Return the servers of a lease, each {id, name, status}."""
    try:
        found = {one.id: one for one in nova.server_list(request, {
            'metadata': json.dumps({vocabulary.LEASE_METADATA: lease})})[0]}
    except exceptions.NotAuthenticated:
        raise
    except Exception:
        LOG.exception('Cannot list the servers of lease %s', lease)
        messages.warning(request, _(
            'Nova does not list servers now: their states are unknown.'))
        found = {}
        gone = None
    else:
        gone = _('Deleted, or not of this project')
    return [{'id': one, 'found': one in found,
             'name': found[one].name if one in found else one,
             'status': found[one].status if one in found else gone}
            for one in expected]


class EventsTab(LeaseTab):
    """Events of the lease."""

    name = _('Events')
    slug = 'events'
    template_name = 'secondary_dashboard/_lease_events.html'

    def read(self, request):
        """Return the events, the newest first."""
        return {'events': [
            {**one, 'time': formats.format_moment(one['time']),
             'state': formats.STATES.get(one['state'], one['state'])}
            for one in reversed(api.lease_events(request,
                                                 self.lease['id']))]}


class TimelineTab(LeaseTab):
    """Planned slots of the lease."""

    name = _('Timeline')
    slug = 'timeline'
    template_name = 'secondary_dashboard/_lease_timeline.html'

    def read(self, request):
        """Return the chart and the slots."""
        lease = self.lease
        slots = api.timeline(request, lease['id'])
        return {
            'chart': charts.draw_timeline(
                [(lease['name'] or lease['id'], '',
                  [charts.slot_span(one) for one in slots])],
                int(time.time()), timezone.get_current_timezone()),
            'slots': [{**one, 'begin': formats.format_moment(one['begin']),
                       'end': formats.format_moment(one['end'])}
                      for one in slots]}


class LeaseTabs(tabs.DetailTabsGroup):
    """Tabs of the details of a lease."""

    slug = 'lease_details'
    tabs = (OverviewTab, ServersTab, EventsTab, TimelineTab)
    sticky = True
    show_single_tab = True
