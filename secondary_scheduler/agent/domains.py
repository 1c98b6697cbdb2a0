"""Which guests of this host are secondaries.

libvirt is asked on a thread of its own; the answer is kept on disk, so that
an agent that starts while libvirtd is dead still knows its secondaries.
Unknown means primary: a guest is a secondary only if Nova's metadata in its
domain XML carries the marker of a secondary flavor, and if its QEMU process
has been found beyond doubt.
"""

from collections.abc import Callable, Iterable, Iterator
import dataclasses
import functools
import os
import re
import threading
import time
import typing
from xml.etree import ElementTree  # nosec B405

from oslo_log import log as logging

from secondary_scheduler.agent import kernel_files, processes
from secondary_scheduler.agent import store as agent_store
from secondary_scheduler.agent.pins import NO_PINS, Pins, read_pins
from secondary_scheduler.agent.problems import Problems
from secondary_scheduler.model import vocabulary

LOG = logging.getLogger(__name__)

NOVA = '{http://openstack.org/xmlns/libvirt/nova/1.1}'
CACHE = 'domains.json'
#: Namespace of what we note in a domain whose devices we limit.
LIMITS = 'https://opendev.org/secondary-scheduler/limits/1.0'

#: As many as Nova lets a flavor have would not fit a host.
_VCPUS = re.compile(r'[1-9][0-9]{0,3}')
_MEMORY = re.compile(r'[0-9]{1,9}')

#: Nova's largest domain XML is some tens of kilobytes.
_LARGEST_XML = 1 << 20

#: What Linux lets a network interface be called.
_TAP = re.compile(r'(?!\.{1,2}$)[^\s/:]{1,15}')
#: What a disk is called in a domain, and where its data may be on the host.
_DISK = re.compile(r'[a-z]{1,8}')
_LOCAL = frozenset({'file', 'block', 'volume'})

# libvirt's constants, so that tests need no libvirt.
_ACTIVE, _PAUSED = 1, 32

#: A listing takes milliseconds; this late, libvirtd hangs.
_HANGS_S = 10.0

#: Seconds between two looks at whether a process has come or gone.
_LOOK_S = 0.1

#: For so long after a change, one that was not found may be about to start or
#: to end, seconds.
_SETTLES_S = 5.0


class UnreadableDomain(ValueError):
    """A domain XML that does not say clearly what the guest is."""


@dataclasses.dataclass(frozen=True)
class DomainGuest:
    """What a domain XML says of a secondary.

    ``taps`` are the host's ends of its network interfaces, ``disks`` the
    names in the domain of those that are not the network's, ``memory_mb`` is
    its flavor's memory (MiB), 0 if that is not said.  ``limited`` if an agent
    has noted what its devices had before it limited them.  ``cpus`` are those
    over which Nova lets it float, as the kernel lists CPUs; '' if it says
    nothing.
    """

    uuid: str
    name: str
    priority: int
    vcpus: int
    taps: tuple[str, ...] = dataclasses.field(default=(), kw_only=True)
    memory_mb: int = dataclasses.field(default=0, kw_only=True)
    disks: tuple[str, ...] = dataclasses.field(default=(), kw_only=True)
    limited: bool = dataclasses.field(default=False, kw_only=True)
    cpus: str = dataclasses.field(default='', kw_only=True)

    @property
    def devices(self) -> tuple[str, ...]:
        """Disks and interfaces together, as ``KIND NAME``."""
        return (*(f'disk {name}' for name in self.disks),
                *(f'interface {name}' for name in self.taps))


@dataclasses.dataclass(frozen=True)
class Other:
    """A guest that is no secondary, of which nothing is ever changed.

    ``memory`` (bytes) is what its QEMU may take of the host's pages at most;
    0 if the XML does not say, or if it is in huge pages, which the host has
    set apart already.  ``pins`` are the CPUs to which its XML confines it.
    """

    name: str
    memory: int
    pins: Pins = dataclasses.field(default=NO_PINS, kw_only=True)


@dataclasses.dataclass(frozen=True)
class Primary(Other):
    """Such a guest that runs, and its verified process."""

    pid: int
    started: int


@dataclasses.dataclass(frozen=True)
class Secondary(DomainGuest):
    """A secondary that runs: its libvirt id and its verified process."""

    id: int
    pid: int
    started: int
    paused: bool = False


_FIELDS = {field.name: field.type for field in dataclasses.fields(Secondary)}


def _fits(value: object, kind: typing.Any) -> bool:
    """Tell whether a value is of a field's type, as far as that is simple."""
    if typing.get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(
            _fits(one, typing.get_args(kind)[0]) for one in value)
    return not isinstance(kind, type) or type(value) is kind


def _from_cache(data: typing.Any) -> Secondary | None:
    """Return a secondary as an agent has saved it, None if it is none.

    An agent of another version may have written more, or less.
    """
    if not isinstance(data, dict):
        return None
    known = {name: tuple(value) if isinstance(value, list) else value
             for name, value in data.items() if name in _FIELDS}
    if not all(_fits(value, _FIELDS[name]) for name, value in known.items()):
        return None
    try:
        guest = Secondary(**known)
    except TypeError:
        return None
    return guest if (_VCPUS.fullmatch(str(guest.vcpus))
                     and all(map(_TAP.fullmatch, guest.taps))
                     and all(map(_DISK.fullmatch, guest.disks))
                     and _is_cpus(guest.cpus)
                     and vocabulary.LOWEST_PRIORITY <= guest.priority
                     <= vocabulary.HIGHEST_PRIORITY) else None


def _is_cpus(text: str) -> bool:
    try:
        kernel_files.parse_cpus(text, '')
    except ValueError:
        return False
    return True


def _only(parent: ElementTree.Element, path: str) -> ElementTree.Element:
    found = parent.findall(path)
    if len(found) != 1:
        raise UnreadableDomain(f'{len(found)} elements {path} instead of one')
    return found[0]


def read_guest(xml: str, uuid: str) -> DomainGuest | None:
    """Return the secondary that a domain XML describes.

    None means that it describes another guest: one that Nova marked as
    nothing, or one that Nova did not make.

    :raises Unreadable: if it cannot be told; then, too, it is a primary.
    """
    # The standard parser expands entities; libvirt writes none, and without
    # a document type there is none.
    if len(xml) > _LARGEST_XML or '<!DOCTYPE' in xml:
        raise UnreadableDomain('too large, or with a document type')
    try:
        root = ElementTree.fromstring(xml)  # noqa: S314  # nosec B314
    except (ElementTree.ParseError, ValueError) as exc:
        raise UnreadableDomain(str(exc)) from exc
    if root.tag != 'domain' or (_only(root, 'uuid').text or '').strip() != (
            uuid):
        raise UnreadableDomain('the UUID is another domain\'s')
    instances = root.findall(f'metadata/{NOVA}instance')
    if not instances:
        return None
    if len(instances) > 1:
        raise UnreadableDomain('several Nova instances in the metadata')
    flavor = _only(instances[0], f'{NOVA}flavor')
    specs = {}
    for spec in flavor.findall(f'{NOVA}extraSpecs/{NOVA}extraSpec'):
        name = spec.get('name', '')
        if name in specs:
            raise UnreadableDomain(f'extra spec {name} is there twice')
        specs[name] = (spec.text or '').strip()
    mark = vocabulary.read_mark(specs)
    if mark is None:
        return None
    vcpus = (flavor.findtext(f'{NOVA}vcpus') or '').strip()
    memory = (flavor.findtext(f'{NOVA}memory') or '').strip()
    vcpu = root.find('vcpu')
    cpus = '' if vcpu is None else vcpu.get('cpuset', '')
    taps = [target.get('dev', '') for target
            in root.findall('devices/interface/target')]
    return DomainGuest(
        uuid=uuid,
        name=_only(root, 'name').text or '',
        priority=mark.priority,
        vcpus=int(vcpus) if _VCPUS.fullmatch(vcpus) else 1,
        taps=tuple(filter(_TAP.fullmatch, taps)),
        memory_mb=int(memory) if _MEMORY.fullmatch(memory) else 0,
        disks=tuple(_disks(root)),
        cpus=cpus if _is_cpus(cpus) else '',
        limited=root.find(f'metadata/{{{LIMITS}}}limits') is not None,
    )


def read_other(xml: str) -> Other | None:
    """Return what a domain XML says of a guest that is no secondary.

    None if it cannot be read.
    """
    if len(xml) > _LARGEST_XML or '<!DOCTYPE' in xml:
        return None
    try:
        root = ElementTree.fromstring(xml)  # noqa: S314  # nosec B314
        name = _only(root, 'name').text or ''
    except (ElementTree.ParseError, ValueError):
        return None
    return Other(name, _memory(root), pins=read_pins(root))


def _memory(root: ElementTree.Element) -> int:
    """Return what a guest may take of the host's pages, 0 if unknown."""
    found = root.findall('memory')
    # libvirt writes KiB, whatever unit it was given.
    if (len(found) != 1 or found[0].get('unit', 'KiB') != 'KiB'
            or root.find('memoryBacking/hugepages') is not None):
        return 0
    try:
        return kernel_files.parse_count(found[0].text or '', '') << 10
    except ValueError:
        return 0


def _disks(root: ElementTree.Element) -> Iterator[str]:
    for disk in root.findall('devices/disk'):
        name = target.get('dev', '') if (
            target := disk.find('target')) is not None else ''
        if (disk.get('type') in _LOCAL
                and disk.get('device', 'disk') in ('disk', 'lun')
                and _DISK.fullmatch(name)):
            yield name


class Domains:
    """The secondaries that run on this host.

    ``connect`` returns a libvirt connection and may raise or hang;
    ``changed`` is called, on the listing's thread, after each listing.
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
        self._again = threading.Event()
        self._stopping = threading.Event()
        #: What the XML of a running domain said, by (uuid, libvirt id).
        self._read: dict[tuple[str, int], DomainGuest | Other | None] = {}
        self._unread: set[tuple[str, int]] = set()
        #: Why the last listing could not tell what a domain is, by uuid.
        self._lost = Problems(functools.partial(
            LOG.warning, 'Domain %s counts as a primary: %s'))
        self._read_anew = False
        self._known: dict[str, Secondary] = self._cached()
        self._others: tuple[Primary, ...] = ()
        self.hostname: str | None = None
        self.primaries: int | None = None
        #: UUIDs of what ran here at the last listing and counts as a primary.
        self.unmarked: frozenset[str] = frozenset()
        self.unreadable = 0
        self._listed_at: float | None = None
        self._failure = ''

    # -- what others ask ---------------------------------------------------
    def secondaries(self) -> tuple[Secondary, ...]:
        """Return the secondaries whose process is alive at this moment."""
        with self._lock:
            known = tuple(self._known.values())
        return tuple(filter(self._alive, known))

    def others(self) -> tuple[Primary, ...]:
        """Return the primaries of the last listing, as far as they tell."""
        return self._others

    @property
    def listed(self) -> bool:
        """Whether libvirt answers: not if it failed, nor if it hangs."""
        at = self._listed_at
        return at is not None and (
            time.monotonic() - at < _HANGS_S + self._period)

    # -- the cache ---------------------------------------------------------
    def _cached(self) -> dict[str, Secondary]:
        """Return the secondaries of the last listing that still run."""
        found = {}
        cached = self._store.load(CACHE).get('secondaries', [])
        for data in cached if isinstance(cached, list) else [None]:
            guest = _from_cache(data)
            if guest is None:
                LOG.error('Passing over a secondary of %s that cannot be '
                          'read', self._store.path(CACHE))
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

        :raises Exception: whatever libvirt raises; what was known stays.
        """
        if self._connection is None:
            self._connection = self._connect()
            self._read_anew = True
            self.hostname = self._connection.getHostname()
            self._subscribe(self._connection)
        if self._read_anew:
            self._read_anew, self._read, self._unread = False, {}, set()
        found: list[Secondary] = []
        others: list[Primary] = []
        seen: dict[tuple[str, int], DomainGuest | Other | None] = {}
        unmarked: set[str] = set()
        lost: set[str] = set()
        # What each of them is doing would take a call for each.
        paused = {domain.UUIDString() for domain
                  in self._connection.listAllDomains(_PAUSED)}
        for domain in self._connection.listAllDomains(_ACTIVE):
            uuid, number = domain.UUIDString(), domain.ID()
            try:
                guest = self._guest(domain, uuid, number)
                seen[uuid, number] = guest
                secondary = (self._verified(guest, number, uuid in paused)
                             if isinstance(guest, DomainGuest) else None)
                if isinstance(guest, Other):
                    others += self._running(uuid, guest)
            except Exception as exc:
                # A domain that ends while we look is no reason to stop.
                lost.add(uuid)
                self._lost.note(uuid, str(exc))
                secondary = None
            if secondary:
                found.append(secondary)
            else:
                unmarked.add(uuid)
        self._read = seen
        self._unread &= seen.keys()
        self.primaries, self._others = len(unmarked), tuple(others)
        self.unmarked = frozenset(unmarked)
        self._lost.keep(lost)
        self.unreadable = len(lost) + len(self._unread)
        self._remember(found)
        self._listed_at, self._failure = time.monotonic(), ''

    def _guest(self, domain: typing.Any, uuid: str,
               number: int) -> DomainGuest | Other | None:
        # A domain gets another id whenever it is started, and Nova starts
        # it anew to change its flavor.
        if (uuid, number) in self._read:
            return self._read[uuid, number]
        xml = domain.XMLDesc(0)
        try:
            guest = read_guest(xml, uuid)
        except UnreadableDomain as exc:
            LOG.warning('Domain %(uuid)s counts as a primary, since its XML '
                        'cannot be read: %(reason)s',
                        {'uuid': uuid, 'reason': exc})
            self._unread.add((uuid, number))
            guest = None
        return guest or read_other(xml)

    def _running(self, uuid: str, other: Other) -> Iterator[Primary]:
        """Yield a primary with its process, if that is found."""
        known = next((one for one in self._others if one.name == other.name
                      and self._alive(one)), None)
        if known is None and (process := processes.find(
                self._run_dir, uuid, other.name, self._proc)):
            known = Primary(other.name, other.memory, *process)
        if known is not None:
            # Its XML may have been read anew.
            yield dataclasses.replace(known, memory=other.memory,
                                      pins=other.pins)

    def _alive(self, guest: Primary | Secondary) -> bool:
        return processes.start_time(guest.pid, self._proc) == guest.started

    def _verified(self, guest: DomainGuest, number: int, paused: bool
                  ) -> Secondary:
        process = processes.find(self._run_dir, guest.uuid, guest.name,
                                 self._proc)
        if process is None:
            raise UnreadableDomain('its QEMU process was not found')
        return Secondary(**dataclasses.asdict(guest), id=number,
                         pid=process[0], started=process[1], paused=paused)

    def _subscribe(self, connection: typing.Any) -> None:
        """Be told of changes; without, listing every period has to do."""
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
        """List soon, and read what the XML of each domain says now."""
        self._read_anew = True
        self._again.set()

    # -- the thread --------------------------------------------------------
    def start(self) -> None:
        """List on a thread of its own until ``stop``."""
        threading.Thread(target=self._run, name='domains',
                         daemon=True).start()

    def stop(self) -> None:
        """Stop listing; a call that hangs in libvirt is not waited for."""
        self._stopping.set()
        self._again.set()

    def _run(self) -> None:
        processes.show_thread_name()
        settled = time.monotonic() + _SETTLES_S
        while not self._stopping.is_set():
            self._again.clear()
            there = self._changed_at()
            try:
                self.refresh()
            except Exception as exc:
                self._listed_at = None
                if self._failure != str(exc):
                    LOG.warning('libvirt does not answer, going on with the '
                                'secondaries known: %s', exc)
                self._failure = str(exc)
                self._drop_connection()
            self._changed()
            # libvirt lists a guest before its QEMU can be told by its command
            # line, and nothing may change when it can be.
            now = time.monotonic()
            due = now + (_LOOK_S if self._lost.present() and now < settled
                         else self._period)
            while (not self._again.wait(_LOOK_S) and time.monotonic() < due
                   and self._changed_at() == there):
                pass
            if time.monotonic() < due:
                settled = time.monotonic() + _SETTLES_S

    def _changed_at(self) -> int | None:
        """Return when a guest's process last came or went, or its state did.

        libvirt tells of a guest that starts when it runs, and what QEMU does
        until then (a resume reads all its memory) may take a host's CPU.
        """
        try:
            return os.stat(self._run_dir).st_mtime_ns
        except OSError:
            return None

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        close(connection)


def close(connection: typing.Any) -> None:
    """Close a connection to libvirt, if there is one, whatever it raises."""
    try:
        if connection is not None:
            connection.close()
    except Exception as exc:
        LOG.debug('Closing the connection to libvirt: %s', exc)


@functools.cache
def _deliver_events() -> None:
    """Run libvirt's event loop; no connection is kept alive without one."""
    import libvirt

    def ignore(context: object, error: object) -> None:
        """Keep libvirt from printing errors that are raised as well."""

    def deliver() -> None:
        processes.show_thread_name()
        while True:
            try:
                libvirt.virEventRunDefaultImpl()
            except libvirt.libvirtError as exc:
                LOG.warning('No events from libvirt: %s', exc)
                time.sleep(1)

    libvirt.registerErrorHandler(ignore, None)
    libvirt.virEventRegisterDefaultImpl()
    threading.Thread(target=deliver, name='libvirt-events',
                     daemon=True).start()


def libvirt_opener(uri: str, read_only: bool = False
                   ) -> Callable[[], typing.Any]:
    """Return what opens a connection that fails when libvirtd hangs.

    It takes orders unless it is ``read_only``.
    """
    import libvirt

    # Here, before there are threads that connect: one loop, not several.
    _deliver_events()

    def connect() -> typing.Any:
        connection = (libvirt.openReadOnly if read_only
                      else libvirt.open)(uri)
        connection.setKeepAlive(5, 3)
        return connection

    return connect
