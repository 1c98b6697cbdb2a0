# SPDX-License-Identifier: Apache-2.0

"""Served time and charge of each project."""

import datetime

from django import forms
from django.utils.translation import gettext_lazy as _
from horizon import messages, views

from secondary_dashboard import api, formats, projects
from secondary_scheduler.reading import times
from secondary_scheduler.reading.values import InputError

_DAY = datetime.timedelta(days=1)


class IntervalForm(forms.Form):
    """First and last day of an account; both are optional."""

    first = forms.DateField(label=_('First Day (UTC)'), required=False,
                            widget=forms.DateInput(
                                format='%Y-%m-%d', attrs={
                                    'type': 'date',
                                    'class': 'form-control'}))
    last = forms.DateField(label=_('Last Day (UTC)'), required=False,
                           widget=forms.DateInput(
                               format='%Y-%m-%d', attrs={
                                   'type': 'date',
                                   'class': 'form-control'}))

    def clean(self):
        """Require that the days are in their order, and within bounds."""
        data = super().clean()
        first, last = data.get('first'), data.get('last')
        for name, day in (('first', first), ('last', last)):
            try:
                # Each day has a next one, which may be the end.
                if day:
                    times.check_day(day)
                    times.check_day(day + _DAY)
            except InputError:
                self.add_error(name, _('Choose a day from 2000 to 2099.'))
        if first and last and last < first:
            self.add_error('last', _('The last day is before the first.'))
        return data

    def interval(self):
        """Return the interval as the service takes it; its end is exclusive.
        """
        found = {}
        if self.cleaned_data['first']:
            found['begin'] = self.cleaned_data['first'].isoformat()
        if self.cleaned_data['last']:
            found['end'] = (self.cleaned_data['last'] + _DAY).isoformat()
        return found


class AccountingView(views.HorizonTemplateView):
    """Account of all projects in an interval."""

    template_name = 'secondary_dashboard/accounting.html'
    page_title = _('Accounting')

    def get_context_data(self, **kwargs):
        """Add the account; by default that of this month."""
        context = super().get_context_data(**kwargs)
        form = IntervalForm(self.request.GET)
        context['form'] = form
        if not form.is_valid():
            return context
        try:
            found = api.accounting(self.request, **form.interval())
        except (api.LeaseServiceError, api.LeaseNotFound) as exc:
            messages.error(self.request, str(exc))
            return {**context, 'unavailable': str(exc)}
        names = (projects.read_names(self.request) if found['projects']
                 else {})
        context['account'] = {
            **found, 'last': _day_before(found['end']),
            'projects': [{
                **one, 'name': names.get(one['project_id'],
                                         one['project_id']),
                'served_text': formats.format_duration(one['served']),
                'node_hours': formats.format_number(
                    one['node_seconds'] / 3600, 3),
                'charge_text': formats.format_number(one['charge'])}
                for one in found['projects']]}
        return context


def _day_before(day):
    return (datetime.date.fromisoformat(day) - _DAY).isoformat()
