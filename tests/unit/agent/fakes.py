# SPDX-License-Identifier: Apache-2.0

"""A host of files: control groups, processes and a libvirt connection."""

import os
import shutil
import tempfile

from secondary_scheduler.agent import cgroups
from secondary_scheduler.agent import store as agent_store

MARKED = {'lifecycle:preemptable': 'true', 'lifecycle:priority': '4'}

#: Value of no limit in version 1, and memory used by a guest, in bytes.
UNLIMITED = 0x7ffffffffffff000
HELD = 100 << 20

UUIDS = [f'00000000-0000-4000-8000-00000000000{n}' for n in range(10)]


def nova_metadata(specs, owner='p1'):
    lines = ''.join(
        f'<nova:extraSpec name="{name}">{value}</nova:extraSpec>'
        for name, value in specs.items())
    return ('<nova:instance xmlns:nova='
            '"http://openstack.org/xmlns/libvirt/nova/1.1">'
            '<nova:name>a name</nova:name>'
            '<nova:flavor name="f" id="1"><nova:memory>128</nova:memory>'
            '<nova:disk>1</nova:disk><nova:vcpus>2</nova:vcpus>'
            f'<nova:extraSpecs>{lines}</nova:extraSpecs></nova:flavor>'
            f'<nova:owner><nova:project uuid="{owner}">p</nova:project>'
            '</nova:owner></nova:instance>')


def domain_xml(uuid, name, metadata=''):
    return (f'<domain type="qemu" id="1"><name>{name}</name>'
            f'<uuid>{uuid}</uuid><metadata>{metadata}</metadata>'
            '<vcpu>2</vcpu></domain>')


class FakeDomain:
    def __init__(self, uuid, name, number, xml, state=1):
        self.uuid, self.name, self.number = uuid, name, number
        self.xml, self._state = xml, state
        self.described = 0

    def UUIDString(self):
        return self.uuid

    def ID(self):
        return self.number

    def XMLDesc(self, flags):
        self.described += 1
        if isinstance(self.xml, Exception):
            raise self.xml
        return self.xml

    def state(self):
        return [self._state, 0]


class FakeLibvirt:
    """The part of a connection that agents use; ``error`` makes it fail."""

    def __init__(self):
        self.domains = []
        self.error = None
        self.callbacks = {}
        self.closed = 0

    def connect(self):
        if self.error:
            raise self.error
        return self

    def listAllDomains(self, flags):
        if self.error:
            raise self.error
        return [domain for domain in self.domains
                if flags == 1 or domain.state()[0] == 3]

    def getHostname(self):
        return 'node1.example'

    def domainEventRegisterAny(self, domain, event, callback, opaque):
        self.callbacks[event] = callback

    def close(self):
        self.closed += 1


class Host:
    """A tree of files that looks like a host's /proc and /sys/fs/cgroup."""

    def __init__(self, test, version=1, idle=True):
        self.version = version
        self.idle = idle
        self.root = tempfile.mkdtemp()
        test.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.proc = self.path('proc')
        self.run_dir = self.path('run')
        self.state = self.path('state')
        for path in (self.run_dir, self.state, self.proc + '/self'):
            os.makedirs(path)
        self.libvirt = FakeLibvirt()
        self.store = agent_store.StateStore(self.state)
        names = (('cpu', 'cpuacct', 'cpuset', 'memory') if version == 1
                 else ('all',))
        lines = []
        for number, name in enumerate(names):
            point = self.path('cgroup', name)
            os.makedirs(point)
            kind, options = (('cgroup', name) if version == 1
                             else ('cgroup2', 'rw'))
            lines.append(f'{number} 1 0:{number} / {point} rw - {kind} '
                         f'cgroup rw,{options}')
        if version == 2:
            self.write('cgroup/all/cgroup.controllers', 'cpuset cpu memory')
            self.write('cgroup/all/cpuset.cpus.effective', '0-3')
            self.write('cgroup/all/cpu.stat', 'usage_usec 0')
        else:
            self.write('cgroup/cpuset/cpuset.effective_cpus', '0-1,3,7')
            self.write('cgroup/cpuacct/cpuacct.usage', '0')
            self.write('cgroup/cpu/cpu.cfs_quota_us', '-1')
            self.write('cgroup/cpu/cpu.cfs_period_us', '100000')
        self.write('proc/self/mountinfo', '\n'.join(lines))
        self.write('proc/meminfo',
                   'MemTotal: 8388608 kB\nMemAvailable: 8000000 kB\n')
        self.slice = '/machine.slice' if version == 2 else '/machine'
        self.limits(self.slice)

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def write(self, path, text):
        path = self.path(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w') as file:
            file.write(text)

    def read(self, path):
        with open(self.path(path)) as file:
            return file.read()

    def cpu(self, path):
        """Return the path of a cpu group, relative to the root."""
        return 'cgroup/' + ('cpu' if self.version == 1 else 'all') + path

    def hierarchy(self):
        return cgroups.Hierarchy(self.proc)

    def limits(self, group):
        base = self.cpu(group)
        self.write(base + '/cgroup.procs', '')
        if self.idle:
            self.write(base + '/cpu.idle', '0')
        if self.version == 1:
            self.write(base + '/cpu.shares', '1024')
            self.write(base + '/cpu.cfs_quota_us', '-1')
            self.write(base + '/cpu.cfs_period_us', '100000')
        else:
            self.write(base + '/cpu.weight', '100')
            self.write(base + '/cpu.max', 'max 100000')

    def process(self, pid, started, uuid, name):
        stat = ['S', '1'] + ['0'] * 17 + [str(started)] + ['0'] * 20
        self.write(f'proc/{pid}/stat',
                   f'{pid} (qemu ) x) ' + ' '.join(stat))
        self.write(f'proc/{pid}/oom_score_adj', '-10')
        self.write(f'proc/{pid}/cmdline', '\0'.join(
            ['/usr/bin/qemu', '-name', f'guest={name},debug-threads=on',
             '-uuid', uuid, '']))

    def zombie(self, pid, started, threads):
        """Turn a process into a zombie with some threads left."""
        stat = ['Z', '1'] + ['0'] * 17 + [str(started)] + ['0'] * 20
        self.write(f'proc/{pid}/stat', f'{pid} (qemu) ' + ' '.join(stat))
        shutil.rmtree(self.path(f'proc/{pid}/task'), ignore_errors=True)
        for thread in range(threads):
            os.makedirs(self.path(f'proc/{pid}/task/{pid + thread}'))

    def scope(self, name, number):
        if self.version == 1:
            return f'{self.slice}/qemu-{number}-{name}.libvirt-qemu'
        return (self.slice + f'/machine-qemu\\x2d{number}\\x2d'
                + name.replace('-', '\\x2d') + '.scope')

    def guest(self, n=0, specs=None, metadata=None, vcpus=2, pid=None,
              started=None, listed=True, name=None):
        """Make a running guest, by default a secondary; return its UUID."""
        uuid, number = UUIDS[n], n + 1
        name = name or f'instance-{n:08x}'
        pid = pid or 1000 + n
        if metadata is None:
            metadata = nova_metadata(MARKED if specs is None else specs)
        self.process(pid, 77 + n if started is None else started, uuid, name)
        self.write(f'run/{name}.pid', str(pid))
        scope = self.scope(name, number)
        base = scope if self.version == 1 else scope + '/libvirt'
        self.limits(scope)
        for thread in ['emulator', 'iothread1'] + [
                f'vcpu{i}' for i in range(vcpus)]:
            self.limits(f'{base}/{thread}')
        self.populate(scope, pid)
        if self.version == 1:
            self.write(f'cgroup/cpuacct{scope}/cpuacct.usage', '0')
            self.write(f'cgroup/memory{scope}/memory.soft_limit_in_bytes',
                       str(UNLIMITED))
            lines = [f'4:memory:{scope}', f'3:cpu:{base}/emulator',
                     f'2:cpuacct:{base}/emulator',
                     f'1:cpuset:{base}/emulator']
        else:
            self.write(self.cpu(base) + '/cpu.stat', 'usage_usec 0')
            self.write(self.cpu(scope) + '/memory.high', 'max')
            self.write(self.cpu(scope) + '/memory.current', str(HELD))
            lines = [f'0::{base}/emulator']
        self.write(f'proc/{pid}/cgroup', '\n'.join(lines))
        if listed:
            self.libvirt.domains.append(FakeDomain(
                uuid, name, number, domain_xml(uuid, name, metadata)))
        return uuid

    def populate(self, scope, pid=None):
        """Put a process into a guest's group; None empties the group."""
        if self.version == 1:
            self.write(self.cpu(scope) + '/emulator/cgroup.procs',
                       str(pid or ''))
        else:
            self.write(self.cpu(scope) + '/cgroup.events',
                       f'frozen 0\npopulated {int(pid is not None)}')

    def quota(self, n, thread='vcpu0'):
        """Return the limit of a thread group, as ``quota period``."""
        scope = self.scope(f'instance-{n:08x}', n + 1)
        if self.version == 1:
            base = self.cpu(scope) + '/' + thread
            return (self.read(base + '/cpu.cfs_quota_us') + ' '
                    + self.read(base + '/cpu.cfs_period_us'))
        return self.read(self.cpu(scope) + f'/libvirt/{thread}/cpu.max')

    def memory_limit(self, n):
        """Return the path of the file that limits a guest's memory."""
        scope = self.scope(f'instance-{n:08x}', n + 1)
        return (f'cgroup/memory{scope}/memory.soft_limit_in_bytes'
                if self.version == 1 else self.cpu(scope) + '/memory.high')

    def spend(self, n, seconds):
        """Set the CPU time used by a guest, or by the host (None)."""
        if n is None:
            path = ('cgroup/cpuacct/cpuacct.usage' if self.version == 1
                    else 'cgroup/all/cpu.stat')
        else:
            scope = self.scope(f'instance-{n:08x}', n + 1)
            path = (f'cgroup/cpuacct{scope}/cpuacct.usage'
                    if self.version == 1
                    else self.cpu(scope) + '/libvirt/cpu.stat')
        if self.version == 1:
            self.write(path, str(int(seconds * 1e9)))
        else:
            self.write(path, f'usage_usec {int(seconds * 1e6)}\nuser_usec 0')

    def fingerprint(self, skip=()):
        """Return all control files outside some groups, with contents."""
        found = {}
        for folder, _, files in os.walk(self.path('cgroup')):
            if any(part in folder for part in skip):
                continue
            for name in files:
                path = os.path.join(folder, name)
                with open(path) as file:
                    found[path] = file.read()
        return found


class LibvirtError(Exception):
    """An error of libvirt, with its number."""

    def __init__(self, code, text='libvirt says no'):
        super().__init__(text)
        self.code = code

    def get_error_code(self):
        return self.code


class Devices(FakeDomain):
    """A running domain with disks and interfaces, as libvirt limits them.

    ``calls`` are the setters that were called, ``fail`` what each of them
    raises, by name; ``before`` is called first, with the name.
    """

    def __init__(self, uuid, number, disks=('vda',), taps=('tap1',)):
        super().__init__(uuid, 'name', number, '')
        self.tunes = {name: {} for name in disks}
        self.bandwidths = {name: {} for name in taps}
        self.noted = None
        self.calls = []
        self.fail = {}
        self.before = lambda name: None

    def _called(self, name, *arguments):
        self.before(name)
        if name in self.fail:
            raise self.fail[name]
        self.calls.append((name, *arguments))

    def _find(self, kept, name):
        if name not in kept:
            raise LibvirtError(8, f'invalid argument: {name}')
        return kept[name]

    def blockIoTune(self, name, flags):
        found = self._find(self.tunes, name)
        names = [f'{way}_{unit}_sec{most}'
                 for way in ('total', 'read', 'write')
                 for unit in ('bytes', 'iops')
                 for most in ('', '_max', '_max_length')]
        return {**dict.fromkeys(names, 0), 'size_iops_sec': 0,
                'group_name': 'a drive', **found}

    def setBlockIoTune(self, name, values, flags):
        self._called('setBlockIoTune', name, values)
        tune = self._find(self.tunes, name)
        for unit in ('bytes', 'iops'):
            # libvirt removes the missing limits of a kind that is set.
            if any(f'_{unit}_sec' in one and not one.endswith('_max')
                   for one in values):
                for way in ('total', 'read', 'write'):
                    tune.pop(f'{way}_{unit}_sec', None)
        tune.update({key: value for key, value in values.items() if value})
        for unit in ('bytes', 'iops'):
            if tune.get(f'total_{unit}_sec') and (
                    tune.get(f'read_{unit}_sec')
                    or tune.get(f'write_{unit}_sec')):
                raise LibvirtError(8, 'total and read/write at once')
            for way in ('total', 'read', 'write'):
                most = tune.get(f'{way}_{unit}_sec_max', 0)
                if most and most < tune.get(f'{way}_{unit}_sec', 0):
                    raise LibvirtError(8, 'the burst is below the rate')

    def interfaceParameters(self, name, flags):
        found = self._find(self.bandwidths, name)
        return {**{f'{way}.{kind}': 0 for way in ('inbound', 'outbound')
                   for kind in ('average', 'peak', 'burst')},
                'inbound.floor': 0, **found}

    def setInterfaceParameters(self, name, values, flags):
        self._called('setInterfaceParameters', name, values)
        found = self._find(self.bandwidths, name)
        found.update(values)
        for key in [one for one, value in found.items() if not value]:
            del found[key]

    def metadata(self, kind, uri, flags):
        if self.noted is None:
            raise LibvirtError(80, 'no metadata')
        return self.noted

    def setMetadata(self, kind, text, key, uri, flags):
        self._called('setMetadata', text)
        self.noted = text


class Hypervisor(FakeLibvirt):
    """A connection on which domains can be found by UUID."""

    def lookupByUUIDString(self, uuid):
        if self.error:
            raise self.error
        for domain in self.domains:
            if domain.uuid == uuid:
                return domain
        raise LibvirtError(42, 'no such domain')

    def isAlive(self):
        return 1
