# SPDX-License-Identifier: Apache-2.0

"""Installation of the packages that the box needs on a fresh Debian 12.

Debian packages for the servers and the hypervisor, a virtual environment
with pinned versions for OpenStack and for this project.
"""

import hashlib
import os
import pathlib
import shutil
import sys

import layout
from shell import BoxError, once, run, say

PACKAGES = [
    'mariadb-server', 'rabbitmq-server', 'postgresql', 'postgresql-contrib',
    'qemu-system-x86', 'qemu-utils', 'libvirt-daemon-system',
    'libvirt-daemon', 'libvirt-daemon-driver-qemu', 'libvirt-clients',
    'libvirt-dev', 'pkg-config', 'gcc', 'python3-dev', 'python3-venv',
    'busybox-static', 'cpio', 'iproute2', 'util-linux', 'git', 'bindfs',
    'openssh-server', 'openssh-client', 'prometheus']

CONSTRAINTS = layout.HERE / 'constraints.txt'
REQUIREMENTS = layout.HERE / 'requirements.txt'


def python() -> str:
    """Return a Python 3.11 or newer, which Nova 34 asks for."""
    for name in (sys.executable, 'python3.11', '/usr/bin/python3'):
        path = shutil.which(name)
        if path and sys.version_info >= (3, 11):
            return path
    raise BoxError('Python 3.11 or newer is needed')


def _debian() -> None:
    # Maintainer scripts must not start daemons: the box starts its own.
    policy = pathlib.Path('/usr/sbin/policy-rc.d')
    ours = not policy.exists()
    if ours:
        policy.write_text('#!/bin/sh\nexit 101\n')
        policy.chmod(0o755)
    env = {'DEBIAN_FRONTEND': 'noninteractive'}
    apt = ['apt-get', '-q', '-o', 'DPkg::Lock::Timeout=300']
    try:
        run([*apt, 'update'], log='apt', env=env)
        run([*apt, 'install', '-y', '--no-install-recommends', *PACKAGES],
            log='apt', env=env)
    finally:
        if ours:
            policy.unlink()


def _environment() -> None:
    # Anew: what an interrupted step, or a cleaned disk, left half there would
    # count as installed.
    run([python(), '-m', 'venv', '--clear', layout.VENV], log='venv')
    run([layout.BIN / 'pip', 'install', '-q', '-c', CONSTRAINTS,
         '-r', REQUIREMENTS], log='pip')


def _project() -> None:
    # pbr reads the version from git; a tree without tags is version 0.
    run([layout.BIN / 'pip', 'install', '-q', '--no-deps',
         '--no-build-isolation', '-e', layout.SOURCE], log='pip',
        env={'PBR_VERSION': os.environ.get('PBR_VERSION', '0.1.0')})
    # stevedore keeps entry points by a time of 128 s precision: after another
    # installation just before it would find those of that one.
    shutil.rmtree(pathlib.Path.home() / '.cache/python-entrypoints',
                  ignore_errors=True)


def _key(*paths: pathlib.Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def code_key() -> str:
    """Return what changes when the services have to be started anew."""
    files = (path for directory in (layout.SOURCE / 'secondary_scheduler',
                                    layout.HERE)
             for path in directory.rglob('*')
             if path.is_file() and '__pycache__' not in path.parts)
    return str(layout.SOURCE) + _key(layout.SOURCE / 'setup.cfg',
                                     *sorted(files))


def install() -> None:
    """Install whatever is missing; quick when nothing is."""
    once('debian packages', _debian, key=' '.join(PACKAGES))
    once('python environment', _environment,
         key=_key(CONSTRAINTS, REQUIREMENTS))
    once('secondary_scheduler itself', _project,
         key=str(layout.SOURCE) + _key(layout.SOURCE / 'setup.cfg',
                                       layout.SOURCE / 'pyproject.toml'))
    say(f'installed; state is in {layout.STATE}')
