# SPDX-License-Identifier: Apache-2.0

"""Goal of our audits, and the efficacy of their action plans."""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import statistics
from typing import Any

from watcher._i18n import _
from watcher.decision_engine.goal import base
from watcher.decision_engine.goal.efficacy import base as efficacy_base
from watcher.decision_engine.goal.efficacy import indicators
from watcher.decision_engine.solution import efficacy

from secondary_scheduler.estimation.room import RUNNING
from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import Cluster, Instance
from secondary_scheduler.plans.operations import (
    PREEMPTIONS,
    RETURNS,
    OperationKind,
    Plan,
    SwitchClaim,
)


@dataclasses.dataclass(frozen=True)
class Effect:
    """Effect of a plan on a cluster.

    :param asked: hosts that the audit names.
    :param share: percent of the host assumed for an instance of unknown CPU
        use, such as a returning one; as in the decision.
    """

    cluster: Cluster
    plan: Plan
    asked: Sequence[str]
    share: float

    def on(self, *kinds: OperationKind) -> list[Instance]:
        """Return the instances with an operation of some kinds."""
        return [self.cluster.instances[operation.instance]
                for operation in self.plan.operations
                if operation.kind in kinds]

    def resolved(self) -> set[str]:
        """Return the named hosts with a violation that the plan ends."""
        hosts = self.cluster.hosts
        violated = {name for name in self.asked
                    if name in hosts and hosts[name].violated}
        return violated - set(self.plan.unresolved)

    @functools.cached_property
    def cpu_usage(self) -> list[float]:
        """CPU use of hosts after the plan, in percent.

        Contains the hosts of known use that the audit or the plan names.
        Instances count with the use that decisions assume.
        """
        names, moved = set[str | None](self.asked), dict[str, str | None]()
        for operation in self.plan.operations:
            names |= {operation.source, operation.target}
            if operation.kind in PREEMPTIONS or operation.target:
                moved[operation.instance] = operation.target
        use = {name: host.cpu_primary + sum(
                   self._use(name, one) for one in self.cluster.residents(name)
                   if one.state in RUNNING and one.uuid not in moved)
               for name, host in self.cluster.hosts.items()
               if name in names and host.cpu_primary is not None}
        for uuid, target in moved.items():
            if target in use:
                use[target] += self._use(
                    target, self.cluster.instances[uuid])
        return [round(percent, 1) for percent in use.values()]

    @functools.cached_property
    def resumes(self) -> tuple[int, int]:
        """Numbers of local and remote resumes.

        A remote one is followed by a migration (Hermenier 2009, section 4.2).
        """
        resumed = {one.instance for one in self.plan.operations
                   if one.kind is OperationKind.RESUME}
        remote = {one.instance for one in self.plan.operations
                  if one.kind is OperationKind.MIGRATE
                  and one.instance in resumed}
        return len(resumed - remote), len(remote)

    @property
    def predicted_s(self) -> float:
        """Predicted seconds until the last operation has ended."""
        return round(max((one.start_s + one.duration_s
                          for one in self.plan.operations), default=0.0), 1)

    def claimed(self, value: Callable[[SwitchClaim], float]) -> float:
        """Return a value that a context switch claims, 0 without one."""
        return 0.0 if self.plan.switch is None else value(self.plan.switch)

    def _use(self, host: str, instance: Instance) -> float:
        percent = self.cluster.percent(host, 'cpu', instance)
        return self.share if percent is None else percent

    def indicators(self) -> dict[str, float]:
        """Return the value of each efficacy indicator, by its name."""
        return {one.name: one.measure(self) for one in INDICATORS}


class Indicator(indicators.IndicatorSpecification):
    """A number of at least zero, and its calculation."""

    def __init__(self, name: str, description: str,
                 measure: Callable[[Effect], float],
                 unit: str | None = None) -> None:
        super().__init__(name=name, description=description, unit=unit)
        self.measure = measure

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the value."""
        return {'type': 'number', 'minimum': 0}


#: ``preempted_instances_count``, ``vcpu_freed``, ``mem_mb_freed`` and
#: ``disk_gb_freed`` are those of watcher-specs 2026.2
#: "preemptible-instances".
INDICATORS = (
    Indicator(
        'preempted_instances_count',
        _('Instances suspended, shelved or stopped.'),
        lambda effect: len(effect.on(*PREEMPTIONS)),
    ),
    Indicator(
        'migrated_instances_count',
        _('Instances live-migrated.'),
        lambda effect: len(effect.on(OperationKind.MIGRATE)),
    ),
    Indicator(
        'resumed_instances_count',
        _('Instances resumed, started or unshelved.'),
        lambda effect: len(effect.on(*RETURNS)),
    ),
    Indicator(
        'vcpu_freed',
        _('Virtual CPUs of preempted instances.'),
        lambda effect: sum(i.vcpus for i in effect.on(*PREEMPTIONS)),
    ),
    Indicator(
        'mem_mb_freed',
        _('Memory of preempted instances.'),
        lambda effect: sum(i.memory_mb for i in effect.on(*PREEMPTIONS)),
        'MiB',
    ),
    Indicator(
        'disk_gb_freed',
        _('Disk on hosts that shelving frees.'),
        lambda effect: sum(i.disk_gb for i in effect.on(OperationKind.SHELVE)),
        'GiB',
    ),
    Indicator(
        'violated_hosts_resolved',
        _('Hosts whose violation the action plan ends.'),
        lambda effect: len(effect.resolved()),
    ),
    Indicator(
        'work_losing_instances_count',
        _('Instances stopped or shelved, which lose what is in memory.'),
        lambda effect: len(
            effect.on(OperationKind.STOP, OperationKind.SHELVE)
        ),
    ),
    Indicator(
        'cpu_usage_highest_predicted',
        _('Highest CPU usage of a concerned host after the action plan.'),
        lambda effect: max(effect.cpu_usage, default=0.0),
        '%',
    ),
    Indicator(
        'cpu_usage_mean_predicted',
        _('Mean CPU usage of the concerned hosts after the action plan.'),
        lambda effect: statistics.fmean(effect.cpu_usage or (0.0,)),
        '%',
    ),
    Indicator(
        'switch_cost',
        _('Cost of a context switch, by the objective of the audit.'),
        lambda effect: effect.claimed(lambda claim: claim.value),
    ),
    Indicator(
        'switch_cost_lower_bound',
        _('Least cost of any such switch as far as known, else 0.'),
        lambda effect: effect.claimed(lambda claim: claim.bound or 0.0),
    ),
    Indicator(
        'selected_leases_count',
        _('Leases that are to run after a context switch.'),
        lambda effect: effect.claimed(lambda claim: claim.selected),
    ),
    Indicator(
        'local_resumes_count',
        _('Instances resumed that stay on their host.'),
        lambda effect: effect.resumes[0],
    ),
    Indicator(
        'remote_resumes_count',
        _('Instances resumed and then migrated.'),
        lambda effect: effect.resumes[1],
    ),
    Indicator(
        'bypasses_count',
        _('Operations that only make room for others.'),
        lambda effect: effect.claimed(lambda claim: claim.bypasses),
    ),
    Indicator(
        'duration_predicted',
        _('Predicted time until the last operation has ended.'),
        lambda effect: effect.predicted_s,
        's',
    ),
)


class SecondaryEfficacy(efficacy_base.EfficacySpecification):
    """Efficacy of a solution."""

    def get_indicators_specifications(self) -> tuple[Indicator, ...]:
        """Return the indicators a solution must give."""
        return INDICATORS

    def get_global_efficacy_indicator(
            self, indicators_map: Any = None) -> list[efficacy.Indicator]:
        """Return how many instances keep running or run again, in %."""
        values = indicators_map or {}
        kept = (values.get('migrated_instances_count', 0)
                + values.get('resumed_instances_count', 0))
        touched = kept + values.get('preempted_instances_count', 0)
        return [efficacy.Indicator(
            name='running_instances_ratio',
            description=_('Share of the instances in the action plan that '
                          'run afterwards.'),
            unit='%', value=100.0 * kept / touched if touched else 100.0)]


class Displayed:
    """Display name that goal and strategy share."""

    @classmethod
    def get_display_name(cls) -> str:
        """Return the name shown to operators."""
        return str(_('Secondary workloads'))

    @classmethod
    def get_translatable_display_name(cls) -> str:
        """Return the message id of the name."""
        return 'Secondary workloads'


class SecondaryWorkloadsGoal(Displayed, base.Goal):
    """Run secondary (preemptible) instances on idle capacity.

    Secondaries are preempted in time when primaries need the hosts.  They
    return afterwards; suspended and migrated ones lose no work.
    """

    @classmethod
    def get_name(cls) -> str:
        """Return the name of the goal and of its entry point."""
        return vocabulary.GOAL

    @classmethod
    def get_efficacy_specification(cls) -> SecondaryEfficacy:
        """Return the indicators of this goal."""
        return SecondaryEfficacy()
