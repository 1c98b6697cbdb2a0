# SPDX-License-Identifier: Apache-2.0

"""Workload classes of the running secondaries, and their profiles.

The class of a secondary is the one that its flavor names, or else that of its
image with its flavor.  Where the operator has no profile of the latter, it is
learned: at first the worst known class stands in, and observed slow-downs
correct that.

A tenant can make the class of its instances only worse.  Metadata and image
properties do not count.  Load counts, but carefully: an entry that the
operator has measured never falls below the measured one, and a learned one
rises at once, but falls slowly.
"""

from collections.abc import Iterable, Mapping
import typing

from oslo_log import log as logging

from secondary_scheduler.agent import store as agent_store
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.cpu_affinity.profile_learning import (
    OBSERVATION_DEVIATION,
    Entry,
    LearnedEntry,
    ObservedSlowdown,
    ProfileLearner,
    fall_slowly,
)
from secondary_scheduler.cpu_affinity.profile_merging import cpu_model_of
from secondary_scheduler.cpu_affinity.workload_keys import (
    class_name,
    class_of,
)
from secondary_scheduler.cpu_affinity.workload_profiles import (
    UNPROFILED,
    WorkloadProfiles,
)
from secondary_scheduler.model import vocabulary

LOG = logging.getLogger(__name__)

STATE = 'workload_classes.json'
#: Most classes that are learned at a time: a tenant may have many images.
MOST_LEARNED = 16
#: Part by which an entry falls at most with each round of observations.
MOST_FALL = 0.01
#: Least variance of a learned entry: an observation counts for half of it.
_LEAST_VARIANCE = OBSERVATION_DEVIATION ** 2


class WorkloadClasses:
    """Classes of secondaries, known and learned.

    :param profiles: those of the operator
    :param cpu_model: of this host.  What was learned on another one does not
        count; None if it is not known
    """

    def __init__(self, profiles: WorkloadProfiles, cpu_model: str | None,
                 store: agent_store.StateStore) -> None:
        self._measured = profiles
        self._cpu_model = cpu_model
        self._store = store
        #: Reason why the operator's profiles may be wrong here, '' if none.
        self.problem = _other_model(profiles, cpu_model)
        if self.problem:
            LOG.warning('Workload classes: %s', self.problem)
        self._missing: set[str] = set()
        learned, entries = self._load()
        self._learner = self._make(learned, entries)
        self._profiles = profiles.with_unknown(learned)
        self._follow(0.0)

    @property
    def profiles(self) -> WorkloadProfiles:
        """Profiles of all classes, corrected by observations."""
        return self._profiles

    @property
    def are_known(self) -> bool:
        """Whether the operator has profiles, so that predictions mean much."""
        return self._measured is not UNPROFILED

    @property
    def learned(self) -> tuple[str, ...]:
        """Classes without a profile of the operator."""
        return tuple(one for one in self._profiles.uses
                     if one not in self._measured.uses)

    def class_of(self, guest: Secondary) -> str | None:
        """Return the class of a guest; see ``workload_keys.class_of``."""
        return class_of({vocabulary.WORKLOAD_CLASS: guest.workload_class},
                        guest.image, guest.flavor, self._profiles.uses)

    def update(self, guests: Iterable[Secondary]) -> None:
        """Learn the classes of new guests, and name unknown classes once."""
        present = list(guests)
        wanted = list(filter(None, dict.fromkeys(
            class_name({}, guest.image, guest.flavor) for guest in present
            if not guest.workload_class)))
        unknown = [one for one in wanted if one not in self._profiles.uses]
        for guest in present:
            name = guest.workload_class
            if name and name not in self._profiles.uses:
                self._warn(name, guest.uuid)
        if not unknown:
            return
        # Those of guests that are here now are kept first.
        kept = list(dict.fromkeys((
            *(one for one in self.learned if one in wanted), *unknown,
            *self.learned)))[:MOST_LEARNED]
        if set(kept) != set(self.learned):
            self._learner = self._make(kept, self._learner.entries)
            self._follow(0.0)

    def _warn(self, name: str, uuid: str) -> None:
        if name not in self._missing:
            self._missing.add(name)
            LOG.warning(
                'The class %(name)s of %(uuid)s has no profile; the worst '
                'known class stands in for it', {'name': name, 'uuid': uuid})

    def observe(self, observed: Iterable[ObservedSlowdown]) -> None:
        """Correct the profiles by slow-downs of running guests, and save."""
        some = list(observed)
        for one in some:
            self._learner.observe(one)
        if some:
            self._follow(MOST_FALL)
            self._save()

    def _follow(self, most_fall: float) -> None:
        """Let the profiles follow what was learned.

        :param most_fall: part by which an entry falls at most
        """
        self._profiles = fall_slowly(
            self._profiles, self._learner.cautious_profiles(), most_fall)

    # -- state -------------------------------------------------------------
    def _make(self, learned: Iterable[str],
              entries: Mapping[Entry, LearnedEntry]
              ) -> ProfileLearner:
        profiles = self._measured.with_unknown(learned)
        return ProfileLearner(profiles, {
            key: value for key, value in entries.items()
            if {key[1], key[2]} <= profiles.uses.keys()}, _LEAST_VARIANCE)

    def _save(self) -> None:
        self._store.save(STATE, {
            'cpu_model': self._cpu_model, 'classes': self.learned,
            'entries': [[*key, *value] for key, value
                        in self._learner.entries.items()]})

    def _load(self) -> tuple[list[str], dict[Entry, LearnedEntry]]:
        """Return what was learned before; damaged parts are left out."""
        state = self._store.load(STATE)
        if self._cpu_model is None or (
                state.get('cpu_model') != self._cpu_model):
            return [], {}
        classes, rows = state.get('classes'), state.get('entries')
        names = [one for one in _list(classes)
                 if isinstance(one, str) and one][:MOST_LEARNED]
        entries = {}
        for row in _list(rows):
            if (isinstance(row, list) and len(row) == 5
                    and all(isinstance(one, str) for one in row[:3])
                    and (entry := LearnedEntry.parse(row[3], row[4]))):
                entries[row[0], row[1], row[2]] = entry
        return names, entries


def _other_model(profiles: WorkloadProfiles, cpu_model: str | None) -> str:
    measured = cpu_model_of(profiles)
    if measured is None or measured == cpu_model:
        return ''
    return (f'the profiles were measured on {measured}, and the CPU model of '
            f'this host is {cpu_model or "not known"}')


def _list(value: object) -> list[typing.Any]:
    return value if isinstance(value, list) else []
