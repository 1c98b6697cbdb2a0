# SPDX-License-Identifier: Apache-2.0

"""Use of instances before a limit held them.

An instance that a limit holds wants all of its vCPUs.  But agents limit all
instances of a host for some seconds while one of them boots or arrives.  The
demand that is stored with a suspension must not follow from that.
"""

from collections.abc import Callable
import typing

from secondary_scheduler.model import units
from secondary_scheduler.model.reports import HostReport, InstanceReport

#: Part of its limit from which an instance counts as held by it.
HELD = 0.8
#: Seconds of a limit after which it counts for the demand.
SETTLED_S = 30.0


def is_held(seen: InstanceReport) -> bool:
    """Return whether an instance is limited below what it wants."""
    return seen.floored or (seen.cap is not None and seen.cpu is not None
                            and seen.cpu >= HELD * seen.cap)


class _Use(typing.NamedTuple):
    """Last use without a limit in CPUs, and the time of the limit since."""

    cpus: float
    held_at: float | None


class UnlimitedUse:
    """Last use without a limit of each instance, from the reports.

    :param clock: returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._hosts: dict[str, dict[str, _Use]] = {}

    def note(self, report: HostReport) -> None:
        """Take in the report of a host."""
        now, before = self._clock(), self._hosts.get(report.host, {})
        found: dict[str, _Use] = {}
        for one in report.instances:
            last = before.get(one.uuid)
            if not is_held(one):
                if one.cpu is not None:
                    found[one.uuid] = _Use(units.to_amount(
                        max(0.0, one.cpu), report.cpus), None)
            elif last is not None:
                found[one.uuid] = last if last.held_at is not None else (
                    last._replace(held_at=now))
        self._hosts[report.host] = found

    def recent(self) -> dict[str, float]:
        """Return the CPUs of instances that no limit has held for long."""
        now = self._clock()
        return {uuid: use.cpus for host in list(self._hosts.values())
                for uuid, use in host.items()
                if use.held_at is None or now < use.held_at + SETTLED_S}
