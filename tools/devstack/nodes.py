# SPDX-License-Identifier: Apache-2.0

"""The nodes: containers in which the real stack.sh runs.

The first has the control plane and a compute service, the others have a
compute service and the agent only.
"""

from collections.abc import Sequence
import pathlib
import time

import cgroups
import containers
import git_base
import guest
import layout
import listing
import shell
from shell import run, say
import uplink

SECRET = listing.SECRET
STACK = '/opt/stack'
DEVSTACK = f'{STACK}/devstack'
VENV = f'{STACK}/data/venv'
PLUGIN = f'{STACK}/secondary_scheduler'
#: Weight of all nodes together, 1024 being that of one process beside them.
SHARES = 16384
#: Where the working tree is inside the nodes, read only.
TREE = '/opt/secondary-tree'
#: Hypervisors beside DevStack's own packages, and systemd's log.
PACKAGES = (*containers.PACKAGES, 'open-iscsi', 'rsync', 'kmod', 'acl')

SHARED = '''\
[[local|localrc]]
ADMIN_PASSWORD={secret}
DATABASE_PASSWORD={secret}
RABBIT_PASSWORD={secret}
SERVICE_PASSWORD={secret}
HOST_IP={address}
SERVICE_HOST={control}
GIT_BASE={git_base}
LOGFILE={stack}/logs/stack.sh.log
LOG_COLOR=False
LIBVIRT_TYPE=qemu
DEBUG_LIBVIRT=False
ENABLE_DEBUG_LOG_LEVEL=False
MYSQL_GATHER_PERFORMANCE=False
API_WORKERS=1
# Other programs may keep the machine busy.
SERVICE_TIMEOUT=300
DOWNLOAD_DEFAULT_IMAGES=False
NEUTRON_CREATE_INITIAL_NETWORKS=False
Q_AGENT=openvswitch
Q_ML2_PLUGIN_MECHANISM_DRIVERS=openvswitch
SECONDARY_FLAVOR_RAM=128
disable_all_services
'''

#: Of every node, after the rest. Nova inspects a kernel as if it were a disk
#: when it copies one for a live migration: the boot sector of a kernel is a
#: damaged partition table then.
OPTIONS = '''
[[post-config|$NOVA_CONF]]
[workarounds]
disable_deep_image_inspection = True
'''

#: Of the first node, with Tempest. DevStack wants an image before ours are
#: uploaded, and its default is a file on a server that may be out of reach.
#: Guests have no network, and count their work by themselves.
TEMPEST = '''\
IMAGE_URLS=file://{guest}/disk.raw
DEFAULT_IMAGE_NAME=disk
TEMPEST_VENV_UPPER_CONSTRAINTS={stack}/requirements/upper-constraints.txt
export UPPER_CONSTRAINTS_FILE={stack}/requirements/upper-constraints.txt
'''
TEMPEST_OPTIONS = '''
[[test-config|$TEMPEST_CONFIG]]
[auth]
create_isolated_networks = False
[secondary_lease]
image = worker-cpu
network = none
[secondary_scenario]
primaries_per_host = 2
boot_timeout = 600
preemption_timeout = 400
return_timeout = 600
'''

CONTROL = '''\
enable_service mysql rabbit key g-api placement-api placement-client
enable_service n-api n-cond n-sch n-cpu q-svc
{more}
enable_plugin watcher {git_base}/openstack/watcher{suffix}
enable_plugin secondary_scheduler {plugin} {branch}
'''

COMPUTE = '''\
DATABASE_TYPE=mysql
MYSQL_HOST=$SERVICE_HOST
RABBIT_HOST=$SERVICE_HOST
GLANCE_HOSTPORT=$SERVICE_HOST:9292
enable_service n-cpu placement-client
enable_plugin secondary_scheduler {plugin} {branch}
disable_service secondary-scheduler secondary-lease-api
'''

#: Steps as root on a node before its first stack.sh.
PREPARE = r'''
set -eu
id stack > /dev/null 2>&1 || useradd -s /bin/bash -d /opt/stack -m stack
chmod 755 /opt/stack
echo 'stack ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/stack
git config --system --replace-all safe.directory '*'
# The kernel has no such module in a container; Nova's volumes are not used.
mkdir -p /etc/systemd/system/iscsid.service.d
printf '[Service]\nType=oneshot\nExecStart=\nExecStart=/bin/true\n' \
    > /etc/systemd/system/iscsid.service.d/container.conf
systemctl daemon-reload
ssh-keygen -A
# Since the boot it has failed without keys, maybe too often to start again.
systemctl reset-failed ssh
systemctl restart ssh
for home in /root /opt/stack; do
    mkdir -p $home/.ssh
    cp /opt/node-keys/key $home/.ssh/id_ed25519
    cp /opt/node-keys/key.pub $home/.ssh/authorized_keys
    printf '%s\n' 'StrictHostKeyChecking no' 'LogLevel ERROR' \
        'UserKnownHostsFile /dev/null' > $home/.ssh/config
    chmod 700 $home/.ssh
    chmod 600 $home/.ssh/id_ed25519
done
chown -R stack:stack /opt/stack/.ssh /var/cache/pip
'''


def names(number: int) -> list[str]:
    """Return the names of so many nodes."""
    return [f'node{n}' for n in range(1, number + 1)]


def _keys() -> pathlib.Path:
    return layout.STATE / 'node-keys'


def _make_keys() -> None:
    _keys().mkdir(parents=True, exist_ok=True)
    (_keys() / 'key').unlink(missing_ok=True)
    run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f',
         _keys() / 'key'])


def _mounts(base: str) -> list[containers.Mount]:
    """Return what a node sees of the machine: sources, guest, downloads."""
    caches = layout.STATE / 'pip-cache'
    containers.ARCHIVES.mkdir(parents=True, exist_ok=True)
    for directory in (caches, git_base.PLUGIN, layout.GUEST):
        directory.mkdir(parents=True, exist_ok=True)
    found = [
        containers.Mount(git_base.PLUGIN, git_base.PLUGIN_INSIDE),
        containers.Mount(layout.SOURCE, TREE),
        containers.Mount(layout.GUEST, str(layout.GUEST)),
        containers.Mount(_keys(), '/opt/node-keys'),
        containers.Mount(containers.ARCHIVES, '/var/cache/apt/archives',
                         writable=True),
        containers.Mount(caches, '/var/cache/pip', writable=True)]
    if git_base.is_directory(base):
        found.append(containers.Mount(pathlib.Path(base).absolute(),
                                      git_base.INSIDE))
    return found


def boot(nodes: list[str], base: str) -> None:
    """Bring the nodes up, ready for stack.sh."""
    shell.once('guest image', guest.build, key=guest.key())
    shell.once('keys of the nodes', _make_keys)
    root = containers.make_root('devstack', PACKAGES)
    uplink.up(nodes)
    hosts = {node: uplink.address(node) for node in nodes}
    for node in nodes:
        if not containers.outer_pid(node):
            say(f'{node} boots')
        containers.boot(node, root, uplink.netns(node), _mounts(base), hosts)
        containers.run_in(node, ['sh', '-c', PREPARE], log=f'prepare-{node}')
        listing.keep_before(node)


def local_conf(node: str, base: str, more: Sequence[str] = ()) -> str:
    """Return local.conf of a node.

    :param more: services that the first node has as well.
    """
    inside, suffix = base, ''
    if git_base.is_directory(base):
        inside, suffix = f'file://{git_base.INSIDE}', '.git'
    if node != 'node1':
        template = SHARED + COMPUTE + OPTIONS
    elif 'tempest' in more:
        template = SHARED + CONTROL + TEMPEST + OPTIONS + TEMPEST_OPTIONS
    else:
        template = SHARED + CONTROL + OPTIONS
    return template.format(
        secret=SECRET, stack=STACK, git_base=inside, suffix=suffix,
        address=uplink.address(node), control=uplink.address('node1'),
        plugin=f'file://{git_base.PLUGIN_INSIDE}/secondary_scheduler.git',
        branch=git_base.BRANCH, guest=layout.GUEST,
        more=f'enable_service {" ".join(more)}' if more else '')


def _write(node: str, path: str, text: str) -> None:
    """Write a file of the user stack."""
    run([*containers.enter(node, 'stack'), 'sh', '-c',
         'printf %s "$1" > "$2"', 'sh', text, path])


def as_stack(node: str, script: str, *, log: str | None = None,
             check: bool = True, environment: dict[str, str] | None = None):
    """Run a line of shell as the user stack in DevStack's directory."""
    return containers.run_in(
        node, ['bash', '-c', f'cd {DEVSTACK} && {script}'], 'stack',
        log=log, check=check, environment={
            'PIP_CACHE_DIR': '/var/cache/pip', 'OS_CLOUD': 'devstack-admin',
            'OS_COMPUTE_API_VERSION': '2.96', **(environment or {})})


def prepare(node: str, base: str, more: Sequence[str]) -> None:
    """Give a node DevStack, its local.conf and the newest plug-in."""
    inside = (f'file://{git_base.INSIDE}' if git_base.is_directory(base)
              else base)
    repository = f'{inside}/openstack/devstack' + (
        '.git' if git_base.is_directory(base) else '')
    containers.run_in(
        node, ['sh', '-c', f'test -e {DEVSTACK}/stack.sh || '
               f'git clone -q {repository} {DEVSTACK}'], 'stack')
    _write(node, f'{DEVSTACK}/local.conf', local_conf(node, base, more))
    containers.run_in(
        node, ['sh', '-c', f'test ! -e {PLUGIN}/.git || '
               f'(cd {PLUGIN} && git fetch -q origin {git_base.BRANCH} && '
               'git reset -q --hard FETCH_HEAD)'], 'stack')


def stack(node: str) -> float:
    """Run stack.sh on a node; return the seconds it took.

    :raises BoxError: with the end of its log, if it fails.
    """
    say(f'stack.sh on {node} ...')
    began = time.monotonic()
    log = f'stack-{node}'
    try:
        as_stack(node, './stack.sh', log=log)
    finally:
        seconds = time.monotonic() - began
        say(f'stack.sh on {node} ran for {seconds:.0f} s')
    return seconds


def make(nodes: list[str], base: str, more: Sequence[str]) -> None:
    """Run stack.sh on each node, after unstack.sh if it has run before."""
    for node in nodes:
        prepare(node, base, more)
    if any(containers.run_in(node, ['test', '-e', f'{DEVSTACK}/.stackenv'],
                             check=False).returncode == 0 for node in nodes):
        unstack(nodes)
    for node in nodes:
        stack(node)
    if len(nodes) > 1:
        # The control plane does not know compute nodes that came after it.
        as_stack(nodes[0], './tools/discover_hosts.sh', log='discover')
        as_stack(nodes[0], f'{PLUGIN}/devstack/enable_hosts.sh',
                 log='discover')


def seed(node: str) -> None:
    """Upload images of guests that count their work; add what is missing.

    The box's own module does it, from inside the node.
    """
    as_stack(node, f'{VENV}/bin/python -c "import openstack, seed; '
             "seed.images(openstack.connect('devstack-admin'))\"",
             environment={'PYTHONPATH': f'{TREE}/tools/box',
                          'PYTHONDONTWRITEBYTECODE': '1',
                          'BOX_DIR': str(layout.STATE)})


def unstack(nodes: list[str]) -> None:
    """Run unstack.sh, on the compute nodes first."""
    for node in reversed(nodes):
        say(f'unstack.sh on {node}')
        as_stack(node, './unstack.sh', log=f'unstack-{node}')


def clean(nodes: list[str]) -> None:
    """Run clean.sh, on the compute nodes first."""
    for node in reversed(nodes):
        say(f'clean.sh on {node}')
        as_stack(node, './clean.sh', log=f'clean-{node}')


def memory_mb(nodes: Sequence[str]) -> int:
    """Return the memory of the nodes' processes, in MiB, without caches."""
    total = 0
    for name in nodes:
        group = cgroups.path('memory', f'hosts/{name}')
        stat = dict(line.split() for line in
                    (group / 'memory.stat').read_text().splitlines())
        total += int(stat.get('total_rss') or stat['anon'])
    return total >> 20
