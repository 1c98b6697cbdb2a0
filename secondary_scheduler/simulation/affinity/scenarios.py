# SPDX-License-Identifier: Apache-2.0

"""Guests of the scenarios of Kaffes 2015 (section 5.3).

The thesis gives neither the lengths of guests nor the composition of its
scenarios; those here are assumptions.
"""

from collections.abc import Sequence
import dataclasses
import random

from secondary_scheduler.simulation.affinity import thesis_host

#: Seconds between two arrivals (section 5.3.1).
SPACING_S = 30.0
Lengths = tuple[float, float]
#: Seconds for which the guests of ``dynamic`` stay active, and of the whole.
PHASE_S, DYNAMIC_S = 1200.0, 7200.0
#: Parts of batch guests and of high LAMP in ``latency``.
BATCH_PART, HIGH_PART = 0.25, 0.1


@dataclasses.dataclass(frozen=True)
class ScenarioGuest:
    """Guest with one vCPU; ``length_s`` is the time that it runs alone.

    :param phases: phases of ``dynamic`` in which it is active; None in the
        other scenarios, in which it always is
    """

    name: str
    workload_class: str
    arrives_s: float
    length_s: float
    phases: frozenset[int] | None = None

    @property
    def is_batch(self) -> bool:
        """Whether it does a fixed amount of work.

        So do all classes that the thesis does not have.
        """
        return self.workload_class not in thesis_host.SERVICES

    def is_active(self, now_s: float) -> bool:
        """Return whether it works at a time."""
        return self.phases is None or int(now_s // PHASE_S) in self.phases


def draw_random(count: int, seed: int, lengths: Lengths,
                classes: Sequence[str] = thesis_host.CLASSES
                ) -> tuple[ScenarioGuest, ...]:
    """Return guests whose classes are equally likely (section 5.3.1).

    :param lengths: shortest and longest time that guests run alone, in
        seconds
    """
    draw = random.Random(f'random {count} {seed}')
    return _arrive(draw, draw.choices(classes, k=count), lengths)


def draw_latency(count: int, seed: int, lengths: Lengths
                 ) -> tuple[ScenarioGuest, ...]:
    """Return mostly services with low load (section 5.3.2).

    One low streaming, at least one batch guest, some high LAMP, and low LAMP.

    :param lengths: as for ``draw_random``
    """
    draw = random.Random(f'latency {count} {seed}')
    batch = max(1, round(BATCH_PART * count))
    classes = ['LS', *draw.choices(sorted(thesis_host.BATCH), k=batch),
               *['HL'] * round(HIGH_PART * count)][:count]
    classes += ['LL'] * (count - len(classes))
    draw.shuffle(classes)
    return _arrive(draw, classes, lengths)


def _arrive(draw: random.Random, classes: list[str], lengths: Lengths
            ) -> tuple[ScenarioGuest, ...]:
    return tuple(ScenarioGuest(f'g{place}', one, place * SPACING_S,
                               draw.uniform(*lengths))
                 for place, one in enumerate(classes))


def draw_dynamic(count: int, active: int, seed: int,
                 classes: Sequence[str] = thesis_host.CLASSES
                 ) -> tuple[ScenarioGuest, ...]:
    """Return guests of which some are active at a time (section 5.3.3)."""
    draw = random.Random(f'dynamic {count} {active} {seed}')
    chosen = draw.choices(classes, k=count)
    phases = [frozenset(draw.sample(range(count), active))
              for _ in range(int(DYNAMIC_S // PHASE_S))]
    return tuple(ScenarioGuest(
        f'g{place}', one, 0.0, DYNAMIC_S, frozenset(
            number for number, some in enumerate(phases) if place in some))
        for place, one in enumerate(chosen))


#: Scenarios with arrivals.
SCENARIOS = ('random', 'latency')
