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
from xml.sax import saxutils

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
class _Held:
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
        self._held: dict[str, _Held] = {}
        self._due: queue.SimpleQueue[_Held] = queue.SimpleQueue()
        self._workers: list[threading.Thread] = []
        self._problems: dict[str, str] = {}

    @property
    def problems(self) -> dict[str, str]:
        """Reasons why secondaries do not have their limits, by UUID."""
        with self._lock:
            return dict(self._problems)

    # -- wanted limits -----------------------------------------------------
    def want(self, guest: Secondary, limits: IoLimits) -> None:
        """Set a guest's limits soon; a later call replaces an earlier one."""
        with self._lock:
            held = self._held.get(guest.uuid)
            if held is None or _key(held.guest) != _key(guest):
                if limits == NOTHING and not guest.limited:
                    return      # no limit was ever set
                held = self._held[guest.uuid] = _Held(guest)
            if held.guest.devices != guest.devices:
                held.done = None
            held.guest = guest
            if self._dry_run:
                if not are_near(held.limits, limits):
                    LOG.info('Would give %(uuid)s %(limits)s', {
                        'uuid': guest.uuid, 'limits': limits})
                    held.limits = limits
                return
            held.limits = limits
            now = self._clock()
            if held.busy or held.retry_at > now or (
                    held.done is not None and now - held.read_at <= _READ_S
                    and are_near(held.done, limits)):
                return
            held.busy = True
            self._due.put(held)
            self._start()

    def forget(self, uuids: typing.Container[str]) -> None:
        """Forget all guests but these."""
        with self._lock:
            for uuid in [one for one in self._held if one not in uuids]:
                del self._held[uuid]
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

    def _set_wanted(self, held: _Held) -> None:
        """Set a guest's limits until they are those wanted."""
        while True:
            limits, problem, done = held.limits, '', False
            try:
                done = self._set(held, limits)
            except Exception as exc:
                problem = str(exc) or type(exc).__name__
            with self._lock:
                if problem:
                    held.retry_at = self._clock() + _RETRY_S
                    held.now = {}
                held.done = limits if done else None
                if self._held.get(held.guest.uuid) is held:
                    self._note(held.guest.uuid, problem)
                if not done or are_near(limits, held.limits):
                    held.busy = False
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
        self._set(_Held(guest), NOTHING)

    # -- libvirt -----------------------------------------------------------
    def _open(self) -> typing.Any:
        with self._connecting:
            if self._connection is None or self._connection.isAlive() != 1:
                old, self._connection = self._connection, None
                close_connection(old)
                self._connection = self._connect()
            return self._connection

    def _set(self, held: _Held, limits: IoLimits) -> bool:
        """Set those limits of a guest that are not in force yet.

        :returns: False if it must be done again.  Then the original limits
            were just recorded, and the list of domains has not shown it yet.
            An agent that started now would not restore them.
        :raises Exception: any error of libvirt.
        """
        connection, guest = self._open(), held.guest
        domain = _domain(connection, guest)
        if domain is None:
            return True     # the guest has ended
        if held.original is None:
            held.original = _read_record(domain)
        if self._clock() - held.read_at > _READ_S:
            held.read_at, held.now = self._clock(), {}
        failures: list[str] = []
        for device in guest.devices:
            if device not in held.now and (
                    limits != NOTHING or device in held.original):
                with _collected(failures, device):
                    held.now[device] = _read_limits(domain, device)
        if limits != NOTHING:
            self._record(domain, held)
            if held.original and not guest.limited:
                self._reread()
                return False
        for device in guest.devices:
            if device in held.original and device in held.now:
                with _collected(failures, device):
                    self._set_device(connection, domain, held, device,
                                     limits)
        if failures:
            raise OSError('; '.join(failures))
        if limits == NOTHING and held.original:
            domain.setMetadata(_ELEMENT, None, None, LIMITS, _LIVE)
            held.original = {}
            self._reread()
        return True

    @staticmethod
    def _record(domain: typing.Any, held: _Held) -> None:
        """Record the present limits of devices that have no record yet."""
        original = {**held.now, **(held.original or {})}
        if original != held.original:
            domain.setMetadata(
                _ELEMENT, '<limits>' + saxutils.escape(json.dumps(
                    original, sort_keys=True)) + '</limits>', 'secondary',
                LIMITS, _LIVE)
            held.original = original

    @staticmethod
    def _set_device(connection: typing.Any, domain: typing.Any, held: _Held,
                    device: str, limits: IoLimits) -> None:
        original, now = (held.original or {})[device], held.now[device]
        kind = device.partition(' ')[0]
        alike = sum(one.startswith(kind) for one in held.guest.devices)
        wanted = values_of(device, original, limits, alike)
        if all(is_near(now[name], value, WORTH_RAISING[kind]) and (
                value != original.get(name, 0) or value == now[name])
               for name, value in wanted.items()):
            return
        # Last check that the domain still runs as the same guest.
        if _domain(connection, held.guest) is not None:
            _set_limits(domain, device, wanted)
            held.now[device] = {**now, **wanted}


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
