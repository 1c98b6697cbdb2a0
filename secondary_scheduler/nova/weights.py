"""Weighers that do not count secondaries, and one that places them.

In nova.conf::

    [filter_scheduler]
    weight_classes = secondary_scheduler.nova.weights.all_weighers

Nova's CPU, RAM, disk, I/O, instance and build-failure weighers are replaced
by subclasses that take the secondaries' part out of a host's numbers
(``ledger``); the rest of Nova's weighers stays, in Nova's order, so that the
sums of floats are the same as without us.
"""

import abc
from collections.abc import Sequence
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
from secondary_scheduler.nova import filters, request, snapshot
from secondary_scheduler.nova.guard import COMPLAINTS
from secondary_scheduler.nova.ledger import Ledger, Use
from secondary_scheduler.nova.settings import CONF

NAMESPACE = 'secondary_scheduler.weighers'

#: Attribute of a HostState: its Use, or None if that is not known.  A
#: HostState lives as long as one request, so six weighers ask once.
_ATTRIBUTE = 'secondary_use'

LEDGER = Ledger(lambda: float(CONF.secondary_scheduler.lookup_budget))


def all_weighers() -> list[type]:
    """Return the weighers for ``weight_classes``."""
    return ([REPLACED.get(one, one) for one in weights.all_weighers()]
            + filters.load_plugins(NAMESPACE))


class _WithoutSecondaries(weights.BaseHostWeigher):
    """Adds ``correction`` to what Nova's own weigher says of a host.

    Where the secondaries' part is not known, or anything of ours fails,
    Nova's own number stands.
    """

    def weigh_objects(self, weighed_obj_list: Sequence[typing.Any],
                      weight_properties: typing.Any) -> typing.Any:
        """Weigh the hosts, after learning of their secondaries."""
        try:
            _find_uses([weighed.obj for weighed in weighed_obj_list])
        except Exception:
            COMPLAINTS.exception('weigher', 'Hosts are weighed with their '
                                 'secondary instances.')
        return super().weigh_objects(weighed_obj_list, weight_properties)

    def _weigh_object(self, host_state: typing.Any,
                      weight_properties: typing.Any) -> float:
        stock = super()._weigh_object(host_state, weight_properties)
        try:
            use = getattr(host_state, _ATTRIBUTE, None)
            if use is None:
                return stock
            return stock + self.correction(host_state, use)
        except Exception:
            COMPLAINTS.exception('correction', 'A host is weighed with its '
                                 'secondary instances.')
            return stock

    @abc.abstractmethod
    def correction(self, host_state: typing.Any, use: Use) -> float:
        """Return what the weigher would say more without secondaries."""


def _find_uses(hosts: list[typing.Any]) -> None:
    # Also here, where every request passes: a process that never forks
    # listens from its first request on, whatever it is for.
    snapshot.book()
    unasked = [h for h in hosts if not hasattr(h, _ATTRIBUTE)]
    if not unasked:
        return
    found = LEDGER.uses(unasked)
    for host in unasked:
        setattr(host, _ATTRIBUTE, found.get((host.host, host.nodename)))


class CPUWeigher(_WithoutSecondaries, cpu.CPUWeigher):
    """Free vCPUs, were there no secondaries."""

    def correction(self, host_state: typing.Any, use: Use) -> float:
        """Return the secondaries' vCPUs."""
        return use.vcpus


class RAMWeigher(_WithoutSecondaries, ram.RAMWeigher):
    """Free memory (MiB), were there no secondaries."""

    def correction(self, host_state: typing.Any, use: Use) -> float:
        """Return the secondaries' memory."""
        return use.memory_mb


class DiskWeigher(_WithoutSecondaries, disk.DiskWeigher):
    """Free disk (MiB), were there no secondaries."""

    def correction(self, host_state: typing.Any, use: Use) -> float:
        """Return the secondaries' disk.

        ``free_disk_mb`` is the smaller of what the flavors leave and what
        the driver measures.  Both leave out the secondaries' disks alike,
        but for Nova's fake driver, which always measures 0.
        """
        more = use.disk_gb * 1024
        if host_state.hypervisor_type == 'fake':
            left = (host_state.total_usable_disk_gb * 1024
                    - host_state.disk_mb_used)
            return min(0, left + more) - min(0, left)
        return more


class IoOpsWeigher(_WithoutSecondaries, io_ops.IoOpsWeigher):
    """I/O operations of primaries."""

    def correction(self, host_state: typing.Any, use: Use) -> float:
        """Return the secondaries' operations, negative."""
        return -min(use.io_ops, host_state.num_io_ops)


class NumInstancesWeigher(_WithoutSecondaries,
                          num_instances.NumInstancesWeigher):
    """Number of primaries."""

    def correction(self, host_state: typing.Any, use: Use) -> float:
        """Return the number of secondaries, negative."""
        return -min(use.instances, host_state.num_instances)


class BuildFailureWeigher(_WithoutSecondaries, compute.BuildFailureWeigher):
    """Failed builds of primaries.

    Otherwise a tenant whose secondaries fail pushes primaries off a host,
    with Nova's largest multiplier.
    """

    def correction(self, host_state: typing.Any, use: Use) -> float:
        """Return the secondaries' failures, negative."""
        return -min(use.failed_builds, host_state.failed_builds)


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

    For a primary all hosts weigh 0, which adds nothing to any of them.
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
        nothing = [0.0] * len(weighed_obj_list)
        try:
            if not request.is_secondary(weight_properties):
                return nothing
            reports = snapshot.book().hosts()
            return [_share(weighed.obj, reports.get(weighed.obj.host))
                    for weighed in weighed_obj_list]
        except Exception:
            COMPLAINTS.exception('headroom', 'Hosts are not weighed by what '
                                 'they have left for secondary instances.')
            return nothing

    def _weigh_object(self, host_state: typing.Any,
                      weight_properties: typing.Any) -> float:
        return _share(host_state, snapshot.book().get(host_state.host))


def _share(host_state: typing.Any, report: HostReport | None) -> float:
    """Return the CPUs that one more secondary would get below the policy.

    Those that this request has put there already count as well.
    """
    thresholds = [p.threshold for p in report.policies
                  if p.resource == 'cpu'] if report else []
    if report is None or report.cpu_primary is None or not thresholds:
        return 0.0
    room = max(0.0, min(thresholds) - report.cpu_primary)
    consumed = host_state.num_instances - int(
        host_state.stats.get('num_instances', 0))
    return (report.cpus * room / 100
            / (len(report.instances) + max(0, consumed) + 1))
