# SPDX-License-Identifier: Apache-2.0

"""Form for a new lease."""

import argparse
import base64
from collections.abc import Callable, Iterable
import logging
import typing

from django import forms as django_forms
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from horizon import exceptions, forms, messages
from openstack_dashboard.api import glance, neutron, nova

from secondary_dashboard import api
from secondary_scheduler.leases.client import times
from secondary_scheduler.model import vocabulary
from secondary_scheduler.reading import times as limits
from secondary_scheduler.reading.values import InputError

LOG = logging.getLogger(__name__)

Choices = list[tuple[str, typing.Any]]
#: Nova's limit of user data, encoded, in bytes.
_MOST_USER_DATA = 65535
_NO_NETWORK = 'none'
_FORMAT = '%Y-%m-%dT%H:%M'
_OUT_OF_BOUNDS = _('Choose times from 2000 to 2099; the lease has to end '
                   'by then.')


class MomentField(django_forms.DateTimeField):
    """A time in the user's time zone, with the browser's own widget.

    It is cleaned to seconds since 1970, within the bounds of the service.
    """

    def __init__(self, **more: typing.Any) -> None:
        super().__init__(widget=forms.DateTimeInput(
            format=_FORMAT, attrs={'type': 'datetime-local', **more.pop(
                'attrs', {})}), required=False, **more)

    def clean(self, value: typing.Any) -> int | None:
        """Return the time; None without one."""
        try:
            found = super().clean(value)
            return None if found is None else limits.check_time(found)
        except (InputError, OverflowError) as exc:
            raise ValidationError(_OUT_OF_BOUNDS) from exc


def _number_input(step: int | str) -> django_forms.TextInput:
    """Return the browser's own widget; the limits are those of the field."""
    return django_forms.TextInput(attrs={'type': 'number', 'step': step})


def _switched(*starts: str) -> dict[str, str]:
    """Return the attributes that show a field for some kinds of start."""
    return {'class': 'switched', 'data-switch-on': 'begin', **{
        f'data-begin-{start}': '' for start in starts}}


class CreateLeaseForm(forms.SelfHandlingForm):
    """Terms of a lease, and the servers to boot.

    Lists and numbers are the browser's own: lists that Horizon draws cannot
    be operated with the keyboard, and its buttons for numbers have no names.
    """

    name = forms.CharField(label=_('Name'), max_length=255)
    flavor = forms.ChoiceField(
        label=_('Flavor'),
        help_text=_('Flavors of secondary instances. They run on idle '
                    'capacity, and can be suspended.'))
    number = forms.IntegerField(label=_('Number of Servers'), initial=1,
                                min_value=1, max_value=100_000,
                                widget=_number_input(step=1))
    image = forms.ChoiceField(label=_('Image'), required=False)
    networks = forms.MultipleChoiceField(
        label=_('Networks'), required=False,
        help_text=_('Without a choice Nova uses the only network of the '
                    'project.'))
    key_name = forms.ChoiceField(label=_('Key Pair'), required=False)
    duration = forms.CharField(
        label=_('Duration'), initial='1h', max_length=40,
        help_text=_('Running time of the servers: 90m, 2h, 1d12h, or '
                    'seconds.'))
    begin = forms.ChoiceField(
        label=_('Start'), choices=(
            ('room', _('As soon as there is room')),
            ('now', _('Now or not at all')),
            ('time', _('At a time')),
            ('deadline', _('So that it is done by a deadline'))),
        widget=django_forms.Select(attrs={
            'class': 'switchable', 'data-slug': 'begin'}))
    start = MomentField(label=_('Start Time'),
                        attrs=_switched('time', 'deadline'),
                        help_text=_('With a deadline: earliest start, may '
                                    'be left empty.'))
    deadline = MomentField(label=_('Deadline'), attrs=_switched('deadline'))
    preemptible = forms.BooleanField(
        label=_('May be preempted by other leases'), initial=True,
        required=False)
    max_rate = forms.FloatField(
        label=_('Highest Price'), required=False, min_value=0,
        widget=_number_input(step='any'),
        help_text=_('Of a server and a second. Without one, any price.'))
    user_data = forms.CharField(
        label=_('User Data'), required=False, strip=False,
        widget=forms.Textarea(attrs={'rows': 5, 'spellcheck': 'false'}),
        help_text=_('A script that each server runs as it boots, or other '
                    'data for cloud-init.'))

    def __init__(self, request: typing.Any, *args: typing.Any,
                 **kwargs: typing.Any) -> None:
        super().__init__(request, *args, **kwargs)
        zone = timezone.get_current_timezone_name()
        for name in ('start', 'deadline'):
            field = self.fields[name]
            field.label = f'{field.label} ({zone})'
            for key in list(field.widget.attrs):
                if key.startswith('data-begin-'):
                    field.widget.attrs[key] = field.label
        self.fields['flavor'].choices = self._offer(
            _('flavors'), flavor_choices, [])
        self.fields['image'].choices = self._offer(
            _('images'), image_choices, [('', _('None'))])
        self.fields['networks'].choices = self._offer(
            _('networks'), network_choices,
            [(_NO_NETWORK, _('No network'))])
        self.fields['key_name'].choices = self._offer(
            _('key pairs'), key_choices, [('', _('None'))])

    def _offer(self, what: typing.Any,
               read: Callable[[typing.Any], Iterable[tuple[str, str]]],
               first: Choices) -> Choices:
        """Return choices; show a warning if they cannot be read."""
        try:
            return [*first, *read(self.request)]
        except exceptions.NotAuthenticated:
            raise
        except Exception:
            LOG.exception('Cannot list %s', what)
            messages.warning(self.request, _(
                'The list of %s cannot be read now. Open the form again '
                'later.') % what)
            return first

    def clean_duration(self) -> int:
        """Return the duration in seconds."""
        try:
            found = times.parse_duration(
                ''.join(self.cleaned_data['duration'].split()))
        except argparse.ArgumentTypeError as exc:
            raise ValidationError(_(
                'Write a duration like 90m, 2h or 1d12h, at most ten years.'
                )) from exc
        if found < 1:
            raise ValidationError(_('At least a second, at most ten years.'))
        return found

    def clean_networks(self) -> list[str]:
        """Refuse networks beside "No network"."""
        found = self.cleaned_data['networks']
        if _NO_NETWORK in found and len(found) > 1:
            raise ValidationError(_(
                'Choose networks, or "No network", not both.'))
        return found

    def clean_user_data(self) -> str:
        """Return user data with line ends of Unix, in base64."""
        text = self.cleaned_data['user_data'].replace('\r\n', '\n')
        encoded = base64.b64encode(text.encode()).decode()
        if len(encoded) > _MOST_USER_DATA:
            raise ValidationError(_(
                'User data is longer than Nova allows, some 49,000 bytes.'))
        return encoded

    def clean(self) -> dict[str, typing.Any]:
        """Require the times that the kind of start needs.

        The end of the lease is a time that the service takes, too.
        """
        data = super().clean()
        needed = {'time': 'start', 'deadline': 'deadline'}.get(
            data.get('begin', ''))
        if needed and needed not in self.errors and not data.get(needed):
            self.add_error(needed, _('This kind of start needs this time.'))
        if (data.get('begin') in ('time', 'deadline') and data.get('start')
                and data.get('duration')):
            try:
                limits.check_time(data['start'] + data['duration'])
            except InputError:
                self.add_error('start', _OUT_OF_BOUNDS)
        return data

    def terms(self) -> dict[str, typing.Any]:
        """Return the request, as the client's ``create`` takes it."""
        data = self.cleaned_data
        nodes: dict[str, typing.Any] = {
            'number': data['number'], 'flavor': data['flavor']}
        for name in ('image', 'key_name', 'user_data'):
            if data[name]:
                nodes[name] = data[name]
        if data['networks'] == [_NO_NETWORK]:
            nodes['networks'] = _NO_NETWORK
        elif data['networks']:
            nodes['networks'] = [{'uuid': one} for one in data['networks']]
        found = {'nodes': [nodes], 'duration': data['duration'],
                 'preemptible': data['preemptible']}
        kind = data['begin']
        if kind == 'now':
            found['immediate'] = True
        if kind in ('time', 'deadline') and data['start']:
            found['start'] = limits.format_time(data['start'])
        if kind == 'deadline':
            found['deadline'] = limits.format_time(data['deadline'])
        if data['max_rate'] is not None:
            found['max_rate'] = data['max_rate']
        return found

    def handle(self, request: typing.Any, data: typing.Any) -> typing.Any:
        """Request the lease; keep the form if the service refuses it."""
        try:
            lease = api.lease_create(request, name=data['name'],
                                     **self.terms())
        except (api.LeaseServiceError, api.LeaseNotFound) as exc:
            self.api_error(str(exc))
            return False
        messages.success(request, _('Requested lease: %s') % data['name'])
        return lease


class QuoteForm(CreateLeaseForm):
    """Terms of a possible lease, which needs no name."""

    name = forms.CharField(required=False)


def flavor_choices(request: typing.Any) -> Choices:
    """Return the flavors of secondaries that the project can use."""
    found = [one for one in nova.flavor_list(request, get_extras=True)
             if str(one.extra_specs.get(vocabulary.MARKER)).lower() == 'true']
    return [(one.name, _('%(name)s: %(vcpus)s vCPU, %(ram)s MiB memory, '
                         '%(disk)s GiB disk') % {
                             'name': one.name, 'vcpus': one.vcpus,
                             'ram': one.ram, 'disk': one.disk})
            for one in sorted(found, key=lambda one: (one.ram, one.name))]


def image_choices(request: typing.Any) -> Choices:
    """Return the active images that servers can boot from."""
    found = glance.image_list_detailed(request, filters={
        'status': 'active'})[0]
    return sorted(
        ((one.id, one.name or one.id) for one in found
         if one.container_format not in ('aki', 'ari')),
        key=lambda one: one[1].lower())


def network_choices(request: typing.Any) -> Choices:
    """Return the networks that the project can use."""
    return [(one.id, one.name or one.id) for one in (
        neutron.network_list_for_tenant(request, request.user.project_id))]


def key_choices(request: typing.Any) -> Choices:
    """Return the user's key pairs."""
    return [(one.name, one.name) for one in nova.keypair_list(request)]
