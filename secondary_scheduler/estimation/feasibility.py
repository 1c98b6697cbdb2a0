"""The feasibility estimator: what a host will bear at a future time.

Boettger 3.4, Eq. 4.2: a host's use of a resource is that of its primary, of
the instances that run there, of those that will have come, and the overhead
of the operations that go on at that time.  It is an upper estimate: use is
the mean of the last intervals and is assumed to persist, whoever is new takes
a default at most, and an instance stays in its old state until the operation
on it has ended.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
import dataclasses
import types
import typing

from secondary_scheduler.model import units
from secondary_scheduler.model.resources import STATIC, UNTHROTTLED

#: Kinds of operation that take an instance off the host it is on.
DEPARTURES = frozenset({'migrate', 'suspend', 'stop', 'shelve'})

#: What all of a measured resource is on a host, None if it is not known; asked
#: about None, where the use of an instance without a host was measured.
Capacity = Callable[[str | None, str], float | None]


class TimedOperation(typing.NamedTuple):
    """An operation with its times, in seconds from now.

    ``source`` is the host an instance leaves, ``target`` the one it will run
    on (for a resume the only one); one that is under way has begun at 0.
    """

    kind: str
    instance: str
    source: str | None
    target: str | None
    start_s: float = 0.0
    end_s: float = 0.0

    def departs(self, host: str) -> bool:
        """Tell whether the operation takes its instance off the host."""
        return (self.kind in DEPARTURES and self.source == host
                and self.target != host)


@dataclasses.dataclass(frozen=True)
class GuestLoad:
    """One instance, and what it uses by resource.

    All in the resources' units, measured ones as the mean of the last
    intervals (before it went down, if it is down); what is missing is
    unknown.  ``host`` is where it runs now, None if it does not.
    """

    host: str | None
    usage: Mapping[str, float]


def _leaving() -> Mapping[str, Mapping[str, float]]:
    return {'suspend': {'cpu': 2, 'net_out': 31},
            'shelve': {'cpu': 2, 'net_out': 31},
            'migrate': {'cpu': 30, 'net_out': 31}}


def _arriving() -> Mapping[str, Mapping[str, float]]:
    return {'migrate': {'cpu': 12, 'net_in': 30},
            'resume': {'cpu': 15, 'net_in': 25},
            'start': {'cpu': 20, 'net_in': 20},
            'unshelve': {'cpu': 20, 'net_in': 20}}


@dataclasses.dataclass(frozen=True)
class Overheads:
    """What operations themselves use, in percent of a host.

    By kind and resource, on the host that an instance leaves and on the one
    where it arrives; what is missing is 0 (Boettger Table 4.2: single
    operations on an idle cluster, taken as maxima).  ``newcomer`` is the
    most that an instance uses that has just begun to run.  With ``lingers``
    an operation counts up to the instant of its end, at which its instance
    already counts as well: the thesis calls it ongoing for
    ``start <= t <= end`` (footnote 34).
    """

    leaving: Mapping[str, Mapping[str, float]] = dataclasses.field(
        default_factory=_leaving)
    arriving: Mapping[str, Mapping[str, float]] = dataclasses.field(
        default_factory=_arriving)
    newcomer: float = 20.0
    lingers: bool = False

    def of_part(self, part: float) -> 'Overheads':
        """Return what the same is of something that is larger than a host."""
        def parts(table: Mapping[str, Mapping[str, float]]
                  ) -> Mapping[str, Mapping[str, float]]:
            return {kind: {resource: part * use for resource, use
                           in uses.items()} for kind, uses in table.items()}

        return dataclasses.replace(
            self, leaving=parts(self.leaving), arriving=parts(self.arriving),
            newcomer=part * self.newcomer)

    def ongoing(self, work: TimedOperation, at_s: float) -> bool:
        """Tell whether an operation burdens its hosts at a time."""
        return work.start_s <= at_s < work.end_s or (
            self.lingers and at_s == work.end_s)

    def on(self, host: str, work: TimedOperation, resource: str) -> float:
        """Return what an operation uses on a host while it goes on."""
        if work.target == host:
            return self.arriving.get(work.kind, {}).get(resource, 0.0)
        return self.leaving.get(work.kind, {}).get(resource, 0.0)


def percentages(_host: str | None, _resource: str) -> float:
    """Return the capacity of hosts whose guests' use is in percent."""
    return units.WHOLE


class Estimator:
    """Answers for any host and time; all values are given once.

    ``primaries`` is the use of what is no secondary, by host and resource in
    percent; use that is left out counts as a full host.  ``running`` names
    the guests on each host, for who knows them without a look at all.  Where
    newcomers are not ``held``, by an agent, they use what they have used; nor
    are those that come from a host of another size, where a share was another
    amount.  ``capacity`` returns what 100 % of a host is, and of some
    resources a guest counts with ``least`` percent at least.  A question
    costs a pass over the instances of one host and the operations in
    question.
    """

    def __init__(self, primaries: Mapping[str, Mapping[str, float]],
                 guests: Mapping[str, GuestLoad],
                 overheads: Overheads | None = None,
                 running: Mapping[str, Sequence[str]] | None = None,
                 held: bool = True, capacity: Capacity = percentages,
                 least: Mapping[str, float] = types.MappingProxyType({})
                 ) -> None:
        self.primaries = primaries
        self.guests = guests
        self.overheads = overheads or Overheads()
        self.least = least
        self._running = _by_host(guests) if running is None else running
        self._held = held
        self._capacity = capacity

    def use(self, uuid: str, resource: str, host: str) -> float:
        """Return what a guest is thought to use of a host.

        In percent, or the unit of a static resource; as much as a newcomer
        where it is not known.
        """
        amount = self.guests[uuid].usage.get(resource)
        if resource in STATIC:
            return amount or 0.0
        capacity = self._capacity(host, resource)
        if amount is None or capacity is None:
            return self.overheads.newcomer
        return max(units.to_percent(amount, capacity),
                   self.least.get(resource, 0.0))

    def predict(self, resource: str, host: str, at_s: float,
                works: Iterable[TimedOperation] = (),
                only: Collection[str] | None = None) -> float:
        """Return the use of a resource, in percent of the host up to 100.

        For a static resource it is the sum of what its instances hold, in
        the resource's unit.  ``only`` leaves other instances out of account
        (the partial check of X1).
        """
        demand = self.demand(resource, host, at_s, works, only)
        return demand if resource in STATIC else min(100.0, demand)

    def demand(self, resource: str, host: str, at_s: float,
               works: Iterable[TimedOperation] = (),
               only: Collection[str] | None = None) -> float:
        """Return the same, also where it is more than a host has."""
        works = [work for work in works if host in (work.source, work.target)]
        use = sum(self._uses(resource, host, at_s, works, only))
        if resource in STATIC:
            return use
        use += self.primaries[host].get(resource, 100.0)
        return use + self._overhead(resource, host, at_s, works)

    def bound(
        self, resource: str, host: str, works: Iterable[TimedOperation] = ()
    ) -> float:
        """Return what demand does not exceed, whatever ends when.

        That is as if nobody left, all came, and everything went on.
        """
        works = [work for work in works if host in (work.source, work.target)]
        use = sum(self.use(uuid, resource, host)
                  for uuid in self._running[host])
        use += sum(self._arriving(work, resource, host)
                   for work in works if work.target == host)
        if resource in STATIC:
            return use
        return use + self.primaries[host].get(resource, 100.0) + sum(
            self.overheads.on(host, work, resource) for work in works)

    def holds(self, resource: str, threshold: float, host: str, at_s: float,
              works: Iterable[TimedOperation] = (),
              only: Collection[str] | None = None) -> bool:
        """Tell whether a policy will hold.

        It does, whatever the primary uses, where no secondary contributes
        and no operation goes on (R14).
        """
        works = [work for work in works if host in (work.source, work.target)]
        if self.predict(resource, host, at_s, works, only) <= threshold:
            return True
        return resource not in STATIC and not (
            any(self._uses(resource, host, at_s, works, only))
            or any(self.overheads.ongoing(work, at_s) for work in works))

    def _uses(self, resource: str, host: str, at_s: float,
              works: list[TimedOperation], only: Collection[str] | None
              ) -> list[float]:
        """Return the use of each instance that will be on the host."""
        there: dict[str, TimedOperation | None] = dict.fromkeys(
            self._running[host])
        ended = [work for work in works if work.end_s <= at_s]
        for work in sorted(ended, key=lambda work: work.end_s):
            if work.departs(host):
                there.pop(work.instance, None)
            elif work.target == host:
                there.setdefault(work.instance, work)
        return [self.use(uuid, resource, host) if work is None
                else self._arriving(work, resource, host)
                for uuid, work in there.items()
                if only is None or uuid in only]

    def _arriving(self, work: TimedOperation,
                  resource: str, host: str) -> float:
        """Return what an instance uses of the host to which it has come."""
        known = self.use(work.instance, resource, host)
        if (resource in UNTHROTTLED or not self._held
                or not units.are_alike(*(self._capacity(one, resource)
                                         for one in (work.source, host)))):
            return known
        # What a stopped instance has used says nothing about its next boot.
        newcomer = self.overheads.newcomer
        return newcomer if work.kind == 'start' else min(known, newcomer)

    def _overhead(self, resource: str, host: str, at_s: float,
                  works: list[TimedOperation]) -> float:
        return sum(self.overheads.on(host, work, resource) for work in works
                   if self.overheads.ongoing(work, at_s))


def _by_host(guests: Mapping[str, GuestLoad]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for uuid, guest in guests.items():
        if guest.host is not None:
            found[guest.host].append(uuid)
    return found
