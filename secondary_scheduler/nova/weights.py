"""Weighers that do not count secondaries, and one that places them.

In nova.conf::

    [filter_scheduler]
    weight_classes = secondary_scheduler.nova.weights.all_weighers

Nova's CPU, RAM, disk, I/O, instance and build-failure weighers are replaced
by subclasses that take the secondaries' part out of a host's numbers
(``ledger``); the rest of Nova's weighers stays, in Nova's order, so that the
sums of floats are the same as without us.
"""

from collections.abc import Callable, Sequence
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

from secondary_scheduler.model.reports import HostReport
from secondary_scheduler.nova import filters, report_books, request
from secondary_scheduler.nova.log_limiter import COMPLAINTS
from secondary_scheduler.nova.secondary_usage import HostUsage, SecondaryUsage
from secondary_scheduler.nova.settings import CONF

NAMESPACE = 'secondary_scheduler.weighers'

#: The Use of a host whose secondaries are not known.
_NOTHING = HostUsage()


class _Decision(threading.local):
    """What six weighers of a thread ask for, worked out once.

    ``columns`` are a Use of sequences, each in the order of the hosts.  Nova
    hands the same objects, made for one decision, to each weigher; the
    ``first`` tells which decision it is.
    """

    first: typing.Any = None
    columns: typing.Any = None


_LAST = _Decision()

LEDGER = SecondaryUsage(lambda: float(CONF.secondary_scheduler.lookup_budget))


def all_weighers() -> list[type]:
    """Return the weighers for ``weight_classes``."""
    return ([REPLACED.get(one, one) for one in weights.all_weighers()]
            + filters.load_plugins(NAMESPACE))


class _WithoutSecondaries(weights.BaseHostWeigher):
    """Takes secondaries out of what Nova's own weigher says of the hosts.

    Where the secondaries' part is not known, or anything of ours fails,
    Nova's own numbers stand.  Nova's weigher runs first and as it is, and
    lists are added to lists, since a scheduler looks at thousands of hosts.
    """

    #: What of the columns concerns this weigher.
    amount: typing.ClassVar[Callable[[typing.Any], Sequence[int]]]
    #: What of a HostState it counts; None where it goes by what is free.
    counted: typing.ClassVar[Callable[[typing.Any], int] | None] = None

    def weigh_objects(self, weighed_obj_list: Sequence[typing.Any],
                      weight_properties: typing.Any) -> typing.Any:
        """Weigh the hosts, after learning of their secondaries."""
        stock = super().weigh_objects(weighed_obj_list, weight_properties)
        try:
            return self._corrected(stock, weighed_obj_list, weight_properties)
        except Exception:
            COMPLAINTS.exception('weigher', 'Hosts are weighed with their '
                                 'secondary instances.')
            return stock

    def _corrected(self, stock: Sequence[float],
                   weighed: Sequence[typing.Any], properties: typing.Any
                   ) -> Sequence[float]:
        amounts = self.amount(_find_uses(weighed))
        if not any(amounts):
            return stock
        if self.minval is not None and self.minval in stock:
            # Nova has cut these off; what lies below counts.
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
    """Return the secondaries' part of all hosts, nothing where not known."""
    if _LAST.first is not weighed[0]:
        # Also here, where every request passes: a process that never forks
        # listens from its first request on, whatever it is for.
        report_books.book()
        _LAST.columns = HostUsage(*zip(*(
            use or _NOTHING for use in LEDGER.uses(
                [one.obj for one in weighed])), strict=True))
        _LAST.first = weighed[0]
    return _LAST.columns


class CPUWeigher(_WithoutSecondaries, cpu.CPUWeigher):
    """Free vCPUs, were there no secondaries."""

    amount = operator.attrgetter('vcpus')


class RAMWeigher(_WithoutSecondaries, ram.RAMWeigher):
    """Free memory (MiB), were there no secondaries."""

    amount = operator.attrgetter('memory_mb')


class DiskWeigher(_WithoutSecondaries, disk.DiskWeigher):
    """Free disk (MiB), were there no secondaries."""

    amount = operator.attrgetter('disk_mb')


class IoOpsWeigher(_WithoutSecondaries, io_ops.IoOpsWeigher):
    """I/O operations of primaries."""

    amount = operator.attrgetter('io_ops')
    counted = operator.attrgetter('num_io_ops')


class NumInstancesWeigher(_WithoutSecondaries,
                          num_instances.NumInstancesWeigher):
    """Number of primaries."""

    amount = operator.attrgetter('instances')
    counted = operator.attrgetter('num_instances')


class BuildFailureWeigher(_WithoutSecondaries, compute.BuildFailureWeigher):
    """Failed builds of primaries.

    Otherwise a tenant whose secondaries fail pushes primaries off a host,
    with Nova's largest multiplier.
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


class SecondaryHeadroomWeigher(weights.BaseHostWeigher):
    """Prefers the host on which a newcomer gets the most CPU.

    For a primary it weighs nothing at all.
    """

    def weight_multiplier(self, host_state: typing.Any) -> float:
        """Return the option's value, or the aggregate's."""
        try:
            return float(utils.get_weight_multiplier(
                host_state, 'headroom_weight_multiplier',
                CONF.secondary_scheduler.headroom_weight_multiplier))
        except Exception:
            COMPLAINTS.exception('multiplier', 'SecondaryHeadroomWeigher is '
                                 'switched off.')
            return 0.0

    def weigh_objects(self, weighed_obj_list: Sequence[typing.Any],
                      weight_properties: typing.Any) -> list[float]:
        """Return the newcomer's share of each host, in CPUs."""
        # No weights: Nova adds none and spends nothing on them (nova/
        # weights.py normalize), where zeros would cost as much as figures.
        nothing: list[float] = []
        try:
            if not request.is_secondary(weight_properties):
                return nothing
            reports = report_books.book().hosts()
            return [_share(weighed.obj, reports.get(weighed.obj.host), known)
                    for weighed, known in zip(
                        weighed_obj_list,
                        _find_uses(weighed_obj_list).instances, strict=True)]
        except Exception:
            COMPLAINTS.exception('headroom', 'Hosts are not weighed by what '
                                 'they have left for secondary instances.')
            return nothing

    def _weigh_object(self, host_state: typing.Any,
                      weight_properties: typing.Any) -> float:
        return _share(host_state, report_books.book().get(host_state.host))


def _share(host_state: typing.Any, report: HostReport | None,
           known: int = 0) -> float:
    """Return the CPUs that one more secondary would get below the policy.

    Those that this request has put there already count as well, and so do
    those that Nova knows of: its agent reports one only when it runs, seconds
    after it was sent there, and a suspended one will be back.
    """
    thresholds = [p.threshold for p in report.policies
                  if p.resource == 'cpu'] if report else []
    if report is None or report.cpu_primary is None or not thresholds:
        return 0.0
    room = max(0.0, min(thresholds) - report.cpu_primary)
    consumed = host_state.num_instances - int(
        host_state.stats.get('num_instances', 0))
    return (report.cpus * room / 100
            / (max(len(report.instances), known) + max(0, consumed) + 1))
