# SPDX-License-Identifier: Apache-2.0

"""List of the guests of this host, as secondaries and primaries.

A thread lists the domains of libvirt.  The secondaries are saved on disk, so
that an agent that starts while libvirtd is dead still knows them.

Unknown means primary.  A guest is a secondary only if its domain XML says so
(``domain_xml``), and if its QEMU process has been verified (``processes``).
"""

from collections.abc import Callable, Iterable, Iterator
import dataclasses
import functools
import os
import threading
import time
import typing

from oslo_log import log as logging

from secondary_scheduler.agent import processes
from secondary_scheduler.agent import store as agent_store
from secondary_scheduler.agent.domain_xml import (
    DomainGuest,
    OtherGuest,
    is_plausible,
    read_guest,
    read_other_guest,
)
from secondary_scheduler.agent.libvirt_connection import close_connection
from secondary_scheduler.agent.nova_metadata import UnreadableDomain
from secondary_scheduler.agent.problems import Problems

LOG = logging.getLogger(__name__)

CACHE = 'domains.json'

# libvirt's constants, so that tests need no libvirt.
_ACTIVE, _PAUSED = 1, 32

#: Seconds after which libvirtd counts as hanging; a listing takes
#: milliseconds.
_HANGS_S = 10.0

#: Seconds between two checks of whether a QEMU process has started or ended.
_POLL_S = 0.1

#: Seconds after a change for which a process that was not found may be about
#: to start or to end.
_SETTLES_S = 5.0


@dataclasses.dataclass(frozen=True)
class Primary(OtherGuest):
    """A running guest that is no secondary, and its verified process."""

    pid: int
    started: int


@dataclasses.dataclass(frozen=True)
class Secondary(DomainGuest):
    """A running secondary, with its libvirt id and its verified process."""

    id: int
    pid: int
    started: int
    paused: bool = False


_FIELDS = {field.name: field.type for field in dataclasses.fields(Secondary)}


def _fits(value: object, kind: object) -> bool:
    """Return whether a value is of a field's type; simple types only."""
    if typing.get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(
            _fits(one, typing.get_args(kind)[0]) for one in value)
    return not isinstance(kind, type) or type(value) is kind


def _from_cache(data: object) -> Secondary | None:
    """Return a secondary from its saved form, None if that is invalid.

    An agent of another version may have saved more fields, or fewer.
    """
    if not isinstance(data, dict):
        return None
    known: dict[str, typing.Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in data.items() if name in _FIELDS}
    if not all(_fits(value, _FIELDS[name]) for name, value in known.items()):
        return None
    try:
        guest = Secondary(**known)
    except TypeError:
        return None
    return guest if is_plausible(guest) else None


class Domains:
    """The running secondaries and primaries of this host.

    :param connect: returns a libvirt connection; may raise or hang.
    :param period: seconds between two listings.
    :param changed: called after each listing, on the same thread.
    """

    def __init__(
        self,
        connect: Callable[[], typing.Any],
        store: agent_store.StateStore,
        run_dir: str,
        period: float = 2.0,
        proc: str = '/proc',
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._connect = connect
        self._store = store
        self._run_dir = run_dir
        self._period = period
        self._proc = proc
        self._changed = changed
        self._connection: typing.Any = None
        self._lock = threading.Lock()
        #: Set to list at once.
        self._again = threading.Event()
        self._stopping = threading.Event()
        #: Parsed XML of each running domain, by UUID and libvirt id.
        self._parsed: dict[tuple[str, int],
                           DomainGuest | OtherGuest | None] = {}
        #: Domains with an XML that cannot be read.
        self._unreadable: set[tuple[str, int]] = set()
        #: Reasons why the last listing could not verify a domain, by UUID.
        self._unverified = Problems(functools.partial(
            LOG.warning, 'Domain %s counts as a primary: %s'))
        self._parse_again = False
        self._known: dict[str, Secondary] = self._cached()
        self._others: tuple[Primary, ...] = ()
        self.hostname: str | None = None
        #: Number of guests that count as primaries, None before the first
        #: listing.
        self.primaries: int | None = None
        #: UUIDs of the guests that count as primaries, by the last listing.
        self.unmarked: frozenset[str] = frozenset()
        #: Number of guests that could not be read or verified.
        self.unreadable = 0
        self._listed_at: float | None = None
        self._failure = ''

    # -- the last listing --------------------------------------------------
    def secondaries(self) -> tuple[Secondary, ...]:
        """Return the secondaries with a process that is alive now."""
        with self._lock:
            known = tuple(self._known.values())
        return tuple(filter(self._alive, known))

    def others(self) -> tuple[Primary, ...]:
        """Return the primaries of the last listing.

        Those with an unreadable XML or without a verified process are left
        out.
        """
        return self._others

    @property
    def listed(self) -> bool:
        """Whether libvirt answers: it has neither failed nor hung."""
        at = self._listed_at
        return at is not None and (
            time.monotonic() - at < _HANGS_S + self._period)

    # -- the cache ---------------------------------------------------------
    def _cached(self) -> dict[str, Secondary]:
        """Return the secondaries saved on disk that still run."""
        found = {}
        cached = self._store.load(CACHE).get('secondaries', [])
        for data in cached if isinstance(cached, list) else [None]:
            guest = _from_cache(data)
            if guest is None:
                LOG.error('Ignoring a secondary in %s that cannot be read',
                          self._store.path(CACHE))
            elif self._alive(guest) and processes.is_guest(
                    guest.pid, guest.uuid, guest.name, self._proc):
                found[guest.uuid] = guest
        return found

    def _remember(self, found: Iterable[Secondary]) -> None:
        known = {guest.uuid: guest for guest in found}
        with self._lock:
            if known == self._known:
                return
            self._known = known
        self._store.save(CACHE, {'secondaries': [
            dataclasses.asdict(guest) for guest in known.values()]})

    # -- the listing -------------------------------------------------------
    def refresh(self) -> None:
        """List the domains once.

        :raises Exception: any error of libvirt; the last listing then stays.
        """
        if self._connection is None:
            self._connection = self._connect()
            self._parse_again = True
            self.hostname = self._connection.getHostname()
            self._subscribe(self._connection)
        if self._parse_again:
            self._parse_again, self._parsed, self._unreadable = (
                False, {}, set())
        found: list[Secondary] = []
        others: list[Primary] = []
        seen: dict[tuple[str, int], DomainGuest | OtherGuest | None] = {}
        unmarked: set[str] = set()
        unverified: set[str] = set()
        # One call, instead of one for the state of each domain.
        paused = {domain.UUIDString() for domain
                  in self._connection.listAllDomains(_PAUSED)}
        for domain in self._connection.listAllDomains(_ACTIVE):
            uuid, number = domain.UUIDString(), domain.ID()
            try:
                guest = self._guest(domain, uuid, number)
                seen[uuid, number] = guest
                secondary = (self._verified(guest, number, uuid in paused)
                             if isinstance(guest, DomainGuest) else None)
                if isinstance(guest, OtherGuest):
                    others += self._running(uuid, guest)
            except Exception as exc:
                # The domain may just have ended: go on with the others.
                unverified.add(uuid)
                self._unverified.note(uuid, str(exc))
                secondary = None
            if secondary:
                found.append(secondary)
            else:
                unmarked.add(uuid)
        self._parsed = seen
        self._unreadable &= seen.keys()
        self.primaries, self._others = len(unmarked), tuple(others)
        self.unmarked = frozenset(unmarked)
        self._unverified.forget_others(unverified)
        self.unreadable = len(unverified) + len(self._unreadable)
        self._remember(found)
        self._listed_at, self._failure = time.monotonic(), ''

    def _guest(self, domain: typing.Any, uuid: str,
               number: int) -> DomainGuest | OtherGuest | None:
        """Return a domain's parsed XML; parse it once for each start.

        A domain gets a new id with each start, and Nova restarts it to change
        its flavor.
        """
        if (uuid, number) in self._parsed:
            return self._parsed[uuid, number]
        xml = domain.XMLDesc(0)
        try:
            guest = read_guest(xml, uuid)
        except UnreadableDomain as exc:
            LOG.warning('Domain %(uuid)s counts as a primary, since its XML '
                        'cannot be read: %(reason)s',
                        {'uuid': uuid, 'reason': exc})
            self._unreadable.add((uuid, number))
            guest = None
        return guest or read_other_guest(xml)

    def _running(self, uuid: str, other: OtherGuest) -> Iterator[Primary]:
        """Yield a primary with its process, if that is verified."""
        known = next((one for one in self._others if one.name == other.name
                      and self._alive(one)), None)
        if known is None and (process := processes.find_qemu(
                self._run_dir, uuid, other.name, self._proc)):
            known = Primary(other.name, other.memory, *process)
        if known is not None:
            # Its XML may have been parsed again.
            yield dataclasses.replace(known, memory=other.memory,
                                      pins=other.pins)

    def _alive(self, guest: Primary | Secondary) -> bool:
        return processes.start_time(guest.pid, self._proc) == guest.started

    def _verified(self, guest: DomainGuest, number: int, paused: bool
                  ) -> Secondary:
        """Return a secondary with its process.

        :raises UnreadableDomain: if the process cannot be verified.
        """
        process = processes.find_qemu(
            self._run_dir, guest.uuid, guest.name, self._proc)
        if process is None:
            raise UnreadableDomain('its QEMU process was not found')
        return Secondary(**dataclasses.asdict(guest), id=number,
                         pid=process[0], started=process[1], paused=paused)

    def _subscribe(self, connection: typing.Any) -> None:
        """Subscribe to events of libvirt.

        Without events, changes are found by polling only.
        """
        try:
            connection.domainEventRegisterAny(
                None, 0, self._event, None)   # LIFECYCLE
            connection.domainEventRegisterAny(
                None, 23, self._metadata_event, None)   # METADATA_CHANGE
        except Exception as exc:
            LOG.warning('No events from libvirt: %s', exc)

    def _event(self, connection: object, domain: object, *detail: object
               ) -> None:
        self._again.set()

    def _metadata_event(self, connection: object, domain: typing.Any,
                        *detail: object) -> None:
        self.reread()

    def reread(self) -> None:
        """List at once, and parse the XML of each domain again."""
        self._parse_again = True
        self._again.set()

    # -- the thread --------------------------------------------------------
    def start(self) -> None:
        """List on a thread of its own until ``stop``."""
        threading.Thread(target=self._run, name='domains',
                         daemon=True).start()

    def stop(self) -> None:
        """Stop listing, without waiting for a call that hangs in libvirt."""
        self._stopping.set()
        self._again.set()

    def _run(self) -> None:
        processes.show_thread_name()
        settled = time.monotonic() + _SETTLES_S
        while not self._stopping.is_set():
            self._again.clear()
            changed_at = self._changed_at()
            try:
                self.refresh()
            except Exception as exc:
                self._listed_at = None
                if self._failure != str(exc):
                    LOG.warning('libvirt does not answer, going on with the '
                                'last known secondaries: %s', exc)
                self._failure = str(exc)
                self._drop_connection()
            self._changed()
            # libvirt lists a guest before its QEMU has the command line by
            # which it is verified, and no event follows: list again soon.
            now = time.monotonic()
            due = now + (_POLL_S if self._unverified.present()
                         and now < settled else self._period)
            while (not self._again.wait(_POLL_S) and time.monotonic() < due
                   and self._changed_at() == changed_at):
                pass
            if time.monotonic() < due:
                settled = time.monotonic() + _SETTLES_S

    def _changed_at(self) -> int | None:
        """Return the time of the last change of libvirt's run directory.

        libvirt changes it when a QEMU starts or ends, and when the state of a
        guest changes.  Its event for a start comes only when the guest runs.
        Until then QEMU may take all CPUs of the host: to resume a guest it
        reads all of its memory.
        """
        try:
            return os.stat(self._run_dir).st_mtime_ns
        except OSError:
            return None

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        close_connection(connection)
