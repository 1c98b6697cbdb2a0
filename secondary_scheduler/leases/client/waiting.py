"""Wait for a lease, and tell meanwhile what happens to it."""

import collections
from collections.abc import Callable, Iterator
import time
import typing

from keystoneauth1 import exceptions

from secondary_scheduler.leases.client import client
from secondary_scheduler.model.lease_states import FINAL, LeaseState

#: Seconds between two looks, at first and at last.
_FIRST_S, _LAST_S = 1.0, 5.0


class Failed(Exception):
    """The servers do not all run, and will not; or not in time."""


def wait(leases: client.Client, lease: str, timeout: float | None,
         tell: Callable[[str], object]) -> client.Json:
    """Return a lease as soon as all of its servers run.

    One that is done already has had its time, and is returned as well.

    :param timeout: seconds after which to give up; None is never.
    :param tell: called with a line for each event, and for what keeps the
        lease from being looked at.
    :raises Failed: if it ends in another way, or the time is over.
    """
    until = None if timeout is None else time.monotonic() + timeout
    news, pause = _News(leases, lease), _FIRST_S
    while True:
        found = None
        try:
            found = leases.get(lease)
            for line in news.lines():
                tell(line)
        except (exceptions.ConnectFailure, client.LeaseError) as exc:
            if getattr(exc, 'status_code', 503) < 500:
                raise
            for line in news.fresh(f'The lease service does not answer: '
                                   f'{exc}'):
                tell(line)
        if found is not None and _over(found):
            return found
        if until is not None and time.monotonic() + pause > until:
            raise Failed(
                f'After {timeout:g} s lease {lease} is '
                f'{found["state"] if found else "not known"}; it goes on. '
                f'"openstack secondary lease wait {lease}" waits again.')
        time.sleep(pause)
        pause = min(1.5 * pause, _LAST_S)


def _over(lease: client.Json) -> bool:
    if lease['state'] in (LeaseState.ACTIVE, LeaseState.DONE):
        return True
    if lease['state'] in FINAL:
        raise Failed(f'Lease {lease["name"] or lease["id"]} is '
                     f'{lease["state"]}'
                     + (f': {lease["reason"]}' if lease['reason'] else '.'))
    return False


class _News:
    """What has not been told yet."""

    def __init__(self, leases: client.Client, lease: str) -> None:
        self._leases = leases
        self._lease = lease
        self._told: collections.Counter[typing.Any] = collections.Counter()
        self._last = ''

    def lines(self) -> Iterator[str]:
        """Yield a line for each new event, and a warning if there is one."""
        now: collections.Counter[typing.Any] = collections.Counter()
        for one in self._leases.events(self._lease):
            # Two clocks write events: a new one may not be the last.
            line = event_line(one)
            now[line] += 1
            if now[line] > self._told[line]:
                yield line
        self._told = now
        yield from self.fresh(self._leases.warning)

    def fresh(self, text: str) -> Iterator[str]:
        """Yield a text unless it was the last one."""
        if text and text != self._last:
            yield text
        self._last = text


def event_line(event: client.Json) -> str:
    """Return an event as a line of text."""
    kind = '' if event['kind'] == event['state'] else event['kind']
    return ' '.join(filter(None, (event['time'], f'{event["state"]:<10}',
                                  kind, event['text']))).rstrip()
