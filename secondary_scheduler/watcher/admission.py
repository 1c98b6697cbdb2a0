# SPDX-License-Identifier: Apache-2.0

"""Admission of a host as operators see it, with its reason."""

from secondary_scheduler.model.reports import HostReport
from secondary_scheduler.watcher.cloud_snapshot import ComputeHost

OPEN, CLOSED, UNKNOWN = 'open', 'closed', 'unknown'


def find_admission(host: ComputeHost, report: HostReport | None,
                   policies_hash: str | None) -> tuple[str, str]:
    """Return whether a host takes further secondaries, and why not.

    The first reason is the one to act on.  Without a fresh report admission
    is unknown, unless the host was closed on purpose or is down.

    :param report: a fresh report of its agent; None if there is none.
    :param policies_hash: expected policies; None if they are not compared.
    :returns: ``OPEN``, ``CLOSED`` or ``UNKNOWN``, and the reason or ''.
    """
    if host.disabled:
        return CLOSED, ('closed by an operator: "secondary-scheduler host '
                        f'enable {host.name}" opens it')
    if host.switched_off:
        return CLOSED, ('switched off: the CONTINUOUS audit on its scope was '
                        'cancelled or has ended')
    if host.unreachable:
        return UNKNOWN, 'its cell does not answer Nova'
    if not host.up:
        return CLOSED, 'nova-compute is down or disabled'
    if report is None:
        return UNKNOWN, ('no fresh report of its agent: see the state of '
                         'secondary-agent on the host')
    if policies_hash not in (None, report.policies_hash):
        return CLOSED, ('its agent follows other policies than the decision '
                        'engine')
    if not report.admission:
        return CLOSED, report.reason
    if host.closed:
        return CLOSED, 'Placement has not been told of room for another'
    return OPEN, ''
