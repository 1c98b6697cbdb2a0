# SPDX-License-Identifier: Apache-2.0

"""Trials of secondaries on this host (see ``cpu_affinity.suspects``).

The local trigger does not know of trials, so none of them delays the last
resort.  Only the restraint of all secondaries waits for the answer to a trial,
and at most for half of the time limit of each policy that fails.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from oslo_config import cfg
from oslo_log import log as logging

from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.floors import Floors, Reason
from secondary_scheduler.agent.gauges import Gauges
from secondary_scheduler.agent.policy_source import HostPolicies
from secondary_scheduler.cpu_affinity.onsets import Activity
from secondary_scheduler.cpu_affinity.suspects import (
    SignalState,
    SuspectOptions,
    Suspects,
    Suspicion,
    Verdict,
)
from secondary_scheduler.model import resources
from secondary_scheduler.model.reports import PolicyReport
from secondary_scheduler.policies import language

LOG = logging.getLogger(__name__)


def read_suspect_options(conf: cfg.ConfigOpts) -> SuspectOptions:
    """Return the options of trials."""
    own = conf.secondary_agent
    return SuspectOptions(own.suspect_trial, own.suspect_trials,
                          own.suspect_confirmation)


def signal_state(reports: Iterable[PolicyReport]) -> SignalState:
    """Return the state of all signals of harm.

    The value counts, and not the state of the policy, because a policy holds
    while all secondaries are at the floor.
    """
    signals = [one for one in reports if language.is_signal(one.resource)]
    failing = [one for one in signals if one.usage is not None
               and one.usage > one.threshold]
    unknown = any(one.usage is None for one in signals)
    return SignalState(
        None if unknown else bool(failing),
        min((one.timelimit // 2 - one.failed for one in failing), default=0))


def wanted_resources(policies: HostPolicies, suspects: bool) -> set[str]:
    """Return the resources to measure.

    :param suspects: whether there are trials.  They compare a signal with the
        use of links and disks by secondaries.
    """
    found = {one.resource for one in policies.policies}
    if suspects and any(map(language.is_signal, found)):
        found.update(resources.RATES)
    return found


class SuspectControl:
    """Takes secondaries on trial, and confirmed ones, to the floor.

    ``floor`` writes the floor of a guest at once.  ``step`` is called once a
    second, after the check of the policies.
    """

    def __init__(self, options: SuspectOptions,
                 guests: Callable[[], Sequence[Secondary]], gauges: Gauges,
                 floors: Floors, floor: Callable[[Secondary], object]
                 ) -> None:
        self._suspects = Suspects(options)
        self._guests = guests
        self._gauges = gauges
        self._floors = floors
        self._floor = floor
        #: Reasons of secondaries that are at the floor.
        self._reasons: dict[str, Reason] = {}
        #: Verdict on each secondary that was on trial lately.
        self.verdicts: Mapping[str, Suspicion] = {}

    def is_confirmed(self, uuid: str) -> bool:
        """Return whether a secondary makes the signals fail."""
        found = self.verdicts.get(uuid)
        return found is not None and found.verdict is Verdict.CONFIRMED

    def step(self, reports: Sequence[PolicyReport], cpu: Mapping[str, float]
             ) -> bool:
        """React to one second.

        :param cpu: use of CPU by each secondary, in percent of the host.
        :returns: whether the restraint of all secondaries should wait.
        """
        guests = {guest.uuid: guest for guest in self._guests()}
        reaction = self._suspects.step(signal_state(reports), {
            uuid: self._activity(uuid, cpu) for uuid, guest in guests.items()
            if self._is_triable(guest)},
            {uuid for uuid, guest in guests.items() if not guest.paused})
        verdicts = self._suspects.verdicts
        self._log(verdicts)
        self._set_floors({
            uuid: Reason.TRIAL if verdicts[uuid].verdict is Verdict.TRIAL
            else Reason.SUSPECT for uuid in reaction.floored}, guests)
        self.verdicts = verdicts
        return reaction.waits

    def _set_floors(self, reasons: dict[str, Reason],
                    guests: Mapping[str, Secondary]) -> None:
        """Take secondaries to the floor, and release others."""
        for uuid in reasons.keys() & guests.keys():
            self._floors.add(uuid, reasons[uuid])
            if uuid not in self._reasons:
                self._floor(guests[uuid])
        for uuid, reason in self._reasons.items():
            if reasons.get(uuid) is not reason:
                self._floors.drop(uuid, reason)
        self._reasons = reasons

    def _is_triable(self, guest: Secondary) -> bool:
        """Return whether a guest can show that it does harm.

        Neither a guest at the floor for another reason can, nor a paused one.
        A trial would slow an operation of Nova.
        """
        return (not guest.paused and not self._floors.operated(guest.uuid)
                and self._floors.reasons(guest.uuid) <= {Reason.TRIAL})

    def _activity(self, uuid: str, cpu: Mapping[str, float]) -> Activity:
        """Return the known uses of a secondary, in percent of the host."""
        found = {language.CPU: cpu[uuid]} if uuid in cpu else {}
        for resource in resources.RATES:
            reading = self._gauges.latest(resource)
            if reading is not None and uuid in reading.instances:
                found[resource] = reading.instances[uuid]
        return found

    def _log(self, verdicts: Mapping[str, Suspicion]) -> None:
        for uuid, one in verdicts.items():
            before = self.verdicts.get(uuid)
            if before is None or before.verdict is not one.verdict:
                LOG.info('Suspect %(uuid)s: %(verdict)s; its use of '
                         '%(resource)s resembles the signal most', {
                             'uuid': uuid, 'verdict': one.verdict,
                             'resource': one.resource or 'nothing known'})
