# SPDX-License-Identifier: Apache-2.0

"""Real compute hosts: namespaces, a cgroup with a limit, libvirtd, and in
each a stock nova-compute, our agent and a PostgreSQL server as the primary.
"""

import os
import pathlib
import shutil
import signal
import time
import uuid

import cells
import cgroups
import layout
import network
import shell
from shell import BoxError, run, start, stop

# Nova 34 answers keepalives in the thread in which it handles events, and may
# wait there for RabbitMQ; a connection cut off by that may wait for itself for
# ever (doc, "Troubleshooting").
LIBVIRTD_CONF = '''\
listen_tls = 0
listen_tcp = 1
listen_addr = "{address}"
auth_tcp = "none"
auth_unix_rw = "none"
auth_unix_ro = "none"
unix_sock_group = "root"
unix_sock_rw_perms = "0700"
host_uuid = "{uuid}"
max_clients = 500
max_workers = 40
keepalive_interval = -1
log_outputs = "3:file:{state}/var/log/libvirt/libvirtd.log"
'''

QEMU_CONF = '''\
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
security_default_confined = 0
namespaces = []
stdio_handler = "file"
cgroup_controllers = ["cpu", "devices", "memory", "blkio", "cpuset", "cpuacct"]
migration_host = "{address}"
migration_address = "{address}"
'''

NOVA_CONF = '''\
[DEFAULT]
host = {host}
my_ip = {address}
state_path = {state}/nova
instances_path = {shared}/instances
log_file = {log}/nova-compute-{host}.log
compute_driver = libvirt.LibvirtDriver
reserved_host_memory_mb = 512
update_resources_interval = 10
sync_power_state_interval = 30
force_raw_images = true
vif_plugging_is_fatal = false
initial_cpu_allocation_ratio = 16.0
# A guest that is throttled to the floor may not hear the power button.
shutdown_timeout = 10
# Or a cold migration makes a qcow2 file of a raw disk.
use_cow_images = false
[libvirt]
virt_type = qemu
cpu_mode = custom
cpu_models = qemu64
tb_cache_size = 32
images_type = raw
# What shelving uploads is then the disk's contents only, not 1 GiB of zeroes.
snapshot_image_format = qcow2
live_migration_scheme = tcp
live_migration_inbound_addr = {address}
live_migration_uri = qemu+tcp://%s/system
live_migration_permit_auto_converge = true
swtpm_enabled = false
# The guests do not hear the power button.
wait_soft_reboot_seconds = 10
[nova_sys_admin]
helper_command = {privsep}
[oslo_concurrency]
lock_path = {state}/nova/locks
'''


#: What a host's libvirtd needs of the outside: the cgroups that its CPU time
#: is charged to, and the cgroup namespace they are in.
_OUTSIDE = ('exec 7< /proc/self/ns/cgroup 8> "$1" 9> "$2"; shift 2; '
            'exec "$@"')


def directory(host: str):
    """Return the state directory of a host."""
    return layout.HOSTS / host


def outer_pid(host: str) -> int | None:
    """Return the pid of the host's first process, or None if it is down."""
    return shell.pid_of(f'host-{host}') and int(
        (directory(host) / 'pid').read_text())


def enter(host: str) -> list[str]:
    """Return the prefix that runs a command inside a host."""
    return ['nsenter', '-t', str(outer_pid(host)), '-m', '-u', '-i', '-n',
            '-p', '-C', '--']


def system_group(host: str) -> str:
    """Return the cgroup of a host's system services."""
    return f'hosts/{host}/system.slice'


def shims() -> list[pathlib.Path]:
    """Return the sources of what libvirtd and QEMU are made to load."""
    return sorted(layout.HERE.glob('*.c'))


def build_shims() -> None:
    """Compile what libvirtd, and with it QEMU, is made to load."""
    layout.HOSTS.mkdir(parents=True, exist_ok=True)
    run(['gcc', '-shared', '-fPIC', '-O2', '-o', layout.HOSTS / 'shims.so',
         *shims(), '-ldl'])


def make_keys() -> None:
    """Make the one key with which the hosts trust each other."""
    keys = layout.HOSTS / 'ssh'
    shutil.rmtree(keys, ignore_errors=True)
    keys.mkdir(parents=True)
    run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', keys / 'key'])
    (keys / 'config').write_text(
        f'IdentityFile {keys}/key\nStrictHostKeyChecking no\n'
        'UserKnownHostsFile /dev/null\nLogLevel ERROR\n')
    (keys / 'sshd_config').write_text(
        f'HostKey {keys}/key\nAuthorizedKeysFile {keys}/key.pub\n'
        # The key is below directories that others may write to.
        'StrictModes no\nUsePAM no\nPasswordAuthentication no\n'
        'PermitRootLogin prohibit-password\nPidFile none\n')


def _configure(host: str, hosts: list[str]) -> None:
    state = directory(host)
    libvirt = state / 'etc/libvirt'
    libvirt.mkdir(parents=True, exist_ok=True)
    shutil.copytree('/etc/libvirt', libvirt, dirs_exist_ok=True,
                    symlinks=True)
    shutil.rmtree(libvirt / 'qemu/networks/autostart', ignore_errors=True)
    known = state / 'uuid'
    if not known.exists():
        known.write_text(str(uuid.uuid4()))
    values = {'address': layout.host_address(host), 'state': state,
              'uuid': known.read_text()}
    (libvirt / 'libvirtd.conf').write_text(LIBVIRTD_CONF.format(**values))
    (libvirt / 'qemu.conf').write_text(QEMU_CONF.format(**values))
    lines = ['127.0.0.1 localhost']
    lines += [f'{layout.host_address(name)} {name}' for name in hosts]
    (layout.HOSTS / 'hosts').write_text('\n'.join(lines) + '\n')
    config = layout.ETC / 'hosts' / host
    config.mkdir(parents=True, exist_ok=True)
    (state / 'nova').mkdir(exist_ok=True)
    (layout.SHARED / 'instances').mkdir(parents=True, exist_ok=True)
    (config / 'nova-compute.conf').write_text(NOVA_CONF.format(
        host=host, address=layout.host_address(host), state=state,
        shared=layout.SHARED, log=layout.LOG, privsep=(
            f'{layout.BIN}/privsep-helper '
            f'--config-file {layout.ETC}/nova/nova.conf '
            f'--config-file {config}/nova-compute.conf')))


def boot(host: str, sizes: dict[str, float], cpus: list[int]) -> None:
    """Start a host up to its libvirtd.

    :param sizes: the size of each host, in CPUs.
    :param cpus: the CPUs of the machine that this host may use.
    """
    if shell.pid_of(f'host-{host}'):
        return
    state = directory(host)
    state.mkdir(parents=True, exist_ok=True)
    _configure(host, list(sizes))
    for name in ('ready', 'pid', 'hold-libvirtd'):
        (state / name).unlink(missing_ok=True)
    cgroups.make_host(host, cpus, sizes[host])
    # Its cgroup is the topmost that the host sees, but no process stays there.
    start(f'host-{host}', cgroups.inside(f'hosts/{host}', [
        'sh', '-c', _OUTSIDE, 'sh',
        *(cgroups.path(controller, 'control') / 'cgroup.procs'
          for controller in ('cpu', 'cpuacct')),
        'unshare', '-C', *cgroups.inside(system_group(host), [
            'nsenter', f'--net=/run/netns/{network.host_netns(host)}', '--',
            'unshare', '-m', '-u', '-i', '-p', '--fork', '--kill-child',
            layout.HERE / 'host-init.sh', host, state, layout.SHARED,
            layout.HOSTS / 'hosts'])]))


def wait_booted(host: str) -> None:
    """Wait until a host's libvirtd answers."""
    shell.wait_for(f'host {host}', (directory(host) / 'ready').exists,
                   service=f'host-{host}')


def forget_compute(host: str) -> None:
    """Have Nova take a host for a new one, since its cell changes."""
    (directory(host) / 'nova/compute_id').unlink(missing_ok=True)


def start_compute(host: str) -> None:
    """Start the stock nova-compute of a host.

    It runs in the host's namespaces but is charged to the control plane: on
    a host of half a CPU its Python would weigh a hundred times what it
    weighs on a real one.
    """
    cell = (['--config-file', cells.CONFIG]
            if host in cells.hosts_of_second(layout.load_settings()) else [])
    start(f'nova-compute-{host}', cgroups.inside('control', [
        *enter(host), 'env', f'PATH={layout.BIN}:/usr/sbin:/usr/bin:/bin',
        layout.BIN / 'nova-compute',
        '--config-file', layout.ETC / 'nova/nova.conf', *cell,
        '--config-file', layout.ETC / f'hosts/{host}/nova-compute.conf']))


def agent(host: str, command: str, *environment: str,
          configs: tuple[pathlib.Path, ...] = ()) -> list:
    """Return what runs ``secondary-agent`` in a host, as a part of its system.

    ``environment`` are further variables, NAME=VALUE; ``configs`` are read
    instead of what the box has written for it.
    """
    configs = configs or (
        layout.ETC / 'secondary_scheduler/policies.conf',
        layout.ETC / f'hosts/{host}/agent.conf')
    return cgroups.inside(system_group(host), [
        *enter(host), 'env', f'PATH={layout.BIN}:/usr/sbin:/usr/bin:/bin',
        *environment, layout.BIN / 'secondary-agent', command,
        *(f'--config-file={config}' for config in configs)])


def start_agent(host: str, *environment: str,
                configs: tuple[pathlib.Path, ...] = ()) -> None:
    """Start our agent in a host, as a system service of it."""
    start(f'secondary-agent-{host}',
          agent(host, 'run', *environment, configs=configs))


def start_primary(host: str) -> None:
    """Start the primary of a host: a PostgreSQL server in system.slice."""
    data = directory(host) / 'postgresql'
    binaries = sorted(os.scandir('/usr/lib/postgresql'),
                      key=lambda entry: int(entry.name))
    if not binaries:
        raise BoxError('PostgreSQL is not installed; run "up" again')
    server = f'{binaries[-1].path}/bin'
    as_postgres = ['setpriv', '--reuid=postgres', '--regid=postgres',
                   '--init-groups', '--']
    if not (data / 'PG_VERSION').exists():
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir(parents=True)
        shutil.chown(data, 'postgres', 'postgres')
        run([*as_postgres, f'{server}/initdb', '-D', data, '-A', 'trust',
             '--no-sync'], log=f'postgresql-{host}', cwd='/')
        with open(data / 'pg_hba.conf', 'a') as out:
            out.write('host all all 10.77.0.0/24 trust\n')
    start(f'postgresql-{host}', cgroups.inside(system_group(host), [
        *enter(host), *as_postgres, f'{server}/postgres', '-D', data,
        '-c', f'listen_addresses={layout.host_address(host)}',
        '-c', 'unix_socket_directories=', '-c', 'fsync=off',
        '-c', 'shared_buffers=64MB', '-c', 'max_connections=40',
        '-c', 'autovacuum=off', '-c', 'jit=off']), cwd='/')


def shut_down(hosts: list[str]) -> None:
    """Stop the hosts: services first, then the namespaces with all in them."""
    for kind in ('secondary-agent', 'nova-compute'):
        for host in hosts:
            stop(f'{kind}-{host}', timeout=0 if kind == 'nova-compute' else 5,
                 sig=signal.SIGTERM)
    for host in hosts:
        # SIGINT is PostgreSQL's fast shutdown.
        stop(f'postgresql-{host}', sig=signal.SIGINT)
        stop(f'host-{host}', timeout=0)
    time.sleep(0.3)
    for host in hosts:
        cgroups.kill_all(f'hosts/{host}')
