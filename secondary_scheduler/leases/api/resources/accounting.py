# SPDX-License-Identifier: Apache-2.0

"""GET /accounting: served time and charge by project."""

from collections.abc import Mapping
import dataclasses
import datetime
import typing

from secondary_scheduler.leases.api import (
    errors,
    health,
    microversions,
    policies,
    record_schemas,
)
from secondary_scheduler.leases.api.db import accounting
from secondary_scheduler.leases.api.resources import leases
from secondary_scheduler.leases.api.routing import Call, Reply, Route
from secondary_scheduler.reading import times
from secondary_scheduler.reading.values import InputError


def show_accounting(call: Call) -> Reply:
    """Show the account of a project, or those of all projects."""
    project = leases.scope(call)
    today = accounting.day_of(call.service.store.now)
    begin = _day(call.query, 'begin', today.replace(day=1))
    end = _day(call.query, 'end', today + datetime.timedelta(days=1))
    if end <= begin:
        raise errors.invalid(
            f'begin is {begin}, and end is {end}: the interval has no day, '
            'since "end" is the day after the last one. Choose a later end.')
    database = call.service.database
    first = accounting.first_day(database)
    return Reply(200, {
        'begin': str(begin), 'end': str(end),
        'projects': [dataclasses.asdict(one)
                     for one in accounting.read_accounts(
                         database, begin, end, project)],
        'since': None if first is None else str(first),
        'engine': health.show_engine(call.service)})


def _day(query: Mapping[str, typing.Any], name: str, default: datetime.date
         ) -> datetime.date:
    if name not in query:
        return default
    try:
        return times.parse_day(query[name])
    except InputError as exc:
        raise errors.invalid(f'{name} is {query[name]}: {exc}.') from exc


ROUTES = (
    Route('GET', '/accounting', show_accounting, (
        'Show served time and charge of leases by project, in an interval of '
        'days.'), 200, 'AccountingAnswer', policies.ACCOUNTING,
        query=record_schemas.ACCOUNTING_QUERY, since=microversions.RECORDS),
)
