# SPDX-License-Identifier: Apache-2.0

"""A one-machine OpenStack with secondary_scheduler working in it.

Everything is real: Nova, Placement, Keystone, Glance, Neutron's API,
Watcher, RabbitMQ, MariaDB, libvirt and QEMU, all in network namespaces and
cgroups of their own on this machine, with all state in one directory
(BOX_DIR, default /var/tmp/secondary-box).
"""

import argparse
import inspect
import os
import shutil
import sys
import time

import cells
import cgroups
import control
import dashboard
import guest
import hosts
import install
import layout
import network
import session
import shell
from shell import BoxError, once, run, say

FIRST_STEPS = """\
first steps:
  python3 tools/box up
  python3 tools/box openstack --user demo secondary lease create pair \\
      --nodes number=2,flavor=secondary,image=worker-cpu,network=none \\
      --duration 2m
  python3 tools/box openstack --user demo secondary lease list
  python3 tools/box exec secondary-scheduler host list
  python3 tools/box exec --host box1 secondary-agent status
  python3 tools/box shell

Each command has --help. An interrupted one may be given again.
"""


@shell.alone()
def up(arguments) -> None:
    """Install what is missing and start everything.

    What runs is left alone, unless the code has changed since: then it is
    stopped first, and servers on it have to be started again. While a demo
    or tests run on the box, it is not stopped for other code.
    """
    cgroups.check()
    _stop_old_code()
    before = layout.load_settings()
    settings = change_settings(before, arguments)
    if shell.running() and any(settings[name] != before[name] for name in (
            'sizes', 'wide', 'cells')):
        say('the hosts get other CPUs or cells: stopping what runs; its '
            'servers will be off')
        _stop_all()
    layout.save_settings(settings)
    sizes = layout.host_sizes(settings)
    names = list(sizes)
    _boot(sizes, layout.host_cpus(settings))
    control.up(settings)
    second = ' '.join(cells.hosts_of_second(settings))
    if second or (layout.STAMPS / 'cells of hosts').exists():
        once('cells of hosts', _change_cell, names[-1], key=second)
    for name in names:
        hosts.wait_booted(name)
        hosts.start_compute(name)
        hosts.start_primary(name)
    once('images, flavors, hosts', control.seed, 'cloud', *names,
         key=' '.join(names) + guest.key() + guest.COMMAND_LINE + second)
    once('secondaries enabled', _enable, sizes,
         key=str(_enabled(sizes)) + second)
    for name in names:
        hosts.start_agent(name)
    if settings['fake_hosts']:
        _start_fake_hosts(settings['fake_hosts'])
    control.seed('leases')
    dashboard.up(settings)
    say(f'up: {len(names)} compute hosts; "python3 tools/box --help" tells '
        'the first steps')


def change_settings(settings: dict, arguments) -> dict:
    """Return the settings with what the command line changes of them.

    :raises BoxError: if the hosts would have sizes that are not theirs.
    """
    given = {name: value for name, value in vars(arguments).items()
             if name in settings and value is not None}
    changed = {**settings, **given}
    number = len(changed['sizes'])
    if number > 1 and number != changed['hosts']:
        if 'sizes' not in given:
            changed['sizes'] = [layout.HOST_CPUS]
        elif 'hosts' not in given:
            changed['hosts'] = number
        else:
            raise BoxError(f'--sizes is about {number} hosts, --hosts about '
                           f'{given["hosts"]}; one of them is enough')
    return changed


def _boot(sizes: dict[str, float], cpus: dict[str, list[int]]) -> None:
    """Install what is missing and start the hosts, up to their libvirtd.

    :param sizes: the size of each host, in CPUs.
    :param cpus: the CPUs of the machine that each host may use.
    """
    install.install()
    once('guest image', guest.build, key=guest.key())
    once('shims of libvirtd and QEMU', hosts.build_shims,
         key=''.join(path.read_text() for path in hosts.shims()))
    once('keys of the hosts', hosts.make_keys)
    network.up(list(sizes))
    cgroups.make_all()
    for name in sizes:
        hosts.boot(name, sizes, cpus[name])


def _change_cell(host: str) -> None:
    """Move a host to Nova's second cell, or back to the first one.

    To Nova it is a new host then: its servers are deleted.
    """
    control.seed('forget', host)
    hosts.forget_compute(host)


def _enabled(sizes: dict[str, float]) -> dict[str, int]:
    """Return how many secondaries each host may hold: four by default."""
    return {name: max(1, round(4 * size / layout.HOST_CPUS))
            for name, size in sizes.items()}


def _enable(sizes: dict[str, float]) -> None:
    environment = layout.credentials()
    for name, slots in _enabled(sizes).items():
        run([layout.BIN / 'secondary-scheduler', 'host', 'enable', name,
             '--vcpus', slots, '--memory-mb', 256 * slots,
             '--disk-gb', max(10, 2 * slots), '--slots', slots],
            netns=True, env=environment)
    run([layout.BIN / 'secondary-scheduler', 'flavor', 'create', 'secondary',
         '--vcpus', '1', '--ram', '128', '--disk', '1'],
        netns=True, env=environment)


def _start_fake_hosts(number: int) -> None:
    shell.start('fake-computes', cgroups.inside('control', shell.inside_netns(
        [layout.BIN / 'python', layout.HERE / 'fake_computes.py',
         str(number)])))


def _stop_old_code() -> None:
    """Stop what runs if it was started with other code than today's."""
    stamp, code = layout.STAMPS / 'code', install.code_key()
    if shell.running() and not (stamp.exists() and stamp.read_text() == code):
        shell.check_unused()
        say('what runs was started with other code: stopping it; its servers '
            'will be off')
        _stop_all()
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(code)


@shell.alone()
def down(arguments) -> None:
    """Stop everything; with --purge also remove all state."""
    _stop_all()
    if arguments.purge:
        shutil.rmtree(layout.STATE, ignore_errors=True)
    say('down' + (', and all state removed' if arguments.purge else ''))


def _stop_all() -> None:
    settings = layout.load_settings()
    names = layout.host_names(settings)
    hosts.shut_down(names)
    shell.stop('fake-computes', timeout=2)
    databases = ('rabbitmq', 'mariadb')
    for name in reversed(shell.running()):
        if name not in databases:
            shell.stop(name, timeout=0.2)
    shell.stop('rabbitmq', timeout=10)
    shell.stop('mariadb', timeout=20)
    time.sleep(0.2)
    for group in (*cgroups.SHARES, cgroups.NEIGHBOURS):
        cgroups.kill_all(group)
    time.sleep(0.3)
    network.down()
    cgroups.remove()


def status(arguments) -> None:
    """Say which services run."""
    settings = layout.load_settings()
    names = layout.host_names(settings)
    expected = control.services(settings) + dashboard.services(settings) + [
        f'{kind}-{host}' for host in names
        for kind in ('host', 'nova-compute', 'secondary-agent',
                     'postgresql')]
    running = set(shell.running())
    for name in expected + sorted(running - set(expected)):
        pid = shell.pid_of(name)
        print(f'{name:30} {"pid " + str(pid) if pid else "DOWN"}')
    if set(expected) - running:
        raise BoxError('not everything runs; "python3 tools/box up" starts '
                       'what is missing')


def logs(arguments) -> None:
    """Show the end of a service's logs, or list them."""
    paths = sorted(layout.LOG.glob('*.log'),
                   key=lambda path: path.stat().st_mtime)
    if arguments.service:
        paths = [path for path in paths if arguments.service in path.name]
        if not paths:
            raise BoxError(f'no log has "{arguments.service}" in its name; '
                           '"python3 tools/box logs" lists them')
        os.execvp('tail', ['tail', '-n', str(arguments.lines),
                           *map(str, paths)])
    for path in paths:
        print(f'{path.stat().st_size:>10} {path}')


def exec_(arguments) -> None:
    """Run a program inside the box, with a user's credentials.

    The box's own programs are found first (openstack, secondary-scheduler,
    nova-manage ...), and find the box's configuration files. With --host the
    program runs inside that compute host, as if one had logged in there:

      python3 tools/box exec secondary-scheduler host list
      python3 tools/box exec --user demo openstack server list
      python3 tools/box exec --host box1 secondary-agent status
      python3 tools/box exec --host box1 virsh list
    """
    sys.exit(_inside(arguments, arguments.program))


def shell_(arguments) -> None:
    """Open a shell inside the box, with a user's credentials.

    Each command typed there runs as by "exec"; the prompt tells place and
    user. "exit" leaves the shell, and the box as it is.

      python3 tools/box shell
      python3 tools/box shell --user demo
      python3 tools/box shell --host box1
    """
    sys.exit(_inside(arguments, 'bash', '--rcfile',
                     str(layout.HERE / 'bashrc')))


def openstack(arguments) -> None:
    """Run the openstack command line inside the box: "exec openstack ...".

    An option --user or --project of the box comes before the command's own
    words:

      python3 tools/box openstack hypervisor list
      python3 tools/box openstack --user demo server list
    """
    sys.exit(_inside(arguments, 'openstack'))


def script(arguments) -> None:
    """Run a Python script inside the box: "exec python FILE ...".

    The script can import this project and the box's modules:

      python3 tools/box script benchmarks/platform_facts.py
    """
    sys.exit(_inside(arguments, 'python', arguments.file, **_IMPORTS))


#: With which a script can import the box's modules and the project.
_IMPORTS = {'PYTHONPATH': f'{layout.HERE}:{layout.SOURCE}'}


def _inside(arguments, *command: str, **more: str) -> int:
    return session.run([*command, *arguments.arguments],
                       user=arguments.user, project=arguments.project,
                       host=getattr(arguments, 'host', None), **more)


@shell.alone()
def bare(arguments) -> None:
    """Run a Python script beside one bare host, and stop that host again.

    It has a libvirtd, the whole of its CPU instead of a part, and no
    cloud: for measurements of the agent, which nothing else is to disturb.
    With --cpus it has the last so many CPUs of the machine:

      python3 tools/box bare --cpus 2 benchmarks/cpu_pool.py
    """
    cgroups.check()
    usable = layout.machine_cpus()
    if not 1 <= arguments.cpus <= len(usable):
        raise BoxError(f'--cpus {arguments.cpus}: the machine has '
                       f'{len(usable)}')
    if shell.running():
        raise BoxError('the box is up; "python3 tools/box down" first')
    try:
        _boot({'box1': layout.HOST_CPUS}, {'box1': usable[-arguments.cpus:]})
        hosts.wait_booted('box1')
        cgroups.limit(cgroups.path('cpu', 'hosts/box1'), None)
        code = session.run(['python', arguments.file, *arguments.arguments],
                           **_IMPORTS)
    finally:
        _stop_all()
    sys.exit(code)


def demo(arguments) -> None:
    """Bring the box up and show the main job on it."""
    up(arguments)
    options = ['--seed', str(arguments.seed), '--report',
               str(arguments.report)]
    if arguments.json:
        options += ['--json', os.path.abspath(arguments.json)]
    if arguments.quick:
        options += ['--quick']
    with shell.in_use():
        sys.exit(session.run(
            ['python', str(layout.HERE / 'demo.py'), *options], **_IMPORTS))


def test(arguments) -> None:
    """Run all tests but the long ones.

    See doc/source/contributor/testing.rst.
    """
    import runner
    sys.exit(runner.run_tests(arguments, up, soak=False))


def soak(arguments) -> None:
    """Run the long tests (see doc/source/contributor/testing.rst)."""
    import runner
    sys.exit(runner.run_tests(arguments, up, soak=True))


def tempest(arguments) -> None:
    """Run Tempest's tests of this project against the box, which must be up.

    They run one after the other:

      python3 tools/box tempest
      python3 tools/box tempest secondary_tempest_plugin.tests.api
    """
    import tempest_runner
    with shell.in_use():
        sys.exit(tempest_runner.run_tempest(arguments.regex))


def _sizes(text: str) -> list[float]:
    sizes = [float(one) for one in text.split(',')]
    # Below, a quota of the kernel's least is too coarse; above, is no limit.
    if not all(0.1 <= one <= len(layout.machine_cpus()) for one in sizes):
        raise ValueError
    return sizes


_sizes.__name__ = 'CPUs from 0.1 to those of this machine, by commas'


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise ValueError
    return port


_port.__name__ = 'port from 1 to 65535, or 0'


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    top = argparse.ArgumentParser(
        prog='python3 tools/box', description=__doc__, epilog=FIRST_STEPS,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(dest='command', required=True,
                                  metavar='COMMAND')

    def command(function, summary, **more):
        sub = commands.add_parser(
            function.__name__.rstrip('_'), help=summary,
            description=inspect.getdoc(function),
            formatter_class=argparse.RawDescriptionHelpFormatter, **more)
        sub.set_defaults(function=function)
        return sub

    def shaped(sub):
        sub.add_argument('--hosts', type=int, metavar='N',
                         help='real compute hosts (default 3)')
        sub.add_argument('--sizes', type=_sizes, metavar='CPUS[,CPUS...]',
                         help='CPUs of each host, or of all, for instance '
                              '0.35,0.7,0.35 (default '
                              f'{layout.HOST_CPUS}); they are remembered, as '
                              'all of these are')
        sub.add_argument('--wide', action=argparse.BooleanOptionalAction,
                         help='let all hosts but the first run on all CPUs '
                              'of the machine, for CPU affinity between '
                              'hosts of one and of two CPUs (default: the '
                              'first host is alone on the last CPU)')
        sub.add_argument('--fake-hosts', type=int, metavar='N',
                         help='computes with Nova\'s fake driver as well, '
                              'for tests of scale (default 0)')
        sub.add_argument('--engines', type=int, metavar='N', choices=(1, 2),
                         help='Watcher decision engines (default 1)')
        sub.add_argument('--cells', type=int, metavar='N', choices=(1, 2),
                         help='cells of Nova (default 1); the second one has '
                              'the last host, which loses its servers when '
                              'the number changes, and a database that tests '
                              'take away')
        sub.add_argument('--horizon', type=_port, metavar='PORT', nargs='?',
                         const=8080,
                         help='the dashboard too, at this port of 127.0.0.1 '
                              '(default 8080; 0: no dashboard)')
        return sub

    def inside(sub, host=False):
        sub.add_argument('--user', default='admin', metavar='NAME',
                         help='whose credentials: admin, demo or other '
                              '(default admin)')
        sub.add_argument('--project', metavar='NAME',
                         help='the project (default: that with the name of '
                              'the user)')
        if host:
            sub.add_argument('--host', metavar='NAME',
                             help='the compute host inside which it runs, '
                                  'for instance box1 (default: beside the '
                                  'control plane)')
        return sub

    shaped(command(up, 'install what is missing and start everything'))
    sub = command(down, 'stop everything that the box started')
    sub.add_argument('--purge', action='store_true',
                     help='also remove all state, downloads included')
    command(status, 'say what runs')
    sub = command(logs, 'show the logs')
    sub.add_argument('service', nargs='?',
                     help='part of a log\'s name, for instance agent-box1')
    sub.add_argument('-n', '--lines', type=int, default=40,
                     help='lines of each log (default 40)')
    sub = inside(command(shell_, 'open a shell inside the box'), host=True)
    sub.set_defaults(arguments=[])
    sub = inside(command(exec_, 'run a program inside the box'), host=True)
    sub.add_argument('program', metavar='PROGRAM')
    sub.add_argument('arguments', nargs=argparse.REMAINDER,
                     metavar='...', help='its arguments')
    sub = inside(command(openstack, 'run the openstack command line'))
    sub.add_argument('arguments', nargs=argparse.REMAINDER, metavar='...',
                     help='what to give to the openstack command')
    alone = command(bare, 'run a script beside one bare host, without a '
                          'cloud')
    alone.add_argument('--cpus', type=int, default=1, metavar='N',
                       help='CPUs of the machine that the host has '
                            '(default 1)')
    for sub in (
            inside(command(script, 'run a script inside the box, for '
                                   'instance a benchmark')), alone):
        sub.add_argument('file', metavar='FILE', help='the script')
        sub.add_argument('arguments', nargs=argparse.REMAINDER,
                         help='its arguments')
    sub = shaped(command(demo, 'show the main job: a table and a report'))
    sub.add_argument('--seed', type=int, default=1,
                     help='seed of the arrivals at the primary (default 1)')
    sub.add_argument('--json', metavar='FILE',
                     help='also write every figure to FILE')
    sub.add_argument('--report', metavar='FILE',
                     default=os.path.abspath('box-demo.html'),
                     help='the report (default ./box-demo.html)')
    sub.add_argument('--quick', action='store_true',
                     help='shorter phases and no A/A repetition: for trying '
                          'things out, not for figures')
    sub = command(tempest, 'run Tempest with the plug-in of this project')
    sub.add_argument('regex', nargs='?', default='secondary_tempest_plugin',
                     metavar='REGEX',
                     help='the tests to run (default: secondary_tempest_plugin'
                          ', all of the plug-in)')
    for function, summary in ((test, 'run the tests'),
                              (soak, 'run the long tests')):
        sub = command(function, summary)
        sub.add_argument('tests', nargs='*',
                         help='only these test files or directories')
    return top


def main() -> None:
    """Run the command; errors that the user can mend are one message."""
    arguments = parser().parse_args()
    try:
        arguments.function(arguments)
    except BoxError as problem:
        sys.exit(f'box: {problem}')
    except KeyboardInterrupt:
        sys.exit('box: interrupted; the same command goes on from here')


if __name__ == '__main__':
    main()
