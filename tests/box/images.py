# SPDX-License-Identifier: Apache-2.0

"""Container images of ``kolla/``, built by buildah, and run by podman.

kolla-build writes the Dockerfiles.  Kolla's image ``openstack-base`` comes
from servers that the box does not reach, so one with the same contract is made
from the machine's mirrors: Debian, a virtual environment in /var/lib/kolla,
/requirements, Kolla's users and entry point.  All images are below the box's
state directory, in a storage of their own.
"""

import os
import pathlib
import re
import resource
import shutil
import sys

sys.path.append(str(pathlib.Path(__file__).parents[2] / 'tools/devstack'))

# ruff: noqa: E402
import cgroups
import containers
import hosts
import layout
import shell

KOLLA = layout.SOURCE / 'kolla'
PAGE = layout.SOURCE / 'doc/source/install/kolla.rst'
DIRECTORY = layout.STATE / 'images'
OPTIONS = DIRECTORY / 'containers.conf'
#: Files and processes of a container, at most.
ULIMIT = 16384
TAG = 'box'
#: Number of the lease service's user and group (kolla/kolla-build.conf).
LEASE_ID = 42498
BASE = f'kolla/openstack-base:{TAG}'
#: Debian packages and programs without which no image can be built and run.
PROGRAMS = ('buildah', 'podman', 'runc')
#: An environment with the programs of the page that PyPI has.
VENV = DIRECTORY / 'venv'
REQUIREMENTS = ('build', 'docker', 'kolla>=20')
#: What the two images need of Kolla's base images; make_root needs systemd.
PACKAGES = ('ca-certificates', 'dumb-init', 'gcc', 'libc6-dev', 'procps',
            'python3', 'python3-dev', 'python3-venv', 'systemd')
#: Files of the machine with which pip reaches its servers.  They are volumes
#: of the build, so no image has them.
BUILD_VOLUMES = ('/etc/ssl/certs/ca-certificates.crt', '/etc/pip.conf')
BASE_DOCKERFILE = f'''\
FROM localhost/kolla/debian:{TAG}
RUN groupadd --gid 42400 kolla \\
    && groupadd --gid {LEASE_ID} secondary-lease \\
    && useradd -l -M --shell /usr/sbin/nologin --uid {LEASE_ID} \\
        --gid {LEASE_ID} secondary-lease
COPY upper-constraints.txt /requirements/upper-constraints.txt
RUN python3 -m venv --system-site-packages /var/lib/kolla/venv
ENV PATH=/var/lib/kolla/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:\
/usr/bin:/sbin:/bin
RUN python3 -m pip --no-cache-dir install --upgrade \
        -c /requirements/upper-constraints.txt pip wheel setuptools pymysql
ENTRYPOINT ["dumb-init", "--single-child", "--"]
'''


def missing_programs() -> str:
    """Return how to install the programs that are missing; or ''."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return (f'{", ".join(missing)} missing: apt install '
            f'{" ".join(PROGRAMS)}' if missing else '')


def tool(name: str, *arguments: object) -> list:
    """Return a command of buildah or podman on the storage of the images."""
    return [name, '--root', DIRECTORY / 'storage', '--runroot',
            DIRECTORY / 'run', *arguments]


def _write_options() -> None:
    """Write podman's options for a machine that is itself restricted.

    Without systemd there is no manager of control groups but podman.  It has
    crun by default, which refuses control groups of both versions at once.
    Where root may not raise limits of resources, podman's own are too high.
    """
    limits = (f'{name}={min(ULIMIT, *resource.getrlimit(kind))}'
              for name, kind in (('nofile', resource.RLIMIT_NOFILE),
                                 ('nproc', resource.RLIMIT_NPROC)))
    OPTIONS.write_text(
        '[containers]\ndefault_ulimits = ['
        + ', '.join(f'"{limit}"' for limit in limits) + ']\n'
        '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        'runtime = "runc"\n')


def _run(name: str, *arguments: object) -> str:
    return str(shell.run(tool(name, *arguments), log=None).stdout)


def _build(directory: pathlib.Path, image: str) -> None:
    volumes = [f'--volume={path}:{path}:ro' for path in BUILD_VOLUMES
               if os.path.exists(path)]
    # Without control groups of its own: crun refuses a machine on which
    # version 2 has some controllers and version 1 the others.
    shell.run(tool('buildah', 'build', '--isolation=chroot', '--layers',
                   *volumes, '--tag', image, directory), log='images')


def _make_base() -> None:
    root = containers.make_root('kolla', PACKAGES)
    # A build finds these of the machine by its volumes only.
    shutil.rmtree(root / 'usr/local/share/ca-certificates',
                  ignore_errors=True)
    (root / 'etc/pip.conf').unlink(missing_ok=True)
    shell.run(['chroot', root, 'update-ca-certificates', '--fresh'])
    archive = DIRECTORY / 'debian.tar'
    shell.run(['tar', '--create', '--file', archive, '--directory', root,
               '--exclude=./var/cache/apt/archives/*.deb',
               '--exclude=./var/lib/apt/lists/*_*', '.'])
    _run('podman', 'import', '--quiet', archive, f'kolla/debian:{TAG}')
    archive.unlink()
    directory = DIRECTORY / 'openstack-base'
    directory.mkdir(exist_ok=True)
    (directory / 'Dockerfile').write_text(BASE_DOCKERFILE)
    # OpenStack's own file has three signs.
    (directory / 'upper-constraints.txt').write_text(
        (layout.HERE / 'constraints.txt').read_text().replace('==', '==='))
    _build(directory, BASE)


def _make_environment() -> None:
    shell.run([layout.BIN / 'python', '-m', 'venv', '--clear', VENV])
    shell.run([VENV / 'bin/pip', 'install', '-q', *REQUIREMENTS],
              log='images')


def _make_archive() -> pathlib.Path:
    """Return a source archive of the commit that is checked out."""
    place = DIRECTORY / 'source'
    shutil.rmtree(place, ignore_errors=True)
    shell.run(['git', 'clone', '--quiet', layout.SOURCE, place / 'tree'])
    shell.run([VENV / 'bin/python', '-m', 'build', '--sdist', '--outdir',
               place], cwd=place / 'tree', log='images',
              env={'PBR_VERSION': os.environ.get('PBR_VERSION', '0.1.0')})
    archive, = place.glob('*.tar.gz')
    return archive


def reference(name: str) -> str:
    """Return the reference of an image, for instance of secondary-agent."""
    return f'localhost/kolla/{name}:{TAG}'


def build() -> None:
    """Build the images of ``kolla/docker``, if the mirrors can be reached.

    :raises BoxError: with the end of the output of the step that fails.
    """
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    _write_options()
    # Builds that were interrupted, and images of earlier trees.
    _run('buildah', 'rm', '--all')
    _run('podman', 'image', 'prune', '--force')
    shell.once('base image', _make_base,
               key=BASE_DOCKERFILE + ' '.join(PACKAGES))
    shell.once('programs for images', _make_environment,
               key=' '.join(REQUIREMENTS))
    archive = _make_archive()
    rendered = DIRECTORY / 'rendered'
    shutil.rmtree(rendered, ignore_errors=True)
    shell.run([VENV / 'bin/kolla-build', '--template-only',
               '--config-file', KOLLA / 'kolla-build.conf',
               '--base', 'debian', '--tag', TAG,
               '--docker-dir', KOLLA / 'docker', '--work-dir', rendered,
               '^secondary-'], log='images')
    for dockerfile in sorted(rendered.rglob('secondary-*/Dockerfile')):
        name = dockerfile.parent.name
        shell.say(f'image {name} ...')
        # As kolla-build does with a source of type "local".
        shutil.copy(archive, dockerfile.parent / f'{name}-archive')
        _build(dockerfile.parent, reference(name))


def unmount() -> None:
    """Unmount the storage, so that "down --purge" can remove it."""
    shell.run(['umount', '--recursive', '--lazy',
               DIRECTORY / 'storage/overlay'], check=False)


def documented(*words: str) -> list[str]:
    """Return the command of the page that begins with "docker run".

    :param words: which it has among its own: they tell which one is meant.
    """
    text = PAGE.read_text().replace('\\\n', ' ')
    commands = [line.split() for line in text.splitlines()
                if line.strip().startswith('docker run ')]
    found, = (one for one in commands if set(words) <= set(one))
    return found


def podman(command: list[str], image: str, volumes: dict[str, pathlib.Path]
           ) -> list:
    """Return a documented command as podman takes it.

    :param volumes: for directories of the page, those of the box.
    """
    assert command[0] == 'docker'
    words = []
    for word in command[1:]:
        source, colon, rest = word.partition(':')
        words.append(f'{volumes[source]}:{rest}' if colon and source in volumes
                     else image if word == 'IMAGE' else word)
    return ['env', f'CONTAINERS_CONF={OPTIONS}', *tool('podman', *words)]


def in_host(host: str, command: list) -> list:
    """Return a command as it runs in a compute host, as a service of it."""
    return cgroups.inside(hosts.system_group(host),
                          [*hosts.enter(host), *command])


def in_control_plane(command: list) -> list:
    """Return a command as it runs beside the services of the control plane."""
    return cgroups.inside('control', shell.inside_netns(command))


def write_options_of_service() -> pathlib.Path:
    """Write the lease service's options for its container; return where."""
    place = DIRECTORY / 'etc/lease-api'
    place.mkdir(parents=True, exist_ok=True)
    path = place / 'secondary-lease-api.conf'
    path.write_text(re.sub(
        r'(?m)^log_file = .*\n', '',
        (layout.ETC / 'secondary_scheduler' / path.name).read_text()))
    path.chmod(0o640)
    shutil.chown(path, group=LEASE_ID)
    return place


def write_options_of_host(host: str) -> pathlib.Path:
    """Write a host's options as a container finds them; return where."""
    place = DIRECTORY / 'etc' / host
    place.mkdir(parents=True, exist_ok=True)
    etc = layout.ETC
    (place / 'secondary_scheduler.conf').write_text(
        (etc / 'secondary_scheduler/policies.conf').read_text())
    text = (etc / f'hosts/{host}/agent.conf').read_text()
    (place / 'secondary-agent.conf').write_text(
        re.sub(r'(?m)^(log_file|state_path) = .*\n', '', text))
    return place


if __name__ == '__main__':
    build()
