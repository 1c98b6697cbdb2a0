"""Profiles: the knobs in which the ways to run the same workload differ.

All profiles read the same policies.  What a profile may change is a field
here and nothing else; ``doc/source/simulator.rst`` lists them.
"""

from collections.abc import Mapping
import dataclasses
import math
import typing

from secondary_scheduler.decisions import violations, what_if
from secondary_scheduler.estimation.feasibility import Overheads
from secondary_scheduler.estimation.room import LoadLimits


@dataclasses.dataclass(frozen=True)
class Profile:
    """One way to run secondaries; shares in percent of a host, times in s.

    ``margin`` keeps the controller's set point below the threshold;
    ``slack`` bounds its windup (infinite: the thesis's plain clamp);
    ``proportional`` splits as the thesis does.  ``freeze`` takes guests to
    the floor as the last resort instead of killing them, and ``calm_s`` is
    how long there must be room before that is lifted.  ``patience_s`` is how
    long a guest may be frozen before the cloud is asked for a violated
    dynamic policy; 0 asks as soon as the global trigger fires.

    ``contention`` is k of EXPERIMENTS 2, ``weight`` of a secondary's CPU
    relative to a primary's.  ``throttles_boot`` lets the controller hold a
    guest from its first instruction on, ``shapes_traffic`` caps what guests
    send instead of the CPU that they need for it.  ``sticky`` is Nova's rule
    that an instance comes back on its host; ``parallel`` starts all operations
    of a plan at once (Boettger 3.7), otherwise there are ``lanes`` on each
    host.  ``rests`` leaves what was operated on alone for ``backoff_s`` even
    if a policy is violated (3.8).

    ``memory_s`` is how long a primary's highest use counts for who wants to
    come up where nobody can be frozen; 0 is the mean of the last seconds.

    ``forecasts_demand`` predicts that guests go on using what they use;
    otherwise they can be squeezed to ``useful_share``.  ``lingers`` predicts
    that a start or resume burdens its host still when its guest runs already.

    ``placed`` and ``clairvoyant`` make the oracle: everything starts at once
    where there is a slot, nothing is ever moved, and the load of each
    instant is known.
    """

    name: str
    margin: float
    minimum_share: float
    useful_share: float
    slack: float
    probe: float
    proportional: bool
    freeze: bool
    calm_s: int
    patience_s: float
    memory_s: float
    contention: float
    weight: float
    shapes_traffic: bool
    sticky: bool
    parallel: bool
    rests: bool
    forecasts_demand: bool
    lingers: bool
    spreads: bool
    deadline_guard: float
    lanes: int = 1
    throttles_boot: bool = True
    gain: float = 1.0
    backoff_s: float = 30.0
    collect_s: float = 2.0
    provision_s: int = 5
    remedy_s: float = 60.0
    sensitivity_offset: int = 0
    adapts: bool = False
    noise: float = 0.1
    failures: float = 0.0
    congestion: bool = False
    local_control: bool = True
    local_trigger: bool = True
    reconfigure: bool = True
    placed: bool = False
    clairvoyant: bool = False

    @property
    def patient(self) -> bool:
        """Whether the floor comes before the cloud's help."""
        return self.freeze and self.patience_s > 0

    @property
    def limits(self) -> LoadLimits:
        """The options of the decisions.

        The thesis plans up to the threshold itself (3.6).
        """
        return LoadLimits(self.minimum_share, self.useful_share,
                          0.0 if self.forecasts_demand else self.margin,
                          self.lanes)

    @property
    def counting(self) -> violations.CostProfile:
        """How the search counts and predicts."""
        overheads = (Overheads(lingers=self.lingers) if self.forecasts_demand
                     else _held_by_agents(self.useful_share))
        schedule = what_if.at_once if self.parallel else what_if.in_order
        return violations.CostProfile(
            self.deadline_guard, schedule, overheads=overheads,
            agents_hold=self.freeze)

    def change(self, changes: Mapping[str, str]) -> 'Profile':
        """Return the profile with some fields set from text.

        :raises ValueError: for a field that is not there or a value that is
            not of its kind, saying what would be right.
        """
        fields = {one.name: one for one in dataclasses.fields(self)
                  if one.name != 'name'}
        values: dict[str, typing.Any] = {}
        for key, text in changes.items():
            if key not in fields:
                raise ValueError(f'there is no knob {key}; there are: '
                                 + ', '.join(sorted(fields)))
            values[key] = _value(key, text, fields[key].type)
        return dataclasses.replace(self, **values)


def _value(key: str, text: str, kind: object) -> object:
    words = {'on': True, 'true': True, 'off': False, 'false': False}
    if kind is bool:
        if text.lower() not in words:
            raise ValueError(f'{key} is on or off, not {text!r}')
        return words[text.lower()]
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        what = 'a whole number' if kind is int else 'a number'
        raise ValueError(f'{key} is {what}, not {text!r}') from None


def _held_by_agents(share: float) -> Overheads:
    """Return overheads where an agent throttles guests from the first.

    A boot then takes no more than its share, only longer.
    """
    standard = Overheads()
    arriving = {kind: dict(uses) for kind, uses in standard.arriving.items()}
    arriving['start']['cpu'] = 0
    return Overheads(standard.leaving, arriving, newcomer=share)


#: The thesis's algorithms and constants; Nova's restrictions off.
THESIS = Profile(
    'thesis', margin=5, minimum_share=5, useful_share=20, slack=math.inf,
    probe=0, proportional=True, freeze=False, calm_s=1, patience_s=0,
    memory_s=0, contention=0.69, weight=1, shapes_traffic=False,
    sticky=False, parallel=True, rests=True, forecasts_demand=True,
    lingers=True, spreads=False, deadline_guard=0)

#: All that this project does; Nova's restrictions on.
OURS = Profile(
    'ours', margin=1, minimum_share=2, useful_share=13, slack=10, probe=2,
    proportional=False, freeze=True, calm_s=1, patience_s=600,
    memory_s=60, contention=0.0656, weight=0.01, shapes_traffic=True,
    sticky=True, parallel=False, rests=False, forecasts_demand=False,
    lingers=False, spreads=True, deadline_guard=2)

#: The bound: never moves, loses nothing, knows each instant's load.
ORACLE = dataclasses.replace(
    OURS, name='oracle', margin=0, minimum_share=0, placed=True,
    clairvoyant=True, reconfigure=False, local_trigger=False)

PROFILES: Mapping[str, Profile] = {
    one.name: one for one in (THESIS, OURS, ORACLE)}
