# SPDX-License-Identifier: Apache-2.0

"""Arbitrary answers of libvirt, the kernel and the agent's own files.

Only the documented exceptions are raised.  An unreadable domain counts as a
primary, an unreadable value as unknown.  Rejected input is logged.
"""

import contextlib
import json
import math
import os
import re
import unittest
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st
from oslo_config import cfg, fixture

from secondary_scheduler.agent import (
    actuator,
    cgroups,
    domain_xml,
    domains,
    guest_cgroups,
    host_capacity,
    memory,
    policy_source,
    problems,
    processes,
)
from secondary_scheduler.agent.gauges import Gauges
from secondary_scheduler.agent.sensors import base, cpu, disk, network
from secondary_scheduler.agent.sensors.memory import MemorySensor
from secondary_scheduler.conf import agent as agent_conf
from secondary_scheduler.conf import policy as policy_conf
from tests.unit import fuzzing
from tests.unit.agent import fakes, test_memory

UUID = fakes.UUIDS[0]
NAME = 'instance-00000000'

#: A domain as Nova 34 and libvirt 9 write it, shortened.
XML = f'''<domain type='kvm' id='1'>
  <name>{NAME}</name>
  <uuid>{UUID}</uuid>
  <metadata>
    <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
      <nova:package version="34.0.0"/>
      <nova:name>a &lt;name&gt;</nova:name>
      <nova:creationTime>2026-05-01 10:00:00</nova:creationTime>
      <nova:flavor name="small" id="5c5a">
        <nova:memory>128</nova:memory>
        <nova:disk>1</nova:disk>
        <nova:vcpus>2</nova:vcpus>
        <nova:extraSpecs>
          <nova:extraSpec name="hw:cpu_policy">shared</nova:extraSpec>
          MARK
        </nova:extraSpecs>
      </nova:flavor>
      <nova:owner><nova:user uuid="u">u</nova:user></nova:owner>
    </nova:instance>
  </metadata>
  <memory unit='KiB'>131072</memory>
  <vcpu placement='static'>2</vcpu>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <interface type='bridge'><source bridge='br0'/>
      <target dev='tap0a1b-2c'/></interface>
  </devices>
</domain>
'''
MARK = '''<nova:extraSpec name="lifecycle:preemptable">true</nova:extraSpec>
          <nova:extraSpec name="lifecycle:priority">4</nova:extraSpec>'''
PRIMARY, SECONDARY = XML.replace('MARK', ''), XML.replace('MARK', MARK)
TOKENS = ('<', '>', '/>', '<!--', '-->', '<![CDATA[', ']]>', '&#0;', '&lt;',
          '&x;', '\0', '\ud800', '<!DOCTYPE d>', '<?xml version="1.0" '
          'encoding="utf-16"?>', '</domain>', '<uuid/>', '<nova:vcpus>',
          '<metadata>', '</nova:instance>', '<name>../x</name>', '/', '..')


class DomainXmlTest(unittest.TestCase):
    def read(self, text):
        try:
            return domain_xml.read_guest(text, UUID)
        except domain_xml.UnreadableDomain as exc:
            self.assertTrue(str(exc))
            return None

    @fuzzing.fuzzed
    @given(st.text() | fuzzing.spoilt(PRIMARY, TOKENS))
    def test_no_change_makes_a_primary_a_secondary(self, text):
        self.assertIsNone(self.read(text))

    @fuzzing.fuzzed
    @given(fuzzing.spoilt(SECONDARY, TOKENS))
    @example(SECONDARY.replace('>2<', f'>{"9" * 5000}<'))
    @example(SECONDARY.replace('small', '\ud800'))
    def test_values_read_of_a_secondary_are_valid(self, text):
        guest = self.read(text)
        if guest is not None:
            self.assertEqual(UUID, guest.uuid)
            self.assertIn(guest.priority, range(1, 11))
            self.assertIn(guest.vcpus, range(1, 10000))
            for tap in guest.taps:
                self.assertNotIn('/', tap)


class ListingTest(unittest.TestCase):
    """A guest with a damaged domain beside a valid one."""

    def setUp(self):
        self.log = fuzzing.Log(self)
        self.enterContext(mock.patch.object(problems, 'LOG_DELAY_S', 0.0))
        self.host = fakes.Host(self)
        self.good = self.host.guest(1)
        self.host.guest(0)

    @fuzzing.fuzzed
    @given(st.none() | st.binary(max_size=8) | fuzzing.spoilt(
        SECONDARY, TOKENS))
    def test_listing_with_a_damaged_domain(self, xml):
        self.host.libvirt.domains[-1].xml = xml
        found = domains.Domains(
            self.host.libvirt.connect, self.host.store, self.host.run_dir,
            proc=self.host.proc)
        self.log.lines.clear()
        found.refresh()
        self.assertIn(self.good, {one.uuid for one in found.secondaries()})
        self.assertEqual(2, found.primaries + len(found.secondaries()))
        self.assertEqual(found.unreadable, len(self.log.lines))
        json.dumps(self.host.store.load(domains.CACHE), allow_nan=False)


class StatisticsTest(unittest.TestCase):
    """Statistics of memory from libvirt."""

    def setUp(self):
        self.log = fuzzing.Log(self)

    JOB = {'operation': 5, 'memory_normal_bytes': 900, 'memory_total': 1000,
           'memory_bps': 99 << 20}
    RATE = {'dirtyrate.calc_status': 2, 'dirtyrate.megabytes_per_second': 40}

    @fuzzing.fuzzed
    @given(fuzzing.changed(JOB), fuzzing.changed(RATE),
           st.just(1 << 20) | fuzzing.values)
    @example(JOB, {**RATE, 'dirtyrate.megabytes_per_second': -1}, 1 << 20)
    @example({**JOB, 'memory_bps': -1}, RATE, 1 << 20)
    @example({**JOB, 'memory_bps': math.nan}, RATE, 1 << 20)
    @example(JOB, RATE, -1)
    def test_measurement_of_memory(self, job, rate, size):
        domain = test_memory.FakeDomain(UUID, 1, job)
        domain.maxMemory = lambda: size
        connection = test_memory.FakeConnection(domain)
        connection.domainListGetStats = lambda those, *_: [
            (one, rate) for one in those]
        meter = memory.MemoryMeter(
            lambda: connection, lambda: [domains.Secondary(
                UUID, NAME, 1, 1, 1, 1, 1)], 90.0, lambda _: None)
        self.log.lines.clear()
        meter.measure()
        if meter.copied is not None:
            self.assertTrue(0 < meter.copied < math.inf)
        dirty = meter.dirty(UUID)
        for one in () if dirty is None else (dirty.in_1s, dirty.in_5s):
            self.assertTrue(0 <= one < math.inf)
        self.assertTrue(0 <= meter.floor_s(UUID) < math.inf)
        if meter._failure:
            self.assertEqual(1, len(self.log.lines))


content = (st.sampled_from(fuzzing.NUMBERS) | st.text(max_size=40)).map(
    lambda text: text.encode(errors='surrogatepass')) | st.binary(max_size=40)


def spoilt_file(text, tokens=()):
    return content | fuzzing.spoilt(text, tokens).map(
        lambda found: found.encode(errors='surrogatepass'))


class FilesTestCase(unittest.TestCase):
    version = 1

    def setUp(self):
        self.host = fakes.Host(self, self.version)
        self.host.guest(0)
        self.mounts = self.host.read('proc/self/mountinfo')
        self.guest = domains.Secondary(UUID, NAME, 4, 2, 1, 1000, 77,
                                       taps=('tap0',))
        self.log = fuzzing.Log(self)

    def put(self, path, data):
        with open(self.host.path(path), 'wb') as file:
            file.write(data)

    @contextlib.contextmanager
    def actuator(self):
        """Yield an actuator for the present files, and close its files."""
        acting = actuator.Actuator(self.host.hierarchy(), self.host.store)
        try:
            yield acting
        finally:
            acting.forget([])
            if acting.groups._slice:
                acting.groups._slice.close()
            os.unlink(self.host.store.path(guest_cgroups.STATE))


class CgroupsTest(FilesTestCase):
    MOUNT = '29 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n'

    @fuzzing.fuzzed
    @given(spoilt_file(MOUNT, (' - ', 'cgroup2', '\\000', '\\777', '/..')),
           spoilt_file('2:cpu,cpuacct:/machine/qemu-1-x\n0::/\n',
                       (':', '::', '/..')))
    @example(b'\xff', b'')
    @example(MOUNT.encode().replace(b'/sys', b'\\000').replace(
        b'- cgroup ', b'- cgroup2 '), b'')
    @example(MOUNT.encode(), b'no colon')
    @example(MOUNT.encode(), b'\xff')
    def test_paths_of_groups(self, mounts, groups):
        os.makedirs(self.host.path('proc/9'), exist_ok=True)
        self.put('proc/self/mountinfo', mounts)
        self.put('proc/9/cgroup', groups)
        try:
            hierarchy = cgroups.Hierarchy(self.host.proc)
            found = hierarchy.directory(9, 'cpu')
        except cgroups.CgroupError as exc:
            self.assertTrue(str(exc))
        else:
            self.assertNotIn('..', found.split('/'))


    @fuzzing.fuzzed
    @given(content, content, content, spoilt_file('0-3,8'))
    @example(b'5', b'100000', b'0', b'0-1')
    @example(b'5', b'-5', b'100000', b'0-1')
    @example(b'5', b'100000', b'9' * 4000, b'0-1')
    @example(b'-5', b'-1', b'100000', b'5-0')
    @example(b'\xff', b'\xff', b'\xff', b'0-' + b'9' * 400)
    def test_host_of_version_1(self, usage, quota, period, cpus):
        self.check_host({'cpuacct/cpuacct.usage': usage,
                         'cpu/cpu.cfs_quota_us': quota,
                         'cpu/cpu.cfs_period_us': period,
                         'cpuset/cpuset.effective_cpus': cpus})

    def check_host(self, files):
        for name, data in files.items():
            self.put('cgroup/' + name, data)
        host = host_capacity.HostCpu(self.host.hierarchy())
        try:
            self.assertTrue(0 < host.capacity() < 1e6)
            meter = cpu.CpuMeter(host, lambda _: None, lambda _: None)
            for _ in range(2):
                total = meter.sample([]).total
                self.assertTrue(total is None or 0 <= total < math.inf)
        finally:
            for group in (host._cpu, host._accounting, host._cpuset):
                group.close()


class CgroupsV2Test(FilesTestCase):
    version = 2
    check_host = CgroupsTest.check_host

    @fuzzing.fuzzed
    @given(spoilt_file('usage_usec 5\nuser_usec 3\n', ('usage_usec',)),
           spoilt_file('max 100000'), spoilt_file('0-3,8'))
    @example(b'usage_usec -5', b'100000 0', b'0-1')
    @example(b'usage_usec ' + b'9' * 400, b'5', b'')
    def test_host_of_version_2(self, usage, limit, cpus):
        self.check_host({'all/cpu.stat': usage, 'all/cpu.max': limit,
                         'all/cpuset.cpus.effective': cpus})


class GuestsTest(FilesTestCase):
    """A guest with damaged files."""

    @fuzzing.fuzzed
    @given(content, content, content)
    def test_limits(self, quota, usage, share):
        scope = self.host.scope(NAME, 1)
        base = self.host.cpu(scope)
        self.put(f'{base}/vcpu0/cpu.cfs_quota_us', quota)
        self.put(f'{base}/cpu.shares', share)
        self.put(f'cgroup/cpuacct{scope}/cpuacct.usage', usage)
        with self.actuator() as acting:
            used = acting.usage_ns(self.guest)
            self.assertTrue(used is None or isinstance(used, int))
            acting.prioritise([self.guest])
            if acting.floor(self.guest):
                quota, period = cgroups.parse_limit(self.host.quota(0))
                self.assertLessEqual(quota / period, 0.01)
            acting.set_share(self.guest, 5.0, 4.0)
            acting.release(self.guest)


class ProcessesTest(FilesTestCase):
    @fuzzing.fuzzed
    @given(spoilt_file('7 (q) S 1' + ' 0' * 17 + ' 77', (')', '(')),
           spoilt_file('12.5 3.0\n'), content, spoilt_file('1000'))
    def test_identity_of_processes(self, stat, uptime, cmdline, pid):
        os.makedirs(self.host.path('proc/1000'), exist_ok=True)
        for path, data in (('proc/1000/stat', stat), ('proc/uptime', uptime),
                           ('proc/1000/cmdline', cmdline),
                           (f'run/{NAME}.pid', pid)):
            self.put(path, data)
        started = processes.start_time(1000, self.host.proc)
        self.assertIsInstance(started, int | None)
        age = processes.age(started or 0, self.host.proc)
        self.assertTrue(age is None or 0 <= age)
        # No arbitrary command line has both the name and the UUID.
        self.assertIsNone(processes.find_qemu(
            self.host.run_dir, UUID, NAME, self.host.proc))

    @fuzzing.fuzzed
    @given(st.text(max_size=20) | fuzzing.spoilt(NAME, TOKENS))
    @example('\0')
    @example('\ud800')
    @example('x' * 300)
    def test_names_of_domains(self, name):
        found = processes.find_qemu(
            self.host.run_dir, UUID, name, self.host.proc)
        if name != NAME:
            self.assertIsNone(found)


class SensorsTest(FilesTestCase):
    def setUp(self):
        super().setUp()
        self.fixture = fixture.Config(cfg.ConfigOpts())
        self.fixture.setUp()
        self.addCleanup(self.fixture.cleanUp)
        agent_conf.register_opts(self.fixture.conf)
        self.fixture.conf([])
        self.fixture.config(group='secondary_agent', disk_read_speed=100,
                            disk_write_speed=100)
        os.makedirs(self.host.path('sys/net/eth0/device'))
        os.makedirs(self.host.path('sys/net/eth0/statistics'))
        os.makedirs(self.host.path('sys/net/tap0/statistics'))
        os.makedirs(self.host.path('sys/block/sda/device'))
        hierarchy = self.host.hierarchy()
        self.sensors = [
            MemorySensor(self.fixture.conf, hierarchy),
            network.NetworkSensor(self.fixture.conf, hierarchy,
                                  self.host.path('sys/net')),
            disk.DiskSensor(self.fixture.conf, hierarchy,
                            self.host.path('sys/block'))]

    def check(self, sensor, reads=1):
        gauges = Gauges({'one': sensor}, lambda: sensor.resources,
                        lambda: [self.guest])
        for _ in range(reads):
            self.log.lines.clear()
            gauges.measure('one')
        for resource in sensor.resources:
            total = gauges.total(resource)
            self.assertTrue(total is None or 0 <= total < math.inf)
        primary, uses = gauges.recent()
        for use in (primary, *uses.values()):
            for value in use.values():
                self.assertTrue(0 <= value < math.inf)
        return gauges

    @fuzzing.fuzzed
    @given(spoilt_file('MemTotal: 1000 kB\nMemAvailable: 400 kB\n',
                       (':', 'kB')), spoilt_file('1 2 3'))
    def test_memory(self, meminfo, statm):
        self.put('proc/meminfo', meminfo)
        self.put('proc/1000/statm', statm)
        self.check(self.sensors[0])

    @fuzzing.fuzzed
    @given(content, *[st.lists(content, min_size=2, max_size=2)] * 2)
    def test_network(self, speed, host, guest):
        self.put('sys/net/eth0/speed', speed)
        for one, other in zip(host, guest, strict=True):
            for name in ('rx_bytes', 'tx_bytes'):
                self.put(f'sys/net/eth0/statistics/{name}', one)
                self.put(f'sys/net/tap0/statistics/{name}', other)
            self.check(self.sensors[1])

    DISK = ' 1 0 8 4 5 6 16 8 9 10\n'

    @fuzzing.fuzzed
    @given(*[st.lists(spoilt_file(one), min_size=2, max_size=2) for one in (
        DISK, 'read_bytes: 5\nwrite_bytes: 7\n')])
    def test_disk(self, host, guest):
        for one, other in zip(host, guest, strict=True):
            self.put('sys/block/sda/stat', one)
            self.put('proc/1000/io', other)
            self.check(self.sensors[2])

    @fuzzing.fuzzed
    @given(fuzzing.values, st.dictionaries(st.text(max_size=3),
                                           fuzzing.values, max_size=2))
    @example(10 ** 400, {})
    @example(math.nan, {'a': math.inf})
    def test_third_party_sensor(self, total, instances):
        class Sensor(base.Sensor):
            resources = ('mem',)

            def __init__(self):
                pass

            def read(self, guests):
                return {'mem': base.Reading(total, instances)}

        self.check(Sensor())


class StateTest(FilesTestCase):
    """Files in the state directory at the start of the agent."""

    def setUp(self):
        super().setUp()
        config = fixture.Config(cfg.ConfigOpts())
        config.setUp()
        self.addCleanup(config.cleanUp)
        self.conf = config.conf
        policy_conf.register_opts(self.conf)
        self.conf([])
        config.config(group='secondary_scheduler',
                      policy=['cpu <= 90% for 10s on aggregate:a'])

    def save(self, name, data):
        if not isinstance(data, bytes):
            data = json.dumps(data).encode()
        with open(self.host.store.path(name), 'wb') as file:
            file.write(data)

    KEY = f'{UUID} 1000 77'
    LIMITS = {'guests': {KEY: {'vcpu0': 'max 100000', 'vcpu1': 'max 100000',
                               'emulator': '50000 100000', 'oom': '0',
                               'weight': '1024'}},
              'slice': {'path': '/machine', 'weight': '1024'}}

    @fuzzing.fuzzed
    @given(content | fuzzing.values | fuzzing.changed(LIMITS))
    @example({'guests': []})
    @example({'guests': {KEY: {'vcpu0': 'max'}}})
    @example({'guests': {KEY: {'vcpu0': '5 0', 'oom': 7}}})
    @example({'guests': {KEY: {'vcpu0': '-5 100000'}}})
    @example({'guests': {KEY: ['vcpu0']}})
    @example({'slice': {'path': 5}})
    @example({'slice': {'path': '/machine\0', 'weight': '5'}})
    @example(b'[' * 3000)
    def test_limits(self, data):
        self.save(guest_cgroups.STATE, data)
        with self.actuator() as acting:
            self.assertTrue(acting.floor(self.guest))
            self.assertEqual('1000 100000', self.host.quota(0))
            acting.prioritise([self.guest])
            acting.set_share(self.guest, 5.0, 4.0)
            acting.lift_emulator(self.guest)
            acting.release(self.guest)
            acting.forget([self.guest])

    DOMAINS = {'secondaries': [{
        'uuid': UUID, 'name': NAME, 'priority': 4, 'vcpus': 2,
        'taps': ['tap0'], 'id': 1, 'pid': 1000, 'started': 77,
        'paused': False}]}

    @fuzzing.fuzzed
    @given(content | fuzzing.values | fuzzing.changed(DOMAINS))
    @example({'secondaries': None})
    @example({'secondaries': [{**DOMAINS['secondaries'][0], 'uuid': []}]})
    @example({'secondaries': [{**DOMAINS['secondaries'][0],
                               'priority': None}]})
    @example({'secondaries': [{**DOMAINS['secondaries'][0],
                               'priority': 11}]})
    @example({'secondaries': [{**DOMAINS['secondaries'][0], 'taps': 'ab'}]})
    @example({'secondaries': [{**DOMAINS['secondaries'][0], 'vcpus': 1e9}]})
    @example({'secondaries': [{**DOMAINS['secondaries'][0], 'taps': ['']}]})
    def test_domains(self, data):
        self.save(domains.CACHE, data)
        found = domains.Domains(
            self.host.libvirt.connect, self.host.store, self.host.run_dir,
            proc=self.host.proc).secondaries()
        for guest in found:
            self.assertEqual((UUID, NAME, 1000, 77), (
                guest.uuid, guest.name, guest.pid, guest.started))
            self.assertIn(guest.priority, range(1, 11))
            self.assertIn(guest.vcpus, range(1, 10000))
            for tap in guest.taps:
                self.assertTrue(re.fullmatch('[^/]+', tap))

    POLICIES = {'aggregates': ['a'], 'fingerprint': 'x',
                'policies': ['cpu <= 90% for 10s on aggregate:a']}

    @fuzzing.fuzzed
    @given(content | fuzzing.values | fuzzing.changed(POLICIES))
    def test_policies(self, data):
        self.save(policy_source.STATE, data)
        source = policy_source.PolicySource(self.conf, 'node1',
                                            self.host.store)
        # Without aggregates all policies apply.  The policies in the file
        # never do.
        known = data.get('aggregates') if isinstance(data, dict) else None
        applies = not isinstance(known, list) or 'a' in map(str, known)
        self.assertEqual(applies, bool(source.current.policies))
