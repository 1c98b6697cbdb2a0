"""Limits of a secondary's disks and network interfaces, through libvirt.

QEMU throttles the requests of a disk whatever is behind it, and libvirt sets
up the host's end of an interface, a tap.  Unlike the control groups' limits,
these are parts of the domain: a migration and a resume bring them along.  So
what a domain had before is noted in its own metadata, before the first write:
whatever keeps a limit keeps what it has to be undone to, and any agent finds
it.

libvirt's setters wait up to 30 s for an operation on the same domain, and for
ever if libvirtd hangs.  So each guest's writes are done by one of a few
threads, which hold up nobody but the guests that wait for them.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
import json
import queue
import threading
import time
import typing
from xml.etree import ElementTree  # nosec B405: see _parse
from xml.sax import saxutils

from oslo_log import log as logging

from secondary_scheduler.agent.domains import LIMITS, Secondary, close

LOG = logging.getLogger(__name__)

#: What QEMU lets through at once when a limit is set, and so do we of what
#: comes from an interface: what the limit allows in a tenth of a second.  In a
#: second that is a tenth more, so limits are set lower by that.
_BURST = 0.1
#: But a packet must go through, which a guest may send in pieces of 64 KiB.
_LEAST_BURST_KB = 128
#: What a limit may differ from the one in force, as part of it, and be below
#: what it could be: libvirt makes all of an interface's anew, with some
#: processes, and for that long there is none.
_HYSTERESIS = 0.05
_WORTH_RAISING = {'disk': 0.05, 'interface': 0.2}
#: Seconds after which libvirt is asked what is in force.
_ASK_S = 60.0
#: Guests that are written to at the same time.
_WORKERS = 4
#: Seconds until a guest that could not be written to is tried again.
_AGAIN_S = 5.0

# libvirt's constants, so that tests need no libvirt.
_LIVE = 1
_ELEMENT = 2
_NO_METADATA = 80
_NO_DOMAIN = 42

_KB = 1000      # of libvirt's rates of interfaces, which are tc's

Values = dict[str, int]
#: By ``disk NAME`` or ``interface NAME``.
Devices = dict[str, Values]

_DISK_FIELDS = tuple(f'{way}_{unit}_sec{most}' for way in (
    'total', 'read', 'write') for unit in ('bytes', 'iops')
    for most in ('', '_max'))
_INTERFACE_FIELDS = tuple(f'{way}.{kind}' for way in ('inbound', 'outbound')
                          for kind in ('average', 'peak', 'burst'))


@dataclasses.dataclass(frozen=True)
class IoLimits:
    """What a guest may move in a second; None takes the limit away.

    ``net_*`` and ``disk_*`` in bytes, ``*_iops`` in operations; ``in`` is
    what the host receives and writes to its disks.
    """

    net_in: float | None = None
    net_out: float | None = None
    disk_in: float | None = None
    disk_out: float | None = None
    disk_in_iops: float | None = None
    disk_out_iops: float | None = None


NOTHING = IoLimits()

_Key = tuple[str, int, int, int]


def _key(guest: Secondary) -> _Key:
    return guest.uuid, guest.id, guest.pid, guest.started


@dataclasses.dataclass
class _Held:
    """One guest: what it shall have, and what is known of what it has.

    ``done`` is what was set last, ``first`` what its devices had before us,
    ``now`` what they have; ``asked`` is when the last began to be known.
    """

    guest: Secondary
    limits: IoLimits = NOTHING
    done: IoLimits | None = None
    first: Devices | None = None
    now: Devices = dataclasses.field(default_factory=dict)
    asked: float = 0.0
    retry: float = 0.0
    busy: bool = False


class Unrecorded(ValueError):
    """What a domain had at first cannot be known."""


class Throttles:
    """Sets limits of guests; ``dry_run`` logs what it would set instead.

    ``connect`` returns a libvirt connection that takes orders; it and all
    that is asked of it may hang.  ``reread`` has the list of domains made
    anew, XML included.
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
        """Why secondaries have other limits than they should, by UUID."""
        with self._lock:
            return dict(self._problems)

    # -- what is wanted ----------------------------------------------------
    def want(self, guest: Secondary, limits: IoLimits) -> None:
        """Have a guest's limits set soon; the last word counts."""
        with self._lock:
            held = self._held.get(guest.uuid)
            if held is None or _key(held.guest) != _key(guest):
                if limits == NOTHING and not guest.limited:
                    return      # and nothing of ours is there
                held = self._held[guest.uuid] = _Held(guest)
            if held.guest.devices != guest.devices:
                held.done = None
            held.guest = guest
            if self._dry_run:
                if not _near_limits(held.limits, limits):
                    LOG.info('Would give %(uuid)s %(limits)s', {
                        'uuid': guest.uuid, 'limits': limits})
                    held.limits = limits
                return
            held.limits = limits
            now = self._clock()
            if held.busy or held.retry > now or (
                    held.done is not None and now - held.asked <= _ASK_S
                    and _near_limits(held.done, limits)):
                return
            held.busy = True
            self._due.put(held)
            self._start()

    def forget(self, uuids: typing.Container[str]) -> None:
        """Forget the guests that are none of these."""
        with self._lock:
            for uuid in [one for one in self._held if one not in uuids]:
                del self._held[uuid]
                self._problems.pop(uuid, None)

    # -- the threads -------------------------------------------------------
    def _start(self) -> None:
        while len(self._workers) < _WORKERS:
            # Those of a pool would be waited for at the end.
            worker = threading.Thread(
                target=self._work, daemon=True,
                name=f'throttles-{len(self._workers)}')
            self._workers.append(worker)
            worker.start()

    def _work(self) -> None:
        while True:
            self._serve(self._due.get())

    def _serve(self, held: _Held) -> None:
        """Set what a guest is to have, until nothing else is wanted."""
        while True:
            limits, problem, done = held.limits, '', False
            try:
                done = self._set(held, limits)
            except Exception as exc:
                problem = str(exc) or type(exc).__name__
            with self._lock:
                if problem:
                    held.retry = self._clock() + _AGAIN_S
                    held.now = {}
                held.done = limits if done else None
                if self._held.get(held.guest.uuid) is held:
                    self._note(held.guest.uuid, problem)
                if not done or _near_limits(limits, held.limits):
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
        """Give a guest back what it had at first, and wait for that.

        :raises Exception: if libvirt does not do it.
        """
        self._set(_Held(guest), NOTHING)

    # -- libvirt -----------------------------------------------------------
    def _open(self) -> typing.Any:
        with self._connecting:
            if self._connection is None or self._connection.isAlive() != 1:
                old, self._connection = self._connection, None
                close(old)
                self._connection = self._connect()
            return self._connection

    def _set(self, held: _Held, limits: IoLimits) -> bool:
        """Set the limits of a guest that are not these yet.

        False if it has to be done again: what the guest had at first is
        recorded, but whoever comes after us might not know so yet.

        :raises Exception: whatever libvirt raises.
        """
        connection, guest = self._open(), held.guest
        domain = _domain(connection, guest)
        if domain is None:
            return True     # it has ended
        if held.first is None:
            held.first = _recorded(domain)
        if self._clock() - held.asked > _ASK_S:
            held.asked, held.now = self._clock(), {}
        failures: list[str] = []
        for device in guest.devices:
            if device not in held.now and (
                    limits != NOTHING or device in held.first):
                with _collected(failures, device):
                    held.now[device] = _ask(domain, device)
        if limits != NOTHING:
            self._record(domain, held)
            if held.first and not guest.limited:
                self._reread()
                return False
        for device in guest.devices:
            if device in held.first and device in held.now:
                with _collected(failures, device):
                    self._set_device(connection, domain, held, device,
                                     limits)
        if failures:
            raise OSError('; '.join(failures))
        if limits == NOTHING and held.first:
            domain.setMetadata(_ELEMENT, None, None, LIMITS, _LIVE)
            held.first = {}
            self._reread()
        return True

    @staticmethod
    def _record(domain: typing.Any, held: _Held) -> None:
        """Note in the domain what its devices have, where we never wrote."""
        first = {**held.now, **(held.first or {})}
        if first != held.first:
            domain.setMetadata(
                _ELEMENT, '<limits>' + saxutils.escape(json.dumps(
                    first, sort_keys=True)) + '</limits>', 'secondary',
                LIMITS, _LIVE)
            held.first = first

    @staticmethod
    def _set_device(connection: typing.Any, domain: typing.Any, held: _Held,
                    device: str, limits: IoLimits) -> None:
        first, now = (held.first or {})[device], held.now[device]
        kind = device.partition(' ')[0]
        alike = sum(one.startswith(kind) for one in held.guest.devices)
        wanted = _values(device, first, limits, alike)
        if all(_close(now[name], value, _WORTH_RAISING[kind]) and (
                value != first.get(name, 0) or value == now[name])
               for name, value in wanted.items()):
            return
        # The last look: is it the same domain still?
        if _domain(connection, held.guest) is not None:
            _tell(domain, device, wanted)
            held.now[device] = {**now, **wanted}


@contextlib.contextmanager
def _collected(failures: list[str], device: str) -> Iterator[None]:
    """Note a failure instead of raising it: the other devices go on."""
    try:
        yield
    except Exception as exc:
        failures.append(f'{device}: {exc}')


def _domain(connection: typing.Any, guest: Secondary) -> typing.Any:
    """Return the domain that a guest runs as, None if it does not."""
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


def _recorded(domain: typing.Any) -> Devices:
    """Return what a domain's devices had before any limit of ours.

    :raises Unrecorded: if somebody has written something else there.
    """
    try:
        text = domain.metadata(_ELEMENT, LIMITS, _LIVE)
    except Exception as exc:
        if _code(exc) == _NO_METADATA:
            return {}
        raise
    return parse_record(text)


def parse_record(text: str) -> Devices:
    """Return what is recorded in a metadata element of ours.

    :raises Unrecorded: if it is none.
    """
    try:
        if '<!DOCTYPE' in text:
            raise ValueError('a document type')
        # The standard parser expands entities; libvirt writes none.
        data = json.loads(
            ElementTree.fromstring(text).text or '')  # noqa: S314  # nosec
        return {
            str(device): {
                name: int(values[name]) for name in _fields(device)
                if name in values}
            for device, values in data.items()}
    except (ElementTree.ParseError, ValueError, TypeError, AttributeError,
            KeyError) as exc:
        raise Unrecorded(f'what it had at first cannot be read: {exc}'
                         ) from exc


def _fields(device: str) -> tuple[str, ...]:
    return (_DISK_FIELDS if device.startswith('disk ')
            else _INTERFACE_FIELDS)


def _ask(domain: typing.Any, device: str) -> Values:
    """Return the limits of a device that are in force."""
    kind, _, name = device.partition(' ')
    found = (domain.blockIoTune(name, _LIVE) if kind == 'disk'
             else domain.interfaceParameters(name, _LIVE))
    return {field: int(found.get(field, 0)) for field in _fields(device)}


def _tell(domain: typing.Any, device: str, values: Values) -> None:
    kind, _, name = device.partition(' ')
    if kind == 'disk':
        domain.setBlockIoTune(name, values, _LIVE)
    else:
        domain.setInterfaceParameters(name, values, _LIVE)


def _values(device: str, first: Mapping[str, int], limits: IoLimits,
            devices: int) -> Values:
    """Return what a device is to have.

    ``first`` is never exceeded; ``devices`` of a guest share evenly.
    """
    if device.startswith('disk '):
        return {**_disk(first, 'bytes', limits.disk_out, limits.disk_in,
                        devices),
                **_disk(first, 'iops', limits.disk_out_iops,
                        limits.disk_in_iops, devices)}
    return {**_interface(first, 'inbound', limits.net_in, devices),
            **_interface(first, 'outbound', limits.net_out, devices)}


def _least(first: int, limit: float | None, devices: int,
           unit: int = 1) -> int:
    """Return the lower of two limits, of which 0 and None are none."""
    if limit is None:
        return first
    mine = max(1, round(limit / (1 + _BURST) / devices / unit))
    return min(mine, first) if first else mine


def _disk(first: Mapping[str, int], unit: str, read: float | None,
          write: float | None, devices: int) -> Values:
    """Return a disk's limits in one unit; libvirt takes all or zeroes them.

    Where the flavor limits reads and writes together, QEMU lets nobody limit
    them apart; then both together get what the less may.
    """
    was = {way: first.get(f'{way}_{unit}_sec', 0)
           for way in ('total', 'read', 'write')}
    if was['total']:
        both = min((one for one in (read, write) if one is not None),
                   default=None)
        now = {**was, 'total': _least(was['total'], both, devices)}
    else:
        now = {'total': 0, 'read': _least(was['read'], read, devices),
               'write': _least(was['write'], write, devices)}
    values = {f'{way}_{unit}_sec': value for way, value in now.items()}
    for way, value in now.items():
        # A burst that the flavor allows is not one beyond our limit.
        if most := first.get(f'{way}_{unit}_sec_max', 0):
            values[f'{way}_{unit}_sec_max'] = (
                most if value == was[way] else value)
    return values


def _interface(first: Mapping[str, int], way: str, limit: float | None,
               devices: int) -> Values:
    names = [f'{way}.{kind}' for kind in ('average', 'peak', 'burst')]
    was = [first.get(name, 0) for name in names]
    average = _least(was[0], limit, devices, _KB)
    # By itself libvirt would let a whole second's worth out at once.
    burst = (max(_LEAST_BURST_KB, round(_BURST * average))
             if way == 'outbound' else 0)
    return dict(zip(names, was if average == was[0] else [average, 0, burst],
                    strict=True))


def _near_limits(now: IoLimits, wanted: IoLimits) -> bool:
    return all(_close(before or 0, after or 0) for before, after in zip(
        dataclasses.astuple(now), dataclasses.astuple(wanted), strict=True))


def _close(now: float, wanted: float, raising: float = _HYSTERESIS) -> bool:
    """Tell whether a change is too small to be worth a call.

    There is no small step from or to no limit.
    """
    return now == wanted or (now > 0 < wanted and (1 - _HYSTERESIS) * now
                             <= wanted <= (1 + raising) * now)
