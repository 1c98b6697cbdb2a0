# SPDX-License-Identifier: Apache-2.0

"""Holds: capacity of hosts that the lease engine keeps for leases.

Holds travel as a dictionary in an RPC cast, as agents' reports do, so they
are validated when they are read.
"""

from collections.abc import Collection, Mapping
import dataclasses
from typing import Any

from secondary_scheduler.model import vocabulary

VERSION = 1
#: Most hosts in one message, and most leases on one of them.  Further ones
#: get no hold.
MOST_HOSTS, MOST_LEASES = 1000, 50
#: No amount of a resource, no time and no sequence number is larger.
_LARGEST = 1e15
_LONGEST_NAME = 255


@dataclasses.dataclass(frozen=True)
class Hold:
    """A host on which servers of leases are about to run.

    ``room`` is the capacity left beside them, by resource class; ``leases``
    are the UUIDs of these leases.
    """

    room: Mapping[str, int]
    leases: Collection[str]

    def admits(self, need: Mapping[str, int], lease: str | None) -> bool:
        """Return whether a server with these needs may boot on the host."""
        return lease in self.leases or all(
            need.get(name, 0) <= amount for name, amount in self.room.items())


@dataclasses.dataclass(frozen=True)
class Holds:
    """All holds at one instant, by host.

    ``incarnation``, ``seq`` and ``time`` are as in ``reports.HostReport``.
    """

    incarnation: str
    seq: int
    time: float
    hosts: Mapping[str, Hold]

    def to_dict(self) -> dict[str, Any]:
        """Return the holds as a message."""
        return {'version': VERSION, 'incarnation': self.incarnation,
                'seq': self.seq, 'time': self.time,
                'hosts': {name: {'room': dict(one.room),
                                 'leases': sorted(one.leases)}
                          for name, one in self.hosts.items()}}

    @classmethod
    def from_dict(cls, data: object) -> 'Holds':
        """Read a message.

        :raises ValueError: if it is no message of this version
        """
        fields = _parts(data, 'version', 'incarnation', 'seq', 'time',
                        'hosts')
        if fields['version'] != VERSION:
            raise ValueError('unknown version of holds')
        hosts = fields['hosts']
        if type(hosts) is not dict or len(hosts) > MOST_HOSTS:
            raise ValueError(f'no hosts, or more than {MOST_HOSTS}')
        return cls(_text(fields['incarnation']), _number(fields['seq'], int),
                   _number(fields['time'], int, float),
                   {_text(name): _hold(one) for name, one in hosts.items()})


def _hold(data: object) -> Hold:
    fields = _parts(data, 'room', 'leases')
    room = _parts(fields['room'], *vocabulary.RESOURCE_CLASSES)
    leases = fields['leases']
    if type(leases) is not list or len(leases) > MOST_LEASES:
        raise ValueError(f'no leases, or more than {MOST_LEASES}')
    return Hold({name: _number(amount, int) for name, amount in room.items()},
                frozenset(map(_text, leases)))


def _parts(data: object, *names: str) -> dict[str, Any]:
    if type(data) is not dict or data.keys() != set(names):
        raise ValueError(f'not an object with {", ".join(names)}')
    return data


def _text(value: object) -> str:
    if type(value) is not str or not 0 < len(value) <= _LONGEST_NAME:
        raise ValueError('a name is no text, or too long')
    return value


def _number(value: Any, *types: type) -> Any:
    if type(value) not in types or not 0 <= value < _LARGEST:
        raise ValueError('a number is none, or too large')
    return value
