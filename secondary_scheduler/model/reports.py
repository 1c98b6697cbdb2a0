# SPDX-License-Identifier: Apache-2.0

"""The report of an agent about its host.

It travels as a dictionary in an RPC cast (see reference/decisions, 9), so it
is validated when it is read.
"""

from collections.abc import Mapping
import dataclasses
import enum
from typing import Any

from secondary_scheduler.model import units
from secondary_scheduler.model.arrivals import Arrival, read_arrivals

VERSION = 2
#: Versions that can be read.  Version 1 has no capacities, so only
#: percentages of links and disks are known.
READABLE = frozenset({1, VERSION})

#: Types that a field of a message may have, by its annotation.
_TYPES: dict[object, frozenset[type]] = {
    str: frozenset({str}), bool: frozenset({bool}), int: frozenset({int}),
    float: frozenset({int, float}),
    float | None: frozenset({int, float, type(None)}),
    int | None: frozenset({int, type(None)})}
#: Bound on numbers in a report.  It also excludes NaN, infinity and integers
#: that no float can represent.
_LARGEST = 1e15
#: Least capacity of a host, since amounts are divided by it.
_SMALLEST = 1e-9


class PolicyState(enum.StrEnum):
    """State of one policy on one host (Boettger 2012, section 4.3.5)."""

    HELD = 'held'
    FAILING = 'failing'
    VIOLATED = 'violated'
    INVALID = 'invalid'
    UNKNOWN = 'unknown'


@dataclasses.dataclass(frozen=True)
class PolicyReport:
    """One policy of one host.

    ``usage`` and ``threshold`` are in the policy's unit (percent of the host
    for cpu), ``failed`` is the run of failed checks, ``timelimit`` seconds.
    """

    policy: str
    resource: str
    threshold: float
    timelimit: int
    usage: float | None
    failed: int
    state: PolicyState


@dataclasses.dataclass(frozen=True)
class InstanceReport:
    """One secondary on the host; cpu and cap in percent of the host.

    ``dirty_1s_mb`` and ``dirty_5s_mb`` are the memory that it writes to in
    that time, in MiB.  ``usage`` is that of further resources in percent of
    the host, as far as it is known.  ``problem`` is the reason if the host
    cannot throttle it, else ''.  ``suspect`` is whether trials have confirmed
    that it harms the primary.
    """

    uuid: str
    priority: int
    cpu: float | None = None
    cap: float | None = None
    floored: bool = False
    paused: bool = False
    dirty_1s_mb: float | None = None
    dirty_5s_mb: float | None = None
    usage: Mapping[str, float] = dataclasses.field(default_factory=dict)
    problem: str = ''
    suspect: bool = False


@dataclasses.dataclass(frozen=True)
class HostReport:
    """State of a host at one instant, as its agent sees it.

    Use is in percent of the host.  None stands for unknown values.

    :param incarnation: changes when the agent starts
    :param seq: grows with each report; with ``incarnation`` it orders the
        reports of a host, whatever the network does
    :param time: the agent's wall clock (s since the epoch), to recognise
        stale and future reports
    :param cpus: capacity in CPUs
    :param memory_mb: capacity in MiB
    :param cpu_total: present CPU use
    :param cpu_primary: mean CPU use by primaries in the last seconds
    :param migration_mb_s: rate at which live migrations to the host have
        copied memory, in MiB/s
    :param usage: use of further resources by primaries
    :param save_free_mb: free space on the disk to which suspended instances
        are saved, in MiB
    :param killed: reasons, by UUID of secondaries that the agent has killed
        and that have not run since
    :param capacities: capacities of further resources in their units (see
        ``model.units``), as far as they are known
    :param arrivals: predictions for one more secondary, by workload class;
        empty while the agent makes none.  Older readers reject a report that
        has them
    """

    host: str
    incarnation: str
    seq: int
    time: float
    policies_hash: str
    admission: bool
    reason: str
    cpus: float
    memory_mb: int
    cpu_total: float | None
    cpu_primary: float | None
    migration_mb_s: float | None = None
    usage: Mapping[str, float] = dataclasses.field(default_factory=dict)
    policies: tuple[PolicyReport, ...] = ()
    instances: tuple[InstanceReport, ...] = ()
    save_free_mb: int | None = None
    killed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    counters: Mapping[str, float] = dataclasses.field(default_factory=dict)
    capacities: Mapping[str, float] = dataclasses.field(default_factory=dict)
    arrivals: Mapping[str, Arrival] = dataclasses.field(default_factory=dict)

    def capacity(self, resource: str) -> float | None:
        """Return the capacity for a measured resource, if known."""
        known: Mapping[str, float] = {
            **self.capacities, 'cpu': self.cpus, 'mem': self.memory_mb}
        return (known.get(resource) or None if resource in units.UNITS
                else units.WHOLE)

    @property
    def violated(self) -> tuple[PolicyReport, ...]:
        """Policies whose global trigger has fired."""
        return tuple(p for p in self.policies
                     if p.state in (PolicyState.VIOLATED, PolicyState.INVALID))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a message, without default values."""
        return {'version': VERSION, **_without_defaults(self),
                'policies': [_without_defaults(one) for one in self.policies],
                'instances': [_without_defaults(one)
                              for one in self.instances]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> 'HostReport':
        """Read a message.

        :raises ValueError: if it is no report of a readable version
        """
        try:
            fields = dict(data)
            version = fields.pop('version')
            if version not in READABLE:
                raise ValueError(f'unknown report version {version!r}')
            fields['policies'] = tuple(
                PolicyReport(**{**p, 'state': PolicyState(p['state'])})
                for p in fields.get('policies', ()))
            fields['instances'] = tuple(
                InstanceReport(**i) for i in fields.get('instances', ()))
            fields['arrivals'] = read_arrivals(fields.get('arrivals', {}))
            report = cls(**fields)
        except (KeyError, TypeError, AttributeError) as exc:
            raise ValueError(f'not a host report: {exc}') from exc
        parts: list[HostReport | PolicyReport | InstanceReport] = [
            report, *report.policies, *report.instances]
        for part in parts:
            _check_types(part)
        if not report.host:
            raise ValueError('a report without a host')
        for size in (report.cpus, *report.capacities.values()):
            if size < _SMALLEST:
                raise ValueError(f'a capacity of a report is {size!r}')
        return report


def _without_defaults(part: HostReport | PolicyReport | InstanceReport
          ) -> dict[str, Any]:
    """Return the fields of a part without default values."""
    return {field.name: getattr(part, field.name)
            for field in dataclasses.fields(part)
            if getattr(part, field.name) != (
                field.default if field.default_factory
                is dataclasses.MISSING else field.default_factory())}


def _check_types(part: HostReport | PolicyReport | InstanceReport) -> None:
    """Reject values with which a decision could not compute.

    A compromised host must not stop the decisions on others.

    :raises ValueError: if a field has another type, or is out of bounds
    """
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        may_hold = _TYPES.get(field.type)
        if (may_hold is not None and type(value) not in may_hold
                or isinstance(value, int | float)
                and not abs(value) < _LARGEST):
            raise ValueError(f'{field.name} of a report is {value!r}')
        if field.type == Mapping[str, str] and not (
                isinstance(value, Mapping) and all(
                    type(one) is str for pair in value.items()
                    for one in pair)):
            raise ValueError(f'{field.name} of a report is {value!r}')
        if field.type == Mapping[str, float] and not (
                isinstance(value, Mapping) and all(
                    type(name) is str and type(one) in {int, float}
                    and abs(one) < _LARGEST for name, one in value.items())):
            raise ValueError(f'{field.name} of a report is {value!r}')
