# SPDX-License-Identifier: Apache-2.0

"""Limits of a secondary's disks and network interfaces, through libvirt.

QEMU throttles the requests of a disk, independent of the storage behind it.
For an interface, libvirt limits its tap on the host.  Unlike limits of control
groups, these limits are part of the domain, and move with it in a migration
or a resume.  Therefore the original limits are recorded in the metadata of
the domain before the first change.  The record moves with the limits, and any
agent finds it.

libvirt's setters wait up to 30 s for an operation on the same domain, and for
ever if libvirtd hangs.  Therefore a few threads call them, one guest each.  A
call that hangs delays no control step, only the limits of guests.
"""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import json
import queue
import threading
import time
import typing
from xml.sax import saxutils  # nosec B406 (it escapes, and parses nothing)

from oslo_log import log as logging

from secondary_scheduler.agent.device_limits import (
    NOTHING,
    WORTH_RAISING,
    Devices,
    IoLimits,
    Values,
    are_near,
    fields_of,
    is_near,
    parse_record,
    values_of,
)
from secondary_scheduler.agent.domain_xml import LIMITS
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.libvirt_connection import close_connection

LOG = logging.getLogger(__name__)

#: Seconds after which the limits in force are read from libvirt again.
_READ_S = 60.0
#: Threads that set limits; each serves one guest at a time.
_WORKERS = 4
#: Seconds until limits that could not be set are tried again.
_RETRY_S = 5.0

# libvirt's constants, so that tests need no libvirt.
_LIVE = 1
_ELEMENT = 2
_NO_METADATA = 80
_NO_DOMAIN = 42

_Key = tuple[str, int, int, int]


def _key(guest: Secondary) -> _Key:
    return guest.uuid, guest.id, guest.pid, guest.started


@dataclasses.dataclass
class _GuestState:
    """Wanted and known limits of one guest.

    ``limits`` are wanted, ``done`` were set last.  ``original`` are those of
    its devices before the first change, ``now`` those in force, as read since
    ``read_at``.  ``busy`` while a thread sets its limits.
    """

    guest: Secondary
    limits: IoLimits = NOTHING
    done: IoLimits | None = None
    original: Devices | None = None
    now: Devices = dataclasses.field(default_factory=dict)
    read_at: float = 0.0
    retry_at: float = 0.0
    busy: bool = False


class Throttles:
    """Sets device limits of guests, on threads of its own.

    :param connect: returns a writable libvirt connection.  This call and all
        calls on the connection may hang.
    :param reread: makes the agent list the domains again and parse their XML.
    :param dry_run: log limits instead of setting them.
    """

    def __init__(self, connect: Callable[[], typing.Any],
                 reread: Callable[[], object], dry_run: bool = False,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._connect = connect
        self._reread = reread
        self._dry_run = dry_run
        self._clock = clock
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        self._connection: typing.Any = None
        self._guests: dict[str, _GuestState] = {}
        self._due: queue.SimpleQueue[_GuestState] = queue.SimpleQueue()
        self._workers: list[threading.Thread] = []
        self._problems: dict[str, str] = {}

    @property
    def problems(self) -> dict[str, str]:
        """Reasons why secondaries do not have their limits, by UUID."""
        with self._lock:
            return dict(self._problems)

    # -- wanted limits -----------------------------------------------------
    def request_limits(self, guest: Secondary, limits: IoLimits) -> None:
        """Set a guest's limits soon; a later call replaces an earlier one."""
        with self._lock:
            state = self._guests.get(guest.uuid)
            if state is None or _key(state.guest) != _key(guest):
                if limits == NOTHING and not guest.limited:
                    return      # no limit was ever set
                state = self._guests[guest.uuid] = _GuestState(guest)
            if state.guest.devices != guest.devices:
                state.done = None
            state.guest = guest
            if self._dry_run:
                if not are_near(state.limits, limits):
                    LOG.info('Would give %(uuid)s %(limits)s', {
                        'uuid': guest.uuid, 'limits': limits})
                    state.limits = limits
                return
            state.limits = limits
            now = self._clock()
            if state.busy or state.retry_at > now or (
                    state.done is not None and now - state.read_at <= _READ_S
                    and are_near(state.done, limits)):
                return
            state.busy = True
            self._due.put(state)
            self._start()

    def forget(self, uuids: typing.Container[str]) -> None:
        """Forget all guests but these."""
        with self._lock:
            for uuid in [one for one in self._guests if one not in uuids]:
                del self._guests[uuid]
                self._problems.pop(uuid, None)

    # -- the threads -------------------------------------------------------
    def _start(self) -> None:
        while len(self._workers) < _WORKERS:
            # At exit Python would wait for the threads of a pool.
            worker = threading.Thread(
                target=self._work, daemon=True,
                name=f'throttles-{len(self._workers)}')
            self._workers.append(worker)
            worker.start()

    def _work(self) -> None:
        while True:
            self._set_wanted(self._due.get())

    def _set_wanted(self, state: _GuestState) -> None:
        """Set a guest's limits until they are those wanted."""
        while True:
            limits, problem, done = state.limits, '', False
            try:
                done = self._set(state, limits)
            except Exception as exc:
                problem = str(exc) or type(exc).__name__
            with self._lock:
                if problem:
                    state.retry_at = self._clock() + _RETRY_S
                    state.now = {}
                state.done = limits if done else None
                if self._guests.get(state.guest.uuid) is state:
                    self._note(state.guest.uuid, problem)
                if not done or are_near(limits, state.limits):
                    state.busy = False
                    return

    def _note(self, uuid: str, problem: str) -> None:
        if not problem:
            self._problems.pop(uuid, None)
        elif self._problems.get(uuid) != problem:
            LOG.warning('Cannot limit the disks and interfaces of %(uuid)s: '
                        '%(reason)s', {'uuid': uuid, 'reason': problem})
            self._problems[uuid] = problem

    def release(self, guest: Secondary) -> None:
        """Restore the original limits of a guest, and wait for that.

        :raises Exception: any error of libvirt.
        """
        self._set(_GuestState(guest), NOTHING)

    # -- libvirt -----------------------------------------------------------
    def _open(self) -> typing.Any:
        with self._connecting:
            if self._connection is None or self._connection.isAlive() != 1:
                old, self._connection = self._connection, None
                close_connection(old)
                self._connection = self._connect()
            return self._connection

    def _set(self, state: _GuestState, limits: IoLimits) -> bool:
        """Set those limits of a guest that are not in force yet.

        :returns: False if it must be done again.  Then the original limits
            were just recorded, and the list of domains has not shown it yet.
            An agent that started now would not restore them.
        :raises Exception: any error of libvirt.
        """
        connection, guest = self._open(), state.guest
        domain = _domain(connection, guest)
        if domain is None:
            return True     # the guest has ended
        if state.original is None:
            state.original = _read_record(domain)
        if self._clock() - state.read_at > _READ_S:
            state.read_at, state.now = self._clock(), {}
        failures: list[str] = []
        for device in guest.devices:
            if device not in state.now and (
                    limits != NOTHING or device in state.original):
                with _collected(failures, device):
                    state.now[device] = _read_limits(domain, device)
        if limits != NOTHING:
            self._record(domain, state)
            if state.original and not guest.limited:
                self._reread()
                return False
        for device in guest.devices:
            if device in state.original and device in state.now:
                with _collected(failures, device):
                    self._set_device(connection, domain, state, device,
                                     limits)
        if failures:
            raise OSError('; '.join(failures))
        if limits == NOTHING and state.original:
            domain.setMetadata(_ELEMENT, None, None, LIMITS, _LIVE)
            state.original = {}
            self._reread()
        return True

    @staticmethod
    def _record(domain: typing.Any, state: _GuestState) -> None:
        """Record the present limits of devices that have no record yet."""
        original = {**state.now, **(state.original or {})}
        if original != state.original:
            domain.setMetadata(
                _ELEMENT, '<limits>' + saxutils.escape(json.dumps(
                    original, sort_keys=True)) + '</limits>', 'secondary',
                LIMITS, _LIVE)
            state.original = original

    @staticmethod
    def _set_device(connection: typing.Any, domain: typing.Any,
                    state: _GuestState, device: str,
                    limits: IoLimits) -> None:
        original, now = (state.original or {})[device], state.now[device]
        kind = device.partition(' ')[0]
        alike = sum(one.startswith(kind) for one in state.guest.devices)
        wanted = values_of(device, original, limits, alike)
        if all(is_near(now[name], value, WORTH_RAISING[kind]) and (
                value != original.get(name, 0) or value == now[name])
               for name, value in wanted.items()):
            return
        # Last check that the domain still runs as the same guest.
        if _domain(connection, state.guest) is not None:
            _set_limits(domain, device, wanted)
            state.now[device] = {**now, **wanted}


@contextlib.contextmanager
def _collected(failures: list[str], device: str) -> Iterator[None]:
    """Collect a failure instead of raising it: go on with other devices."""
    try:
        yield
    except Exception as exc:
        failures.append(f'{device}: {exc}')


def _domain(connection: typing.Any, guest: Secondary) -> typing.Any:
    """Return the running domain of a guest, None if there is none."""
    try:
        domain = connection.lookupByUUIDString(guest.uuid)
    except Exception as exc:
        if _code(exc) == _NO_DOMAIN:
            return None
        raise
    return domain if domain.ID() == guest.id else None


def _code(exc: Exception) -> int | None:
    ask = getattr(exc, 'get_error_code', None)
    return ask() if ask else None


def _read_record(domain: typing.Any) -> Devices:
    """Return the recorded original limits of a domain's devices.

    :raises Unrecorded: if the metadata element is not such a record.
    """
    try:
        text = domain.metadata(_ELEMENT, LIMITS, _LIVE)
    except Exception as exc:
        if _code(exc) == _NO_METADATA:
            return {}
        raise
    return parse_record(text)


def _read_limits(domain: typing.Any, device: str) -> Values:
    """Return the limits of a device that are in force."""
    kind, _, name = device.partition(' ')
    found = (domain.blockIoTune(name, _LIVE) if kind == 'disk'
             else domain.interfaceParameters(name, _LIVE))
    return {field: int(found.get(field, 0)) for field in fields_of(device)}


def _set_limits(domain: typing.Any, device: str, values: Values) -> None:
    kind, _, name = device.partition(' ')
    if kind == 'disk':
        domain.setBlockIoTune(name, values, _LIVE)
    else:
        domain.setInterfaceParameters(name, values, _LIVE)
