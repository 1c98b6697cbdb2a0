# SPDX-License-Identifier: Apache-2.0

"""Reader of reports from before predictions, for tests of an upgrade.

With ``available_filters = tests.box.old_reports.all_filters`` in its
configuration, a scheduler imports this module, and from then on rejects each
report with predictions: its field was unknown.
"""

from collections.abc import Mapping
import typing

from secondary_scheduler.model.reports import HostReport

_read = HostReport.from_dict


def _read_old(data: Mapping[str, typing.Any]) -> HostReport:
    if 'arrivals' in data:
        raise ValueError('not a host report: unexpected arrivals')
    return _read(data)


HostReport.from_dict = _read_old


def all_filters() -> list[type]:
    """Return no filter."""
    return []
