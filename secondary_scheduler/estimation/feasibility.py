# SPDX-License-Identifier: Apache-2.0

"""Feasibility estimator: use of a host at a future time.

By Boettger 2012, section 4.4.1, eq. 4.2, the use of a resource has four
parts: that of the primary, of running instances, of instances that will have
arrived, and the overhead of ongoing operations.  It is an upper estimate with
these assumptions:

* the mean use of the last intervals persists,
* an instance of which no use is known uses a default,
* an instance stays in its old state until the operation on it has ended.

The estimate of an instance does not depend on the question: it is the same
for its departure, for its arrival elsewhere, and for its return.
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

#: Returns the capacity of a host for a measured resource, None if it is not
#: known.  The host None stands for the one on which the use of an instance
#: without a host was measured.
Capacity = Callable[[str | None, str], float | None]


class TimedOperation(typing.NamedTuple):
    """An operation with its times, in seconds from now.

    ``source`` is the host that an instance leaves, ``target`` the one it will
    run on (for a resume the only one).  An ongoing operation begins at 0.
    """

    kind: str
    instance: str
    source: str | None
    target: str | None
    start_s: float = 0.0
    end_s: float = 0.0

    def departs(self, host: str) -> bool:
        """Return whether its instance leaves the host."""
        return (self.kind in DEPARTURES and self.source == host
                and self.target != host)


@dataclasses.dataclass(frozen=True)
class GuestLoad:
    """Load of one instance.

    ``usage`` is by resource in its unit.  Measured use is the mean of the
    last intervals in which the instance ran; missing resources are unknown.
    ``host`` is the one it runs on now, None if it does not run.
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
    """Use of hosts by operations themselves, in percent of a host.

    The defaults are the values of single operations on an idle cluster, taken
    as maxima (Boettger 2012, Table 4.2).

    :param leaving: by kind and resource, on the host that an instance leaves;
        missing values are 0
    :param arriving: the same on the host where it arrives
    :param newcomer: use of an instance of which none is known, and least use
        of one that has just booted
    :param limits_newcomers: an instance that has just begun to run uses at
        most ``newcomer``, as the thesis assumes, unless it comes from a host
        of another size, where a share was another amount
    :param lingers: an operation still counts at the instant of its end, at
        which its instance already counts as well (footnote 34 of the thesis:
        ``start <= t <= end``)
    """

    leaving: Mapping[str, Mapping[str, float]] = dataclasses.field(
        default_factory=_leaving)
    arriving: Mapping[str, Mapping[str, float]] = dataclasses.field(
        default_factory=_arriving)
    newcomer: float = 20.0
    limits_newcomers: bool = False
    lingers: bool = False

    def of_part(self, part: float) -> 'Overheads':
        """Return the same in percent of an item.

        ``part`` is the fraction of the item that one host makes up.
        """
        def parts(table: Mapping[str, Mapping[str, float]]
                  ) -> Mapping[str, Mapping[str, float]]:
            return {kind: {resource: part * use for resource, use
                           in uses.items()} for kind, uses in table.items()}

        return dataclasses.replace(
            self, leaving=parts(self.leaving), arriving=parts(self.arriving),
            newcomer=part * self.newcomer, limits_newcomers=False)

    def ongoing(self, work: TimedOperation, at_s: float) -> bool:
        """Return whether an operation uses its hosts at a time."""
        return work.start_s <= at_s < work.end_s or (
            self.lingers and at_s == work.end_s)

    def on(self, host: str, work: TimedOperation, resource: str) -> float:
        """Return the use of a host by an ongoing operation."""
        if work.target == host:
            return self.arriving.get(work.kind, {}).get(resource, 0.0)
        return self.leaving.get(work.kind, {}).get(resource, 0.0)


def percentages(_host: str | None, _resource: str) -> float:
    """Return the capacity if the use of guests is in percent."""
    return units.WHOLE


class Estimator:
    """Predicts the use of any host at any time.

    A prediction costs a pass over the instances of one host and the given
    operations.

    :param primaries: use by primaries, by host and resource in percent;
        missing use counts as a full host
    :param guests: loads of instances by UUID
    :param running: UUIDs of the guests on each host; None: derived from
        ``guests``
    :param capacity: returns the amount that is 100 % of a host
    :param least: least use of a guest that is counted, by resource in percent
    """

    def __init__(self, primaries: Mapping[str, Mapping[str, float]],
                 guests: Mapping[str, GuestLoad],
                 overheads: Overheads | None = None,
                 running: Mapping[str, Sequence[str]] | None = None,
                 capacity: Capacity = percentages,
                 least: Mapping[str, float] = types.MappingProxyType({})
                 ) -> None:
        self.primaries = primaries
        self.guests = guests
        self.overheads = overheads or Overheads()
        self.least = least
        self._running = _by_host(guests) if running is None else running
        self._capacity = capacity

    def use(self, uuid: str, resource: str, host: str) -> float:
        """Return the estimated use of a host by a guest.

        It is in percent, or in the unit of a static resource.  Unknown use
        counts as that of a newcomer.
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

        For a static resource it is the sum of the amounts of its instances,
        in the resource's unit.  ``only`` restricts the sum to some instances
        (the partial check; see reference/errata, Boettger, order of the
        search).
        """
        demand = self.demand(resource, host, at_s, works, only)
        return demand if resource in STATIC else min(100.0, demand)

    def demand(self, resource: str, host: str, at_s: float,
               works: Iterable[TimedOperation] = (),
               only: Collection[str] | None = None) -> float:
        """Return the same without the upper bound of 100 %."""
        works = [work for work in works if host in (work.source, work.target)]
        use = sum(self._uses(resource, host, at_s, works, only))
        if resource in STATIC:
            return use
        use += self.primaries[host].get(resource, 100.0)
        return use + self._overhead(resource, host, at_s, works)

    def bound(
        self, resource: str, host: str, works: Iterable[TimedOperation] = ()
    ) -> float:
        """Return an upper bound on the demand at any time.

        It assumes that no instance leaves, all arrive, and all operations are
        ongoing.
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
        """Return whether a policy will hold.

        It holds whatever the primary uses if no secondary contributes and no
        operation is ongoing (Boettger 2012, section 4.3.5).
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
        """Return the uses of the instances that will be on the host."""
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
        """Return the use of a host by an instance that has arrived."""
        known = self.use(work.instance, resource, host)
        if resource in UNTHROTTLED:
            return known
        newcomer, boots = self.overheads.newcomer, work.kind == 'start'
        if self.overheads.limits_newcomers and units.are_alike(*(
                self._capacity(one, resource)
                for one in (work.source, host))):
            return newcomer if boots else min(known, newcomer)
        # Former use of a stopped instance does not predict its next boot.
        return max(known, newcomer) if boots else known

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
