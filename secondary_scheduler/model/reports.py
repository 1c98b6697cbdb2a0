"""The report of an agent: what one host tells the rest of the cloud.

It travels as a dictionary in an RPC cast (DESIGN.md decision 9), so reading
one back validates it: a report that cannot be read is no report.
"""

from collections.abc import Mapping
import dataclasses
import enum
from typing import Any

from secondary_scheduler.model import units

VERSION = 2
#: Versions that can be read: before 2 a report said nothing of capacities, so
#: that of links and disks only percentages are known.
READABLE = frozenset({1, VERSION})

#: What a field may hold that came over the bus, by its annotation.
_MAY_HOLD: dict[object, frozenset[type]] = {
    str: frozenset({str}), bool: frozenset({bool}), int: frozenset({int}),
    float: frozenset({int, float}),
    float | None: frozenset({int, float, type(None)}),
    int | None: frozenset({int, type(None)})}
#: Nothing in a report is near this, and no number that computing stumbles
#: over (NaN, infinity, an integer that no float can hold) is below it.
_LARGEST = 1e15
#: Nor has any host less of anything: amounts are divided by its capacity.
_SMALLEST = 1e-9


class PolicyState(enum.StrEnum):
    """State of one policy on one host (Boettger 3.3)."""

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

    ``dirty_1s_mb`` and ``dirty_5s_mb`` are how much of its memory it writes
    to in that time, in MiB; ``usage`` is that of further resources in percent
    of the host, as far as it is known.  ``problem`` says why the host cannot
    limit it, '' if it can.
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


@dataclasses.dataclass(frozen=True)
class HostReport:
    """Everything an agent says at one instant.

    ``incarnation`` changes when the agent starts, ``seq`` grows from report
    to report; together they order reports of one host whatever the network
    does.
    ``time`` is the agent's wall clock (s since the epoch), used to recognise
    stale and future reports.  ``cpu_total`` (now) and ``cpu_primary`` (the
    mean of the last seconds) are percent of the host's capacity, and
    ``migration_mb_s`` is how fast live migrations to it have copied memory
    (MiB/s); each is None while unknown.  ``usage`` is what is no secondary's
    use of further resources, in percent of the host; ``save_free_mb`` is what
    the disk has room for (MiB) to which suspended instances are saved, None if
    that is not known; ``killed`` tells why, by UUID, of secondaries that the
    host has ended and that have not run since.

    A report speaks of one host, so its figures are in percent of that host.
    It says as well what 100 % are: ``cpus`` CPUs, ``memory_mb`` MiB, and
    ``capacities`` of further resources in their units (``model.units``), as
    far as these are known.
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

    def capacity(self, resource: str) -> float | None:
        """Return what all of a measured resource is on the host, if known."""
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
        """Return the form that travels: what is as by default goes without
        saying.
        """
        return {'version': VERSION, **_said(self),
                'policies': [_said(one) for one in self.policies],
                'instances': [_said(one) for one in self.instances]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> 'HostReport':
        """Read a report that came over the bus.

        :raises ValueError: on anything that is not a report of this version.
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


def _said(part: HostReport | PolicyReport | InstanceReport
          ) -> dict[str, Any]:
    """Return the fields of a part that are not as by default."""
    return {field.name: getattr(part, field.name)
            for field in dataclasses.fields(part)
            if getattr(part, field.name) != (
                field.default if field.default_factory
                is dataclasses.MISSING else field.default_factory())}


def _check_types(part: HostReport | PolicyReport | InstanceReport) -> None:
    """Refuse what a decision could not compute with.

    A host that was broken into must not stop the decisions on others.

    :raises ValueError: if a field is of another type, or no sane number.
    """
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        may_hold = _MAY_HOLD.get(field.type)
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
