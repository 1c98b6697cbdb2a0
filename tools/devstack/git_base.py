# SPDX-License-Identifier: Apache-2.0

"""Git repositories for DevStack: a directory of them, and this working tree.

Where no git server can be reached, a directory takes its place.  In it is
``openstack/NAME.git`` for each of REPOSITORIES, bare, with one commit on the
branch ``master`` and one annotated tag, a version, from which pbr makes the
version of the package.
"""

from collections.abc import Iterable
import os
import pathlib
import re
import shutil
import subprocess

import layout
from shell import BoxError, run, say

#: What DevStack clones for the services that "run" enables.
REPOSITORIES = (
    'devstack', 'requirements', 'keystone', 'glance', 'nova', 'placement',
    'neutron', 'watcher', 'python-watcherclient')
#: ... and for those that options add.
OPTIONAL = {'horizon': ('horizon',), 'tempest': ('tempest', 'os-test-images')}
#: Where a directory appears inside the nodes.
INSIDE = '/opt/git-base'
PLUGIN_INSIDE = '/opt/git-plugin'
PLUGIN = layout.STATE / 'git-plugin'
#: Branches have the names of this project's.
BRANCH = 'main'

_IDENTITY = {
    'GIT_AUTHOR_NAME': 'devstack', 'GIT_AUTHOR_EMAIL': 'devstack@localhost',
    'GIT_COMMITTER_NAME': 'devstack',
    'GIT_COMMITTER_EMAIL': 'devstack@localhost'}


def _git(*arguments, env: dict | None = None, **kwargs):
    return run(['git', '-c', 'safe.directory=*', *arguments],
               env={**_IDENTITY, **(env or {})}, **kwargs)


def is_directory(base: str) -> bool:
    """Return whether a git base is a directory instead of a server."""
    return '://' not in base


def check(base: str, extra: Iterable[str] = ()) -> None:
    """Refuse a git base that cannot serve.

    :param base: an address, or a directory of repositories.
    :param extra: services from OPTIONAL that are enabled as well.
    :raises BoxError: with what to do.
    """
    names = [*REPOSITORIES, *_optional(extra)]
    if is_directory(base):
        missing = [name for name in names if not pathlib.Path(
            base, f'openstack/{name}.git/HEAD').is_file()]
        if missing:
            raise BoxError(
                f'{base} has no openstack/NAME.git for {", ".join(missing)}. '
                'If you have clones of them, "python3 tools/devstack '
                f'git-base {base} CLONE ..." makes them')
        return
    try:
        _git('ls-remote', f'{base}/openstack/devstack', 'HEAD', timeout=60,
             env={'GIT_TERMINAL_PROMPT': '0'})
    except BoxError as problem:
        raise BoxError(
            f'the git server {base} cannot be reached; --git-base names '
            f'another one, or a directory of repositories ({problem})'
        ) from problem


def _optional(services: Iterable[str]) -> list[str]:
    """Return the repositories that services from OPTIONAL need."""
    return [name for service in services for name in OPTIONAL[service]]


def _version(clone: str) -> str:
    """Return the version of a clone, or a late one if it has no tag.

    Without a tag pbr makes version 0, and other packages ask for a later one.
    """
    done = _git('-C', clone, 'describe', '--tags', '--abbrev=0',
                '--match', '[0-9]*', check=False)
    return '99.0.0' if done.returncode else done.stdout.strip()


def add(base: str, clones: list[str]) -> None:
    """Make repositories of a git base from clones, bare ones or others.

    A clone may lack old objects: only its newest commit is read.  A
    repository that is there is replaced.

    :param clones: directories with "openstack/NAME" as the end of their
        remote's address or of their own path, or NAME=DIRECTORY.
    :raises BoxError: if a directory is no clone, or its name is not known.
    """
    for clone in clones:
        name, separator, path = clone.rpartition('=')
        if not separator:
            name = _guess(path)
        done = _git('-C', path, 'rev-parse', 'HEAD', check=False)
        if done.returncode:
            raise BoxError(f'{path} is no git repository with a commit')
        target = pathlib.Path(base, f'openstack/{name}.git').absolute()
        say(f'{target} from {path}')
        shutil.rmtree(target, ignore_errors=True)
        _one_commit(target, 'master', _version(path), [
            'git', '-c', 'safe.directory=*', '-C', path, 'archive', 'HEAD'])


def _guess(path: str) -> str:
    """Return the repository's name that a path of a clone tells."""
    found = re.findall(r'openstack[/+]([a-z-]+)', path)
    names = {*REPOSITORIES, *_optional(OPTIONAL)}
    for name in (*found, pathlib.Path(path).name.removesuffix('.git')):
        if name in names:
            return name
    raise BoxError(f'{path} does not tell which repository it is; write '
                   f'NAME={path}, NAME being one of '
                   f'{", ".join(sorted(names))}')


def _one_commit(target: pathlib.Path, branch: str, version: str,
                archive: list[str]) -> None:
    """Make a bare repository of one commit from a tar archive."""
    tree = target.with_suffix('.tree')
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    with subprocess.Popen(archive, stdout=subprocess.PIPE) as source:
        unpacked = subprocess.run(
            ['tar', '-x', '-C', tree, '--no-same-owner'],
            stdin=source.stdout)
    if source.returncode or unpacked.returncode:
        raise BoxError(f'"{" ".join(archive)}" cannot be unpacked')
    # An archive has files that its own .gitignore names.
    commit(target, tree, branch, version, '--force')
    shutil.rmtree(tree)


def commit(target: pathlib.Path, tree: pathlib.Path, branch: str,
           version: str, *options: str) -> None:
    """Make a bare repository of what is in a directory.

    :param options: for "git add", which leaves out ignored files.
    """
    shutil.rmtree(target, ignore_errors=True)
    _git('init', '--quiet', '--bare', f'--initial-branch={branch}', target)
    place = (f'--git-dir={target}', f'--work-tree={tree}')
    _git(*place, 'add', '--all', *options, cwd=tree)
    _git(*place, 'commit', '--quiet', '-m', 'Snapshot', cwd=tree)
    _git(*place, 'tag', '-a', '-m', version, version)
    # The owner inside a node is another one.
    run(['chmod', '-R', 'a+rX', target])


def publish_plugin() -> str:
    """Make the repository of this working tree; return the tree's hash.

    Uncommitted changes are in it, ignored files are not.
    """
    target = PLUGIN / 'secondary_scheduler.git'
    PLUGIN.mkdir(parents=True, exist_ok=True)
    commit(target, layout.SOURCE, BRANCH,
           os.environ.get('PBR_VERSION', '0.1.0'))
    return _git(f'--git-dir={target}', 'rev-parse',
                'HEAD^{tree}').stdout.strip()
