# SPDX-License-Identifier: Apache-2.0

"""Members that cannot follow the target configuration, and so stay.

A member that stays holds room that others may have wanted.  So other members
stay as well, until all arrivals of the remaining ones fit.  State changes of
a lease are kept together.
"""

from collections import defaultdict
from collections.abc import Iterable

from secondary_scheduler.decisions.free_room import FreeRoom
from secondary_scheduler.decisions.packing import can_start
from secondary_scheduler.decisions.tasks import find_kind
from secondary_scheduler.model.configuration import (
    Configuration,
    Member,
    natural_key,
)
from secondary_scheduler.model.operation_kinds import OperationKind

_ARRIVALS = {OperationKind.MIGRATE, OperationKind.RESUME, OperationKind.BOOT}
#: Changes of a lease that happen for all its members or for none.
_WHOLE = {OperationKind.SUSPEND, OperationKind.RESUME, OperationKind.BOOT}


def find_immovable(current: Configuration, target: Configuration
                   ) -> list[str]:
    """Return the members for which no operation of the target is allowed."""
    return [name for name, old in current.members.items()
            if (kind := find_kind(old, target.members[name])) is not None
            and not _is_allowed(current, kind, old, target.members[name])]


def _is_allowed(current: Configuration, kind: OperationKind, old: Member,
                new: Member) -> bool:
    if old.fixed:
        return False
    if kind not in _ARRIVALS:
        return True
    migrates = kind is OperationKind.MIGRATE or (
        kind is OperationKind.RESUME and current.resumes_in_place
        and old.host != new.host)
    return (new.host in current.capacity and new.host not in current.closed
            and (old.migratable or not migrates)
            and can_start(current, old))


def keep_members(current: Configuration, target: Configuration,
                 stays: Iterable[str]) -> Configuration:
    """Return the target in which some members stay as they are.

    Members stay also if their arrival no longer fits: migrations first, then
    whole leases.
    """
    return _Revision(current, target).keep(stays)


class _Revision:

    def __init__(self, current: Configuration, target: Configuration) -> None:
        self.current = current
        self.target = target
        self.kinds: dict[str, OperationKind] = {}
        self.arrivals: dict[str, dict[str, None]] = defaultdict(dict)
        self.leases: dict[str, list[str]] = defaultdict(list)
        for name, old in current.members.items():
            new = target.members[name]
            kind = find_kind(old, new)
            if kind is None:
                continue
            self.kinds[name] = kind
            if kind in _ARRIVALS:
                self.arrivals[str(new.host)][name] = None
            if kind in _WHOLE:
                self.leases[old.lease].append(name)
        self.room = FreeRoom.of(target)
        self.kept: dict[str, Member] = {}

    def keep(self, stays: Iterable[str]) -> Configuration:
        for stay in stays:
            self._keep(stay)
        suspects = dict.fromkeys(self.arrivals)
        while suspects:
            host = next(iter(suspects))
            name = self._find_misfit(host)
            if name is None:
                del suspects[host]
            else:
                suspects |= dict.fromkeys(self._keep(name))
        return self.target.with_members(self.kept.values())

    def _keep(self, name: str) -> list[str]:
        """Keep a member; return the hosts that hold more by that."""
        if name in self.kept or name not in self.kinds:
            return []
        old, new = self.current.members[name], self.target.members[name]
        self.kept[name] = old
        kind = self.kinds[name]
        if kind in _ARRIVALS:
            del self.arrivals[str(new.host)][name]
        if new.held is not None:
            self.room.give(str(new.host), new.held)
        if old.held is not None:
            self.room.take(str(old.host), old.held)
        hosts = [] if old.host is None else [old.host]
        if kind in _WHOLE:
            for other in self.leases[old.lease]:
                hosts += self._keep(other)
        return hosts

    def _find_misfit(self, host: str) -> str | None:
        """Return an arrival that does not fit on a host, None without one."""
        free = self.room.free.get(host)
        over = (None if free is None else
                [number for number, most in enumerate(free) if most < 0])
        misfits = [
            name for name in self.arrivals[host]
            if over is None or any(
                self.target.members[name].demand[number] for number in over)]
        return min(misfits, default=None, key=lambda name: (
            self.kinds[name] is not OperationKind.MIGRATE,
            -self.target.members[name].memory_mb, natural_key(name), name))
