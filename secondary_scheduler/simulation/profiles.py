# SPDX-License-Identifier: Apache-2.0

"""Profiles: algorithms and constants with which a workload is run.

All profiles run the same workload under the same policies.  A profile changes
its fields only; ``doc/source/contributor/simulator.rst`` lists them.
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
    """Parameters of a run; shares in percent of a host, times in seconds.

    Usage controller:

    * ``margin``: distance of the set point from the threshold;
    * ``slack``: bound of the windup; infinite is the thesis's plain clamp;
    * ``proportional``: split by use, as in the thesis;
    * ``throttles_boot``: limit a guest from the start of its boot on;
    * ``shapes_traffic``: cap the traffic of guests instead of their CPU;
    * ``contention``: factor k of ``sharing.speed``;
    * ``weight``: CPU weight of a secondary relative to a primary.

    Last resort:

    * ``freeze``: take guests to the floor instead of killing them;
    * ``calm_s``: time with room before the floor is lifted;
    * ``patience_s``: time at the floor before a violated dynamic policy calls
      for a decision; 0 calls as soon as the global trigger fires.

    Decisions:

    * ``sticky``: Nova's rule that an instance returns to its host;
    * ``parallel``: start all operations of a plan at once (Boettger 2012,
      section 4.4.5.1); otherwise each host has ``lanes``;
    * ``rests``: instances and hosts cool down for ``backoff_s`` even if a
      policy is violated (Boettger 2012, section 4.4.6.3);
    * ``memory_s``: without a floor, time for which the highest use of a
      primary counts for starts; 0 is the mean of the last seconds;
    * ``forecasts_demand``: predict that the use of guests does not change;
      otherwise guests can be throttled to ``useful_share``;
    * ``lingers``: predict that a start or resume still loads its host when
      the guest runs.

    ``placed`` and ``clairvoyant`` make the oracle: it starts all instances at
    once, never moves any, and knows the load of each instant.
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
        """Whether guests are at the floor before a decision is called."""
        return self.freeze and self.patience_s > 0

    @property
    def limits(self) -> LoadLimits:
        """Options of the decisions.

        The thesis plans up to the threshold (Boettger 2012, section 4.4.3).
        """
        return LoadLimits(self.minimum_share, self.useful_share,
                          0.0 if self.forecasts_demand else self.margin,
                          self.lanes)

    @property
    def counting(self) -> violations.CostProfile:
        """Costs and predictions of the search."""
        overheads = (Overheads(limits_newcomers=True, lingers=self.lingers)
                     if self.forecasts_demand
                     else _held_by_agents(self.useful_share))
        schedule = what_if.at_once if self.parallel else what_if.in_order
        return violations.CostProfile(
            self.deadline_guard, schedule, overheads=overheads,
            agents_hold=self.freeze)

    def change(self, changes: Mapping[str, str]) -> 'Profile':
        """Return the profile with some fields set from text.

        :raises ValueError: for an unknown field or a value of another type;
            the text has the known fields or the type.
        """
        fields = {one.name: one for one in dataclasses.fields(self)
                  if one.name != 'name'}
        values: dict[str, typing.Any] = {}
        for key, text in changes.items():
            if key not in fields:
                raise ValueError(f'there is no parameter {key}; there are: '
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
    """Return the overheads if agents throttle guests from the boot on.

    A boot then uses its share only, and takes longer.
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

#: All functions of this project; Nova's restrictions on.
OURS = Profile(
    'ours', margin=1, minimum_share=2, useful_share=13, slack=10, probe=2,
    proportional=False, freeze=True, calm_s=1, patience_s=600,
    memory_s=60, contention=0.0656, weight=0.01, shapes_traffic=True,
    sticky=True, parallel=False, rests=False, forecasts_demand=False,
    lingers=False, spreads=True, deadline_guard=2)

#: The bound: it moves and loses nothing, and knows the load of each instant.
ORACLE = dataclasses.replace(
    OURS, name='oracle', margin=0, minimum_share=0, placed=True,
    clairvoyant=True, reconfigure=False, local_trigger=False)

PROFILES: Mapping[str, Profile] = {
    one.name: one for one in (THESIS, OURS, ORACLE)}
