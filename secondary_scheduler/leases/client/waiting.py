# SPDX-License-Identifier: Apache-2.0

"""Wait for a lease, and report its events meanwhile."""

import collections
from collections.abc import Callable, Iterator
import time
import typing

from keystoneauth1 import exceptions

from secondary_scheduler.leases.client import client
from secondary_scheduler.model.lease_states import FINAL, LeaseState

#: Seconds between two requests, at first and at last.
_FIRST_S, _LAST_S = 1.0, 5.0


class WaitError(Exception):
    """The lease has ended otherwise, or the timeout is over."""


def wait_for_lease(leases: client.Client, lease: str, timeout: float | None,
                   report: Callable[[str], object]) -> client.Json:
    """Wait until all servers of a lease run; return the lease.

    A lease in the state "done" is returned as well.

    :param timeout: seconds; None is unlimited.
    :param report: called with a line for each event and for each warning.
    :raises WaitError: if the lease ends otherwise, or at the timeout.
    """
    until = None if timeout is None else time.monotonic() + timeout
    news, pause = _EventLines(leases, lease), _FIRST_S
    while True:
        found = None
        try:
            found = leases.get(lease)
            for line in news.new_lines():
                report(line)
        except (exceptions.ConnectFailure, client.LeaseError) as exc:
            if getattr(exc, 'status_code', 503) < 500:
                raise
            for line in news.unless_repeated(
                    f'The lease service does not answer: {exc}'):
                report(line)
        if found is not None and _runs(found):
            return found
        if until is not None and time.monotonic() + pause > until:
            state = (f'lease {lease} is {found["state"]}; it goes on' if found
                     else f'the lease service does not show lease {lease}')
            raise WaitError(
                f'After {timeout:g} s {state}. '
                f'"openstack secondary lease wait {lease}" waits again.')
        time.sleep(pause)
        pause = min(1.5 * pause, _LAST_S)


def _runs(lease: client.Json) -> bool:
    """Return whether all servers of a lease run, or have run.

    :raises WaitError: if the lease has ended otherwise.
    """
    if lease['state'] in (LeaseState.ACTIVE, LeaseState.DONE):
        return True
    if lease['state'] in FINAL:
        raise WaitError(
            f'Lease {lease["name"] or lease["id"]} is {lease["state"]}'
            + (f': {lease["reason"]}' if lease['reason'] else '.'))
    return False


class _EventLines:
    """Events and warnings that are not reported yet."""

    def __init__(self, leases: client.Client, lease: str) -> None:
        self._leases = leases
        self._lease = lease
        self._reported: collections.Counter[typing.Any] = (
            collections.Counter())
        self._last = ''

    def new_lines(self) -> Iterator[str]:
        """Yield a line for each new event, and a warning if there is one."""
        now: collections.Counter[typing.Any] = collections.Counter()
        for one in self._leases.events(self._lease):
            # Service and engine have different clocks, so a new event need
            # not be the last one.
            line = event_line(one)
            now[line] += 1
            if now[line] > self._reported[line]:
                yield line
        self._reported = now
        yield from self.unless_repeated(self._leases.warning)

    def unless_repeated(self, text: str) -> Iterator[str]:
        """Yield a text unless it is empty or equals the last one."""
        if text and text != self._last:
            yield text
        self._last = text


def event_line(event: client.Json) -> str:
    """Return an event as a line of text."""
    kind = '' if event['kind'] == event['state'] else event['kind']
    return ' '.join(filter(None, (event['time'], f'{event["state"]:<10}',
                                  kind, event['text']))).rstrip()
