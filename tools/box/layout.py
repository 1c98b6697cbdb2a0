# SPDX-License-Identifier: Apache-2.0

"""Paths, addresses and sizes of the box.

One directory holds all state, so that removing it removes the box.  Every
address is in network namespaces of the box's own: nothing listens on the
machine's own loopback or network.
"""

import json
import os
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
# Whoever runs the box is root on a machine that he can spare.
_DEFAULT = '/var/tmp/secondary-box'  # nosec B108
STATE = pathlib.Path(os.environ.get('BOX_DIR', _DEFAULT))
#: Of its control group and its network namespaces.
NAME = os.environ.get('BOX_NAME', 'secondary-box')

VENV = STATE / 'venv'
BIN = VENV / 'bin'
ETC = STATE / 'etc'
RUN = STATE / 'run'
LOG = STATE / 'log'
STAMPS = STATE / 'stamps'
HOSTS = STATE / 'hosts'
SHARED = STATE / 'shared'
GUEST = STATE / 'guest'
SERVICE_STATE = STATE / 'state'
SETTINGS = STATE / 'settings.json'

#: Network namespace of the control plane, and of the bridge to the hosts.
NETNS = NAME
#: Address of every control plane service, inside NETNS only.
CONTROL = '10.77.0.254'
#: Nothing outside of the box's namespaces can reach what it protects.
SECRET = 'secret'  # nosec B105

AUTH_URL = f'http://{CONTROL}:5000/v3'
BROKER = f'rabbit://openstack:{SECRET}@{CONTROL}:5672/'
#: The virtual host of the messages between agents, scheduler and Watcher only
#: (doc, "Security").
MEETING = 'secondary'

#: CPUs of one compute host, if "up --sizes" says nothing else: three of them,
#: full up to the policy, leave more than half of two cores to the control
#: plane, which stands in for machines of its own. With fuller cores the guests
#: of one host delay another's primary.
HOST_CPUS = 0.35
#: Period of the bandwidth limit that makes a host a host, in microseconds.
#: Time left of one period may be used in the next (cfs_burst_us), so a host is
#: not throttled before it is busy (see doc/source/contributor/box.rst).
HOST_PERIOD_US = 100_000

#: What the box's policy allows, in percent of a host for so many seconds.
THRESHOLD = 60
TIMELIMIT = 10
POLICY = f'cpu <= {THRESHOLD}% for {TIMELIMIT}s on aggregate:secondary'

#: The cgroup controllers that hosts have, of either version.
CONTROLLERS = ('cpu', 'cpuacct', 'cpuset', 'memory', 'devices', 'freezer',
               'blkio', 'io', 'pids')


def machine_cpus() -> list[int]:
    """Return the CPUs of the machine that the box may use."""
    return sorted(os.sched_getaffinity(0))


def cpus(wide: bool = False) -> tuple[list[int], list[int]]:
    """Return the machine's CPUs of the first host and of the other hosts.

    The first has one for itself, if there are two: there no guest of another
    delays its primary, as none can on a real one.

    :param wide: the other hosts have all CPUs of the machine.
    """
    usable = machine_cpus()
    return usable[-1:], usable if wide else usable[:-1] or usable


def host_cpus(settings: dict) -> dict[str, list[int]]:
    """Return the machine's CPUs of each real compute host."""
    first, others = cpus(settings['wide'])
    return {name: others if number else first
            for number, name in enumerate(host_names(settings))}


def host_names(settings: dict) -> list[str]:
    """Return the names of the real compute hosts of this box."""
    return [f'box{n}' for n in range(1, settings['hosts'] + 1)]


def host_sizes(settings: dict) -> dict[str, float]:
    """Return the CPUs of each real compute host; one size is that of all."""
    names, sizes = host_names(settings), settings['sizes']
    return dict(zip(names, sizes if len(sizes) > 1 else sizes * len(names),
                    strict=True))


def host_address(name: str) -> str:
    """Return the address of a compute host inside the box."""
    return f'10.77.0.{int(name.removeprefix("box"))}'


def database(name: str) -> str:
    """Return the SQLAlchemy URL of a service's database."""
    return (f'mysql+pymysql://box:{SECRET}@{CONTROL}:3306/{name}'
            '?charset=utf8')


def load_settings() -> dict:
    """Return the settings of the last ``up``, or the defaults."""
    settings = {'hosts': 3, 'sizes': [HOST_CPUS], 'wide': False,
                'fake_hosts': 0, 'engines': 1, 'horizon': 0, 'cells': 1}
    try:
        settings.update(json.loads(SETTINGS.read_text()))
    except (OSError, ValueError):
        pass
    return settings


def write(path: pathlib.Path, text: str) -> None:
    """Write a file, and make its directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def save_settings(settings: dict) -> None:
    """Remember the settings for ``status``, ``down`` and the next ``up``."""
    STATE.mkdir(parents=True, exist_ok=True)
    SETTINGS.write_text(json.dumps(settings, indent=1) + '\n')


def credentials(user: str = 'admin', project: str = 'admin') -> dict:
    """Return the OS_* variables of a user of the box."""
    return {'OS_AUTH_URL': AUTH_URL, 'OS_USERNAME': user,
            'OS_PASSWORD': SECRET, 'OS_PROJECT_NAME': project,
            'OS_USER_DOMAIN_ID': 'default',
            'OS_PROJECT_DOMAIN_ID': 'default',
            'OS_REGION_NAME': 'RegionOne', 'OS_IDENTITY_API_VERSION': '3',
            'OS_COMPUTE_API_VERSION': '2.96'}
