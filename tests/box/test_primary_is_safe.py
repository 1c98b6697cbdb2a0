"""Nothing of ours touches a primary (issue 2, acceptance 4)."""

import contextlib
import json
import os
import pathlib
import re
import time

import libvirt
import pytest

import cgroups
import control
import hosts as box_hosts
import layout
import shell
from tests.box import services
from tests.box.primaries import boot_primary, delete, wait_active
from tests.box.services import wait_until

#: Defined by hand: one without metadata, and one with metadata of Nova's
#: that does not say what it is.
BY_HAND = {
    'test-by-hand': '',
    'test-unreadable': (
        '<metadata><nova:instance xmlns:nova='
        '"http://openstack.org/xmlns/libvirt/nova/1.1">'
        '<nova:name>secondary</nova:name><nova:flavor name="secondary">'
        '<nova:extraSpecs/></nova:flavor></nova:instance></metadata>')}

DOMAIN = '''\
<domain type="qemu">
  <name>{name}</name>{metadata}
  <memory unit="MiB">128</memory>
  <vcpu>1</vcpu>
  <cputune><shares>777</shares><period>50000</period><quota>15000</quota>
  </cputune>
  <os>
    <type arch="x86_64" machine="pc">hvm</type>
    <kernel>{guest}/vmlinuz</kernel>
    <initrd>{guest}/initrd.gz</initrd>
    <cmdline>console=ttyS0 quiet panic=-1 work=idle</cmdline>
  </os>
  <features><acpi/></features>
  <devices><serial type="null"/></devices>
</domain>
'''

#: Files by which a control group is told something.
_CONTROLS = re.compile(
    r'cpu\.(cfs_\w+|shares|idle|rt_\w+_us|max|max\.burst|weight|weight\.nice)'
    r'|cpuset\.(cpus|mems)|freezer\.state|cgroup\.freeze'
    r'|(blk)?io\.(bfq\.)?(weight|max)'
    r'|memory\.(limit_in_bytes|soft_limit_in_bytes|max|high|low|min)')


@contextlib.contextmanager
def domain_by_hand(host, name):
    """Define and start a domain in a host's libvirt; yield it."""
    socket = (f'/proc/{box_hosts.outer_pid(host)}/root/run/libvirt/'
              'libvirt-sock')
    connection = libvirt.open(f'qemu+unix:///system?socket={socket}')
    with contextlib.closing(connection):
        with contextlib.suppress(libvirt.libvirtError):
            old = connection.lookupByName(name)
            with contextlib.suppress(libvirt.libvirtError):
                old.destroy()
            old.undefine()
        domain = connection.defineXML(DOMAIN.format(
            name=name, metadata=BY_HAND[name], guest=layout.GUEST))
        try:
            domain.create()
            yield domain
        finally:
            with contextlib.suppress(libvirt.libvirtError):
                domain.destroy()
            domain.undefine()


class ControlFiles:
    """All that may be written in a domain's control groups.

    The files are held open: their inodes stay, so a change of the time of
    modification is somebody's writing.
    """

    def __init__(self, host, name):
        self._open = {}
        for machine in cgroups.groups(f'hosts/{host}/machine'):
            for scope in machine.glob(f'qemu-*-{name}.libvirt-qemu'):
                for path in sorted(scope.rglob('*')):
                    if path.is_file() and _CONTROLS.fullmatch(path.name):
                        with contextlib.suppress(OSError):
                            self._open[str(path)] = os.open(path,
                                                            os.O_RDONLY)

    def values(self):
        found = {}
        for path, fd in self._open.items():
            with contextlib.suppress(OSError):
                found[path] = (os.pread(fd, 4096, 0).decode(),
                               os.fstat(fd).st_mtime_ns)
        return found

    def close(self):
        for fd in self._open.values():
            os.close(fd)


@pytest.fixture(scope='module')
def nova_primary(fleet, cloud, observer):
    """A primary of Nova's beside most of the secondaries."""
    fleet.restore()
    fleet.wait_all_run(300)
    uuid = boot_primary(cloud, 'test-primary', fleet.busiest())
    try:
        server = wait_active(cloud, uuid)
        observer.primaries.add(server.instance_name)
        yield server
    finally:
        delete(cloud, uuid)


@pytest.fixture(scope='module')
def by_hand(nova_primary, observer):
    """Both domains that Nova does not know, on the same host."""
    observer.primaries |= set(BY_HAND)
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(domain_by_hand(
            nova_primary.compute_host, name)) for name in BY_HAND}


def test_no_file_of_a_primary_is_written_in_a_burst(
        nova_primary, by_hand, cloud, fleet, burst, observer):
    host = nova_primary.compute_host
    names = [*BY_HAND, nova_primary.instance_name]
    slice_idle = cgroups.path('cpu', f'hosts/{host}/machine') / 'cpu.idle'
    # With a primary guest in it the machine slice is an ordinary group.
    wait_until(lambda: slice_idle.read_text().strip() == '0', 15,
               'the machine slice is not idle')
    pid_files = [pathlib.Path(f'/proc/{box_hosts.outer_pid(host)}/root/run/'
                              f'libvirt/qemu/{name}.pid') for name in names]
    pids = [path.read_text() for path in pid_files]
    files = {name: ControlFiles(host, name) for name in names}
    before = {name: held.values() for name, held in files.items()}
    for name in names:
        assert any('/vcpu0/cpu.' in path
                   for path in before[name]), (name, list(before[name]))
    began = time.time()
    with burst(host):
        time.sleep(25)
        after = {name: held.values() for name, held in files.items()}
    for held in files.values():
        held.close()
    assert before == after
    assert slice_idle.read_text().strip() == '0'
    # The burst was one: the secondaries beside them were held down.
    assert max(row.total for row in observer.since(host, began)
               ) > layout.THRESHOLD
    assert [path.read_text() for path in pid_files] == pids
    for domain in by_hand.values():
        assert domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING
    now = cloud.compute.get_server(nova_primary.id)
    assert (now.status, now.task_state, now.compute_host) == (
        'ACTIVE', None, host)
    assert not any(key.startswith('secondary:') for key in now.metadata)
    # The agent counts them as what they are.
    known = {one['uuid'] for one in services.agent_status(host)['instances']}
    strangers = {nova_primary.id, *(domain.UUIDString()
                                    for domain in by_hand.values())}
    assert not known & strangers
    assert known <= set(fleet.servers)


def test_every_action_refuses_a_primary(nova_primary):
    etc = layout.ETC
    done = shell.run(
        [layout.BIN / 'python', '-m', 'tests.box.ask_actions',
         nova_primary.id, etc / 'watcher/watcher-1.conf',
         etc / 'secondary_scheduler/policies.conf'],
        netns=True, cwd=layout.SOURCE,
        env={'PYTHONPATH': str(layout.SOURCE)})
    answers = json.loads(done.stdout.strip().rpartition('\n')[2])
    assert len(answers) == 7
    for name, answer in answers.items():
        assert answer.startswith('skipped') and (
            'not a secondary' in answer), (name, answer)


def test_the_agent_hands_no_primary_over(nova_primary, by_hand):
    """The agent's RPC surface knows secondaries only (decision 6)."""
    script = (
        'import sys, json\n'
        'from secondary_scheduler.watcher.settings import CONF\n'
        'from secondary_scheduler.reports import bus\n'
        'uuids, host, file = sys.argv[3:], sys.argv[1], sys.argv[2]\n'
        'CONF(["--config-file", file], project="watcher",'
        ' default_config_files=[])\n'
        'client = bus.AgentClient(CONF)\n'
        'print(json.dumps([client.hand_over(host, u) for u in uuids]))\n')
    done = shell.run(
        [layout.BIN / 'python', '-c', script, nova_primary.compute_host,
         layout.ETC / 'watcher/watcher-1.conf', nova_primary.id,
         *(domain.UUIDString() for domain in by_hand.values())], netns=True)
    answers = json.loads(done.stdout.strip().rpartition('\n')[2])
    assert len(answers) == 3
    for answer in answers:
        assert not answer['ok'] and 'no secondary' in answer['reason']


@contextlib.contextmanager
def broken_scheduler(directory):
    """Run nova-scheduler with everything of ours raising."""
    extra = directory / 'raising.conf'
    extra.write_text('[filter_scheduler]\n'
                     'available_filters = tests.box.raising.all_filters\n')
    services.stop('nova-scheduler')
    try:
        with services.environment(PYTHONPATH=str(layout.SOURCE)):
            control._daemon(
                'nova-scheduler', 'nova-scheduler',
                layout.ETC / 'nova/nova.conf',
                layout.ETC / 'secondary_scheduler/policies.conf', extra)
        yield
    finally:
        services.stop('nova-scheduler')
        services.start('nova-scheduler')


def test_primaries_boot_when_all_of_ours_raises(cloud, empty_cloud, tmp_path):
    log = 'nova-scheduler-service.log'
    offset = services.log_size(log)
    with broken_scheduler(tmp_path):
        uuids = [boot_primary(cloud, f'test-broken-{n}') for n in range(3)]
        try:
            for uuid in uuids:
                wait_active(cloud, uuid)
        finally:
            delete(cloud, *uuids)
    # It was broken indeed, and said so.
    assert 'made to raise by a test' in services.log_since(log, offset)
