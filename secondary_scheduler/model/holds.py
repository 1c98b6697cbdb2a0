"""What is held for leases: what their engine tells those who admit servers.

It travels as a dictionary in an RPC cast, as agents' reports do, so reading
one back validates it.
"""

from collections.abc import Collection, Mapping
import dataclasses
from typing import Any

from secondary_scheduler.model import vocabulary

VERSION = 1
#: Most hosts in one message, and leases on one of them: what is beyond that
#: is not held.
MOST_HOSTS, MOST_LEASES = 1000, 50
#: No amount of a resource, no time and no sequence number is larger.
_LARGEST = 1e15
_LONGEST_NAME = 255


@dataclasses.dataclass(frozen=True)
class Hold:
    """A host on which servers of leases are about to run.

    ``room`` is what is left beside them, by resource class; ``leases`` are
    the UUIDs of those that are coming.
    """

    room: Mapping[str, int]
    leases: Collection[str]

    def admits(self, need: Mapping[str, int], lease: str | None) -> bool:
        """Tell whether a server that takes so much may come there."""
        return lease in self.leases or all(
            need.get(name, 0) <= amount for name, amount in self.room.items())


@dataclasses.dataclass(frozen=True)
class Holds:
    """All hosts of which something is held, at one instant.

    ``incarnation``, ``seq`` and ``time`` are as in ``reports.HostReport``.
    """

    incarnation: str
    seq: int
    time: float
    hosts: Mapping[str, Hold]

    def to_dict(self) -> dict[str, Any]:
        """Return the form that travels."""
        return {'version': VERSION, 'incarnation': self.incarnation,
                'seq': self.seq, 'time': self.time,
                'hosts': {name: {'room': dict(one.room),
                                 'leases': sorted(one.leases)}
                          for name, one in self.hosts.items()}}

    @classmethod
    def from_dict(cls, data: object) -> 'Holds':
        """Read what came over the bus.

        :raises ValueError: on anything that is nothing of this version.
        """
        fields = _parts(data, 'version', 'incarnation', 'seq', 'time',
                        'hosts')
        if fields['version'] != VERSION:
            raise ValueError('unknown version of what is held')
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
