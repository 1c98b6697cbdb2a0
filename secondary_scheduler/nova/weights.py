# SPDX-License-Identifier: Apache-2.0

"""Weighers of hosts without their secondaries, and two for secondaries.

In nova.conf::

    [filter_scheduler]
    weight_classes = secondary_scheduler.nova.weights.all_weighers

Nova's CPU, RAM, disk, I/O, instance and build-failure weighers are replaced by
subclasses that subtract the secondaries' part of a host's numbers
(``secondary_usage``).  The order of Nova's weighers is kept, so that sums of
floats are the same as without this package.
"""

import abc
from collections.abc import Iterable, Sequence
import operator
import threading
import typing

from nova.scheduler import utils, weights
from nova.scheduler.weights import (
    compute,
    cpu,
    disk,
    io_ops,
    num_instances,
    ram,
)

from secondary_scheduler.model.arrivals import fill_unknown
from secondary_scheduler.model.reports import HostReport
from secondary_scheduler.nova import filters, report_books, request
from secondary_scheduler.nova.log_limiter import LIMITED_LOG
from secondary_scheduler.nova.secondary_usage import HostUsage, SecondaryUsage
from secondary_scheduler.nova.settings import CONF

NAMESPACE = 'secondary_scheduler.weighers'

#: State of a host, its report if there is a fresh one, and the number of
#: secondaries that Nova knows on it.
_Candidate = tuple[typing.Any, HostReport | None, int]

#: Usage of a host with an unknown secondaries' part.
_NOTHING = HostUsage()


class _Decision(threading.local):
    """Usage that the six weighers of a thread share in one decision.

    ``columns`` are a ``HostUsage`` of sequences in the order of the hosts.
    Nova creates the weighed objects once for each decision, and passes them to
    each weigher; ``first`` identifies the decision.
    """

    first: typing.Any = None
    columns: typing.Any = None


_LAST = _Decision()

USAGE = SecondaryUsage(lambda: float(CONF.secondary_scheduler.lookup_budget))


def all_weighers() -> list[type]:
    """Return the weighers for ``weight_classes``."""
    return ([REPLACED.get(one, one) for one in weights.all_weighers()]
            + filters.load_plugins(NAMESPACE))


class _WithoutSecondaries(weights.BaseHostWeigher):
    """Subtracts secondaries from the weights of Nova's own weigher.

    Nova's own weights stay if the secondaries' part is unknown, and after an
    exception of ours.  Nova's weigher runs first, unchanged.  Lists are added
    to lists, since a scheduler weighs thousands of hosts.
    """

    #: The column that this weigher uses.
    amount: typing.ClassVar['operator.attrgetter[Sequence[int]]']
    #: The counter of a HostState that it weighs; None if it weighs free
    #: resources.
    counted: typing.ClassVar['operator.attrgetter[int] | None'] = None

    def weigh_objects(self, weighed_obj_list: Sequence[typing.Any],
                      weight_properties: typing.Any) -> typing.Any:
        """Weigh the hosts without their secondaries."""
        stock = super().weigh_objects(weighed_obj_list, weight_properties)
        try:
            return self._corrected(stock, weighed_obj_list, weight_properties)
        except Exception:
            LIMITED_LOG.exception(
                'weigher', 'Hosts are weighed with their secondary instances.')
            return stock

    def _corrected(self, stock: Sequence[float],
                   weighed: Sequence[typing.Any], properties: typing.Any
                   ) -> Sequence[float]:
        amounts = self.amount(_find_uses(weighed))
        if not any(amounts):
            return stock
        if self.minval is not None and self.minval in stock:
            # Nova has raised these to its minimum; weigh them again.
            stock = [weight if weight != self.minval
                     else self._weigh_object(one.obj, properties)
                     for weight, one in zip(stock, weighed, strict=True)]
        if self.counted is not None:
            amounts = [-min(amount, self.counted(one.obj))
                       for one, amount in zip(weighed, amounts, strict=True)]
        corrected = list(map(operator.add, stock, amounts))
        if self.minval is not None and min(corrected) < self.minval:
            return [max(weight, self.minval) for weight in corrected]
        return corrected


def _find_uses(weighed: Sequence[typing.Any]) -> typing.Any:
    """Return the secondaries' part of all hosts; zero where unknown."""
    if _LAST.first is not weighed[0]:
        # Every request passes here, so a process that never forks starts its
        # listener with its first request.
        report_books.book()
        columns: Iterable[typing.Any] = zip(*(
            use or _NOTHING for use in USAGE.uses(
                [one.obj for one in weighed])), strict=True)
        _LAST.columns = HostUsage(*columns)
        _LAST.first = weighed[0]
    return _LAST.columns


class CPUWeigher(_WithoutSecondaries, cpu.CPUWeigher):
    """Weighs free vCPUs, without secondaries."""

    amount = operator.attrgetter('vcpus')


class RAMWeigher(_WithoutSecondaries, ram.RAMWeigher):
    """Weighs free memory (MiB), without secondaries."""

    amount = operator.attrgetter('memory_mb')


class DiskWeigher(_WithoutSecondaries, disk.DiskWeigher):
    """Weighs free disk (MiB), without secondaries."""

    amount = operator.attrgetter('disk_mb')


class IoOpsWeigher(_WithoutSecondaries, io_ops.IoOpsWeigher):
    """Weighs I/O operations of primaries."""

    amount = operator.attrgetter('io_ops')
    counted = operator.attrgetter('num_io_ops')


class NumInstancesWeigher(_WithoutSecondaries,
                          num_instances.NumInstancesWeigher):
    """Weighs the number of primaries."""

    amount = operator.attrgetter('instances')
    counted = operator.attrgetter('num_instances')


class BuildFailureWeigher(_WithoutSecondaries, compute.BuildFailureWeigher):
    """Weighs failed builds of primaries.

    Otherwise failing secondaries of one tenant would keep primaries off a
    host, with Nova's largest multiplier.
    """

    amount = operator.attrgetter('failed_builds')
    counted = operator.attrgetter('failed_builds')


REPLACED: dict[type, type] = {
    cpu.CPUWeigher: CPUWeigher,
    ram.RAMWeigher: RAMWeigher,
    disk.DiskWeigher: DiskWeigher,
    io_ops.IoOpsWeigher: IoOpsWeigher,
    num_instances.NumInstancesWeigher: NumInstancesWeigher,
    compute.BuildFailureWeigher: BuildFailureWeigher,
}


class _SecondaryWeigher(weights.BaseHostWeigher):
    """Weighs hosts for secondaries, and has no effect on primaries."""

    #: Name of the option, and of the metadata of aggregates.
    multiplier: typing.ClassVar[str]

    def weight_multiplier(self, host_state: typing.Any) -> float:
        """Return the multiplier of the aggregate, or of the option."""
        try:
            return float(utils.get_weight_multiplier(
                host_state, self.multiplier,
                CONF.secondary_scheduler[self.multiplier]))
        except Exception:
            LIMITED_LOG.exception(
                'multiplier', f'{type(self).__name__} is switched off.')
            return 0.0

    def weigh_objects(self, weighed_obj_list: Sequence[typing.Any],
                      weight_properties: typing.Any) -> list[float]:
        """Return the weights of hosts for a secondary, for others nothing."""
        # An empty list: Nova skips it (nova/weights.py normalize), while zeros
        # would be normalised like other weights.
        nothing: list[float] = []
        try:
            if not request.is_secondary(weight_properties):
                return nothing
            reports = report_books.book().hosts()
            return self._weigh(
                [(one.obj, reports.get(one.obj.host), known)
                 for one, known in zip(
                     weighed_obj_list, _find_uses(weighed_obj_list).instances,
                     strict=True)], weight_properties)
        except Exception:
            LIMITED_LOG.exception(
                type(self).__name__,
                f'{type(self).__name__} weighs no host.')
            return nothing

    @abc.abstractmethod
    def _weigh(self, hosts: Sequence[_Candidate], spec: typing.Any
               ) -> list[float]:
        """Return the weights of hosts; nothing to have no effect."""

    def _weigh_object(self, host_state: typing.Any,
                      weight_properties: typing.Any) -> float:
        return next(iter(self._weigh(
            [(host_state, report_books.book().get(host_state.host), 0)],
            weight_properties)), 0.0)


class SecondaryHeadroomWeigher(_SecondaryWeigher):
    """Prefers the host on which a new secondary gets the most CPU."""

    multiplier = 'headroom_weight_multiplier'

    def _weigh(self, hosts: Sequence[_Candidate], spec: typing.Any
               ) -> list[float]:
        """Return the share of a new secondary on each host, in CPUs."""
        return [_share(*one) for one in hosts]


class SecondaryInterferenceWeigher(_SecondaryWeigher):
    """Prefers the host where a new secondary suffers and does the least harm.

    It uses the predictions of agents for the workload class of the instance.
    A host without a prediction has the mean of the others.  If there is none
    at all, or if the instance has no class, the weigher has no effect.
    """

    multiplier = 'interference_weight_multiplier'
    # Weights are parts of performance.  Without these bounds Nova would
    # stretch the smallest difference over the whole range.
    minval = 0.0
    maxval = 1.0

    def _weigh(self, hosts: Sequence[_Candidate], spec: typing.Any
               ) -> list[float]:
        """Return the performance that is left with a new secondary, 0 to 1."""
        name = request.workload_class(spec)
        return fill_unknown([_performance(*one, name) for one in hosts])


def _performance(host_state: typing.Any, report: HostReport | None,
                 known: int, name: str | None) -> float | None:
    """Return the predicted performance with a new secondary of a class.

    Secondaries that the report has not counted each count like the new one, so
    that many requests in a second do not all go to one host.
    """
    arrival = report.arrivals.get(name) if report and name else None
    if report is None or arrival is None:
        return None
    return arrival.performance ** (
        1 + _newcomers(host_state, report, known))


def _share(host_state: typing.Any, report: HostReport | None,
           known: int = 0) -> float:
    """Return the CPUs that one more secondary would get below the policy.

    The room is divided by the number of secondaries.
    """
    thresholds = [p.threshold for p in report.policies
                  if p.resource == 'cpu'] if report else []
    if report is None or report.cpu_primary is None or not thresholds:
        return 0.0
    room = max(0.0, min(thresholds) - report.cpu_primary)
    return (report.cpus * room / 100 / (
        len(report.instances) + _newcomers(host_state, report, known) + 1))


def _newcomers(host_state: typing.Any, report: HostReport, known: int) -> int:
    """Return the number of secondaries that a report has not counted.

    They are

    * instances that the present request has put on the host,
    * instances that Nova knows: the agent reports an instance only once it
      runs, seconds after it was scheduled, and a suspended one will return.
    """
    consumed: int = host_state.num_instances - int(
        host_state.stats.get('num_instances', 0))
    return max(0, known - len(report.instances)) + max(0, consumed)
