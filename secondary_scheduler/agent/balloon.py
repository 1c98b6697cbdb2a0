# SPDX-License-Identifier: Apache-2.0

"""Memory balloons of secondaries, filled while memory is short."""

from collections.abc import Callable, Iterable
import typing

from oslo_log import log as logging

from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.libvirt_connection import close_connection

LOG = logging.getLogger(__name__)

_AFFECT_LIVE = 1    # libvirt's VIR_DOMAIN_AFFECT_LIVE


class Balloon:
    """Takes memory that secondaries do not need, through their balloons.

    Calls of libvirt may hang, so it runs on a thread of its own.  A guest
    without a balloon driver keeps its memory.

    The agent owns all balloons, unless ``least`` is 100.  A guest that is
    found smaller than its memory, while ``pressing`` is false, gets all of
    its memory back.  It may have moved here, or the agent was restarted.

    :param pressing: returns whether memory is short.
    :param least: smallest size of a guest, in percent of its memory.
    """

    def __init__(self, connect: Callable[[], typing.Any],
                 guests: Callable[[], Iterable[Secondary]],
                 pressing: Callable[[], bool], least: float) -> None:
        self._connect = connect
        self._guests = guests
        self._pressing = pressing
        self._least = least
        self._connection: typing.Any = None
        self._failure = ''
        #: Size last set for each process, in percent of its memory.
        self._sizes: dict[tuple[str, int, int], float] = {}

    def step(self) -> None:
        """Set the wanted size of each guest that does not have it yet."""
        if self._least >= 100.0:
            return
        wanted = self._least if self._pressing() else 100.0
        guests = {(guest.uuid, guest.pid, guest.started): guest
                  for guest in self._guests()}
        self._sizes = {key: size for key, size in self._sizes.items()
                       if key in guests}
        for key in guests.keys() - {key for key, size in self._sizes.items()
                                    if size == wanted}:
            try:
                self._set_size(guests[key].uuid, wanted)
                self._sizes[key] = wanted
                self._failure = ''
            except Exception as exc:
                if self._failure != str(exc):
                    LOG.warning('Cannot set the balloon of %(uuid)s: '
                                '%(reason)s', {'uuid': guests[key].uuid,
                                               'reason': exc})
                self._failure = str(exc)
                connection, self._connection = self._connection, None
                close_connection(connection)

    def _set_size(self, uuid: str, percent: float) -> None:
        """Set the size of a guest, in percent of its memory.

        :raises Exception: any error of libvirt.
        """
        if self._connection is None:
            self._connection = self._connect()
        domain = self._connection.lookupByUUIDString(uuid)
        most, now = domain.info()[1:3]      # KiB
        target = int(most * percent / 100)
        if now > target or (now < target and percent == 100.0):
            domain.setMemoryFlags(target, _AFFECT_LIVE)
