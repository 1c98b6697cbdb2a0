# SPDX-License-Identifier: Apache-2.0

"""A real DevStack with this plug-in, in containers on this machine.

The real stack.sh runs under a real systemd, in namespaces of its own, with
Watcher's plug-in and with this one from the working tree. All state is in
one directory (BOX_DIR, default /var/tmp/secondary-devstack).
"""

import argparse
import inspect
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

# Before the box's modules are imported: their paths and names come from it.
os.environ.setdefault('BOX_DIR', '/var/tmp/secondary-devstack')  # nosec B108
os.environ.setdefault('BOX_NAME', 'secondary-devstack')
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / 'box'))

import acceptance  # noqa: E402
import cgroups  # noqa: E402
import containers  # noqa: E402
import git_base  # noqa: E402
import layout  # noqa: E402
import nodes  # noqa: E402
import shell  # noqa: E402
from shell import BoxError, say  # noqa: E402
import uplink  # noqa: E402

FIRST_STEPS = """\
first steps:
  python3 tools/devstack run --nodes 2
  python3 tools/devstack exec openstack compute service list
  python3 tools/devstack exec --node node2 sudo secondary-agent status
  python3 tools/devstack test
  python3 tools/devstack down

Without a git server, from clones:
  python3 tools/devstack git-base DIRECTORY CLONE ...
  python3 tools/devstack run --git-base DIRECTORY

Each command has --help. An interrupted one may be given again.
"""
OPENDEV = 'https://opendev.org'
#: "commit" is that of the working tree on nodes whose stack.sh ended well.
DEFAULTS = {'nodes': 1, 'git_base': OPENDEV, 'services': [], 'commit': ''}
SETTINGS = layout.STATE / 'devstack.json'


@shell.alone()
def run(arguments) -> None:
    """Boot the nodes and run stack.sh on each.

    What is missing is installed. Nodes that run this very working tree with
    these settings are left alone. Otherwise they begin from nothing, or, with
    --keep, run unstack.sh and stack.sh again with what they have.
    """
    cgroups.check()
    began = time.monotonic()
    settings = _settings(arguments)
    git_base.check(settings['git_base'], settings['services'])
    commit = git_base.publish_plugin()
    names = nodes.names(settings['nodes'])
    if not (_is_up(names) and commit == settings['commit']
            and settings == _settings()):
        if not arguments.keep:
            _stop_all()
            for path in containers.CONTAINERS.glob('node*'):
                containers.remove(path.name)
        elif not settings['commit']:
            # Scripts of an interrupted run may still work in them.
            _stop_all()
        _save({**settings, 'commit': ''})
        cgroups.make_tree()
        cgroups.share(cgroups.path('cpu'), nodes.SHARES)
        nodes.boot(names, settings['git_base'])
        nodes.make(names, settings['git_base'], settings['services'])
        _save({**settings, 'commit': commit})
    nodes.seed(names[0])
    say(f'{time.monotonic() - began:.0f} s; the nodes use '
        f'{nodes.memory_mb(names)} MiB of memory')
    say('up; "python3 tools/devstack --help" tells the first steps')


def _is_up(names: list[str]) -> bool:
    return all(map(containers.outer_pid, names))


def _settings(arguments=None) -> dict:
    """Return the settings of the last run, with those that are given."""
    found = dict(DEFAULTS)
    if SETTINGS.exists():
        found.update(json.loads(SETTINGS.read_text()))
    for key in DEFAULTS:
        value = getattr(arguments, key, None)
        if value is not None:
            found[key] = value
    if git_base.is_directory(found['git_base']):
        found['git_base'] = str(pathlib.Path(found['git_base']).absolute())
    return found


def _save(settings: dict) -> None:
    SETTINGS.parent.mkdir(parents=True, exist_ok=True)
    SETTINGS.write_text(json.dumps(settings, indent=1) + '\n')


def exec_(arguments) -> None:
    """Run a command on a node, as the user stack with admin's credentials.

      python3 tools/devstack exec openstack server list
      python3 tools/devstack exec --node node2 sudo secondary-agent status
      python3 tools/devstack exec ./unstack.sh
    """
    sys.exit(subprocess.run([
        *containers.enter(arguments.node, 'stack', OS_CLOUD=arguments.cloud,
                          OS_COMPUTE_API_VERSION='2.96',
                          TERM=os.environ.get('TERM', 'dumb')),
        'sh', '-c', f'cd {nodes.DEVSTACK} && exec "$@"', 'sh',
        arguments.program, *arguments.arguments]).returncode)


def test(arguments) -> None:
    """Exercise the plug-in through the API, then stack and clean again.

    The nodes are brought up as by "run". Secondaries are throttled, migrated,
    suspended and returned, and a lease is served; with Horizon its panels are
    opened, with Tempest the plug-in's tests are run. Then unstack.sh,
    stack.sh, the same again, and clean.sh, with listings of what is left
    compared with those before the first stack.sh.
    """
    run(arguments)
    _exercise(once=arguments.once)


@shell.alone()
def _exercise(once: bool) -> None:
    settings = _settings()
    if not once:
        _save({**settings, 'commit': ''})
    acceptance.run_all(nodes.names(settings['nodes']), settings['git_base'],
                       settings['services'], once)


@shell.alone()
def down(arguments) -> None:
    """Stop the nodes and the network; with --purge remove all state."""
    _stop_all()
    if arguments.purge:
        shutil.rmtree(layout.STATE, ignore_errors=True)
    say('down' + (', and all state removed' if arguments.purge else ''))


def _stop_all() -> None:
    for path in sorted(containers.CONTAINERS.glob('node*'), reverse=True):
        containers.shut_down(path.name)
    uplink.down()
    cgroups.remove()


def make_git_base(arguments) -> None:
    """Make repositories of a git base from clones, one commit each.

    A directory that is named by --git-base takes the place of a git server.
    Clones may be bare, and may lack old objects. A clone whose path does not
    tell which repository it is, is written NAME=DIRECTORY.

      python3 tools/devstack git-base /var/tmp/git-base ~/openstack/*
    """
    git_base.add(arguments.directory, arguments.clones)


def _add_settings(sub: argparse.ArgumentParser) -> None:
    """Add the options of "run"."""
    sub.add_argument('--git-base', metavar='URL|DIR',
                     help='git server, or a directory of repositories; it is '
                          'remembered, as --nodes and --with are (default '
                          f'{OPENDEV})')
    sub.add_argument('--nodes', type=int, choices=(1, 2), metavar='N',
                     help='1, or 2: one more with a compute service only '
                          '(default 1)')
    sub.add_argument('--with', dest='services', nargs='*',
                     choices=git_base.OPTIONAL, metavar='SERVICE',
                     help='services that the first node has as well: '
                          f'{" ".join(git_base.OPTIONAL)}')
    sub.add_argument('--keep', action='store_true',
                     help='keep what the nodes have: unstack.sh and '
                          'stack.sh instead of nodes from nothing')


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    top = argparse.ArgumentParser(
        prog='python3 tools/devstack', description=__doc__,
        epilog=FIRST_STEPS,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(dest='command', required=True,
                                  metavar='COMMAND')

    def command(name, function, summary):
        sub = commands.add_parser(
            name, help=summary, description=inspect.getdoc(function),
            formatter_class=argparse.RawDescriptionHelpFormatter)
        sub.set_defaults(function=function)
        return sub

    sub = command('run', run, 'boot the nodes and run stack.sh')
    _add_settings(sub)
    sub = command('exec', exec_, 'run a command on a node')
    sub.add_argument('--node', default='node1', metavar='NAME',
                     help='the node (default node1)')
    sub.add_argument('--cloud', default='devstack-admin', metavar='NAME',
                     help='credentials in clouds.yaml: devstack-admin, '
                          'devstack ... (default devstack-admin)')
    sub.add_argument('program', metavar='COMMAND')
    sub.add_argument('arguments', nargs=argparse.REMAINDER, metavar='...',
                     help='its arguments')
    sub = command('test', test, 'run, and exercise the plug-in in it')
    _add_settings(sub)
    sub.add_argument('--once', action='store_true',
                     help='without unstack.sh, the second stack.sh and '
                          'clean.sh')
    sub = command('git-base', make_git_base,
                  'make a directory of repositories from clones')
    sub.add_argument('directory', metavar='DIRECTORY')
    sub.add_argument('clones', metavar='CLONE', nargs='+')
    sub = command('down', down, 'stop the nodes')
    sub.add_argument('--purge', action='store_true',
                     help='also remove all state, downloads included')
    return top


def main() -> None:
    """Run the command; errors that the user can mend are one message."""
    arguments = parser().parse_args()
    try:
        arguments.function(arguments)
    except BoxError as problem:
        sys.exit(f'devstack: {problem}')
    except KeyboardInterrupt:
        sys.exit('devstack: interrupted; the same command may be given again')


if __name__ == '__main__':
    main()
