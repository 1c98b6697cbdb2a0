"""The goal of our audits, and what an action plan says it achieves."""

from typing import Any

from watcher._i18n import _
from watcher.decision_engine.goal import base
from watcher.decision_engine.goal.efficacy import base as efficacy_base
from watcher.decision_engine.goal.efficacy import indicators
from watcher.decision_engine.solution import efficacy

GOAL = 'secondary'


class Count(indicators.IndicatorSpecification):
    """A number that is zero or more."""

    def __init__(self, name: str, description: str,
                 unit: str | None = None) -> None:
        super().__init__(name=name, description=description, unit=unit)

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the value."""
        return {'type': 'integer', 'minimum': 0}


class SecondaryEfficacy(efficacy_base.EfficacySpecification):
    """Indicators, with watcher-specs' names where they exist.

    ``preempted_instances_count``, ``vcpu_freed``, ``mem_mb_freed`` and
    ``disk_gb_freed`` are those of watcher-specs 2026.2
    "preemptible-instances".
    """

    def get_indicators_specifications(self) -> list[Count]:
        """Return the indicators a solution must give."""
        return [
            Count('preempted_instances_count',
                  _('Instances suspended, shelved or stopped.')),
            Count('migrated_instances_count', _('Instances live-migrated.')),
            Count('resumed_instances_count',
                  _('Instances resumed, started or unshelved.')),
            Count('vcpu_freed', _('Virtual CPUs of preempted instances.')),
            Count('mem_mb_freed', _('Memory of preempted instances.'), 'MiB'),
            Count('disk_gb_freed',
                  _('Disk on hosts that shelving frees.'), 'GiB'),
            Count('violated_hosts_resolved',
                  _('Hosts whose violation the action plan ends.')),
        ]

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


class SecondaryWorkloads(base.Goal):
    """Run secondary (preemptible) instances on idle capacity.

    Secondaries give way in time when primaries need the hosts, and come back
    afterwards without losing work.
    """

    @classmethod
    def get_name(cls) -> str:
        """Name of the goal and of its entry point."""
        return GOAL

    @classmethod
    def get_display_name(cls) -> str:
        """Name shown to the operator."""
        return str(_('Secondary workloads'))

    @classmethod
    def get_translatable_display_name(cls) -> str:
        """Return the message id of the name."""
        return 'Secondary workloads'

    @classmethod
    def get_efficacy_specification(cls) -> SecondaryEfficacy:
        """Indicators of this goal."""
        return SecondaryEfficacy()
