# SPDX-License-Identifier: Apache-2.0

"""``secondary-agent``: the agent, and commands that need no running agent."""

import argparse
import json
import sys
import time
import typing

from oslo_config import cfg
from oslo_log import log as logging
from oslo_service import backend

from secondary_scheduler.agent import (
    cgroups,
    host_lock,
    kernel_files,
    processes,
    service,
    wiring,
)
from secondary_scheduler.agent.domains import Domains, Secondary
from secondary_scheduler.agent.throttles import Throttles
from secondary_scheduler.cmd import characterise as characterise_command
from secondary_scheduler.cmd import console
from secondary_scheduler.cmd import profiles as profiles_command
from secondary_scheduler.cmd.characterise import characterise
from secondary_scheduler.cmd.profiles import profiles
from secondary_scheduler.conf import agent as agent_conf
from secondary_scheduler.conf import policy as policy_conf
from secondary_scheduler.policies import language
from secondary_scheduler.reading.options import load_options
from secondary_scheduler.reading.values import InputError

EPILOG = """
Without a command the agent runs in the foreground. SIGHUP reloads the options,
SIGTERM ends the agent and leaves the limits in force: use "floor" if it is to
stay off. Configuration is read from
/etc/secondary_scheduler/secondary_scheduler.conf and secondary-agent.conf
there, or from each --config-file; other options of the agent are those of
oslo.log (--debug, --log-file FILE).
"""

_COMMANDS = {
    'run': 'control the secondaries of this host',
    'floor': 'take every secondary in the state directory to its floor; '
             'needs neither libvirt nor policies',
    'release': 'restore the original limits of all secondaries; the agent '
               'must be stopped',
    'status': 'show the last status of the running agent',
    'characterise': 'measure profiles of workload classes on a closed host',
    'profiles': 'list, merge and check profiles of workload classes'}


def _configure(arguments: list[str], files: list[str] | None = None
               ) -> cfg.ConfigOpts:
    # oslo.messaging registers some of its options only in cfg.CONF.
    conf = cfg.CONF
    conf.reset()
    logging.register_options(conf)
    agent_conf.register_opts(conf)
    policy_conf.register_opts(conf)
    load_options(conf, arguments, project='secondary_scheduler',
                 prog='secondary-agent', default_config_files=files,
                 default_config_dirs=files)
    return conf


def _known(conf: cfg.ConfigOpts, hierarchy: cgroups.Hierarchy
           ) -> tuple[Secondary, ...]:
    """Return the secondaries in the state directory that still run."""
    def connect() -> typing.NoReturn:
        raise ConnectionError('libvirt is not asked')

    return Domains(connect, wiring.open_store(conf),
                   conf.secondary_agent.libvirt_run_dir,
                   proc=hierarchy.proc).secondaries()


def run(conf: cfg.ConfigOpts, dry_run: bool = False) -> int:
    """Run the agent; return 2 if the configuration is not valid."""
    processes.raise_file_limit()
    backend.init_backend(backend.BackendType.THREADING)
    logging.setup(conf, 'secondary-agent')
    try:
        store = wiring.open_store(conf, read_only=dry_run)
        held = None if dry_run else host_lock.acquire_host_lock(store)
        if conf.secondary_agent.manage_inventory and not dry_run:
            agent_conf.register_placement_opts(conf)
        agent = service.Agent(conf, store, cgroups.Hierarchy(),
                              dry_run=dry_run)
    except (ValueError, cgroups.CgroupError, OSError,
            host_lock.AlreadyRunning, ImportError) as exc:
        print(f'secondary-agent: {exc}', file=sys.stderr)
        return 2
    agent.run()
    if held is not None:
        held.close()
    return 0


def floor(conf: cfg.ConfigOpts) -> int:
    """Take all known secondaries to the floor; return 1 if one failed."""
    hierarchy = cgroups.Hierarchy()
    actuator = wiring.make_actuator(conf, hierarchy,
                                    wiring.open_store(conf))
    guests = _known(conf, hierarchy)
    done = sum(actuator.floor(guest) for guest in guests)
    # No agent will restore the machine slice when a primary guest starts.
    actuator.free_slice()
    print(f'{done} of {len(guests)} secondaries are at the floor')
    return 0 if done == len(guests) else 1


def release(conf: cfg.ConfigOpts) -> int:
    """Restore all limits; return 1 if one could not be restored."""
    store = wiring.open_store(conf)
    try:
        with host_lock.acquire_host_lock(store):
            hierarchy = cgroups.Hierarchy()
            actuator = wiring.make_actuator(conf, hierarchy, store)
            guests = _known(conf, hierarchy)
            throttles = wiring.make_throttles(conf)
            dedicated = wiring.make_dedicated_cpus(actuator, hierarchy,
                                                   store)
            done = sum(all([dedicated.release(guest), actuator.release(guest),
                            _release_devices(throttles, guest)])
                       for guest in guests)
            actuator.free_slice()
            wiring.make_balloon(conf, lambda: guests).step()
    except (host_lock.AlreadyRunning, ImportError) as exc:
        print(f'secondary-agent: {exc}', file=sys.stderr)
        return 2
    print(f'{done} of {len(guests)} secondaries have their limits back')
    return 0 if done == len(guests) else 1


def _release_devices(throttles: Throttles, guest: Secondary) -> bool:
    """Restore the limits of disks and interfaces through libvirt."""
    try:
        if guest.limited:
            throttles.release(guest)
    except Exception as exc:
        print(f'secondary-agent: disks and interfaces of {guest.uuid} keep '
              f'their limits: {exc}', file=sys.stderr)
        return False
    return True


def status(conf: cfg.ConfigOpts, as_json: bool = False) -> int:
    """Show the last status; return 1 if the agent does not seem to run."""
    store = wiring.open_store(conf, read_only=True)
    found = store.load(wiring.STATUS)
    if not found:
        print('no status: the agent has not run here (state_path = '
              f'{conf.secondary_agent.state_path})', file=sys.stderr)
        return 1
    try:
        age = time.time() - float(found['time'])
        found['age_s'] = round(age, 1)
        lines = ([json.dumps(found, indent=1)] if as_json
                 else _screen(found))
    except (LookupError, TypeError, ValueError, AttributeError,
            OverflowError) as exc:
        print(f'secondary-agent: {store.path(wiring.STATUS)}: expected what '
              'an agent of this version has written '
              f'({type(exc).__name__}: {exc})', file=sys.stderr)
        return 1
    print('\n'.join(lines))
    # A time in the future comes from a clock that was set back.
    return 0 if abs(age) < 10 else 1


def _percent(value: float | None) -> str:
    return 'unknown' if value is None else f'{value:.1f}%'


def _mebibytes(value: int | None) -> str:
    return 'unknown' if value is None else f'{value} MiB'


def _amount(policy: dict[str, typing.Any]) -> str:
    """Return the use of a policy's resource in its unit."""
    if policy['usage'] is None or (
            policy['resource'] not in language.STATIC
            and language.kind_of(policy['resource']) != language.PROBE):
        return _percent(policy['usage'])
    return f'{policy["usage"]:g}'


def _verb(resource: str) -> str:
    return 'is at' if language.is_signal(resource) else 'uses'


def _screen(found: dict[str, typing.Any]) -> list[str]:
    """Return the status as lines that fit on one screen."""
    effective = found['priority_effective']
    lines = [
        f'host {found["host"]}: {found["cpus"]:g} CPUs, agent '
        f'{found["pid"]}, {found["age_s"]} s ago'
        + (' (STALE: is the agent running?)' if abs(found['age_s']) > 10
           else ''),
        f'cpu: {_percent(found["cpu_total"])} in all, primary '
        f'{_percent(found["cpu_primary"])}, set point '
        f'{_percent(found["set_point"])}, room for {found["room"]}'
        + (f'; {100 * found["restraint"]:.0f}% of the room may be used, since '
           'the primary was harmed' if found['restraint'] < 1 else ''),
        f'memory: {_mebibytes(found["memory"]["available_mb"])} available, '
        f'{_mebibytes(found["memory"]["headroom_mb"])} to be kept free, '
        f'{_mebibytes(found["memory"]["coming_mb"])} yet to be touched by '
        f'new primaries: {found["memory"]["level"] or "unknown"}',
        'admission: ' + ('open' if found['admission']
                         else 'closed, ' + found['reason']),
        'priority before secondaries: primary guests '
        + ('yes' if effective['vm'] else 'no, by quota only')
        + '; services of the host '
        + ('yes' if effective['service'] else 'no, by quota only'),
        f'libvirt: {"answers" if found["libvirt"] else "does not answer"}, '
        f'{found["primaries"]} primary guests',
        'placement: ' + found.get('inventory', {}).get('state', 'not kept')]
    if found['dedicated_cpus']:
        lines.append('CPUs that are dedicated to primaries: '
                     + kernel_files.format_cpus(found['dedicated_cpus']))
    lines += [f'primary {one["primary"]}: CPUs '
              f'{kernel_files.format_cpus(one["cpus"])} are dedicated, by '
              f'{one["evidence"]}' for one in found['dedicated_to']]
    lines += _affinity_lines(found['affinity'])
    if found.get('configuration'):
        lines.append('configuration: not reloaded, options and policies are '
                     'those from before: ' + found['configuration'])
    costs = [f'{name} {cost["percent"]:.2f}%'
             + ' (over its budget, so read half as often)' * cost['over']
             for name, cost in found['sensor_costs'].items()
             if cost['percent']]
    if costs:
        lines.append('sensors take of one CPU: ' + ', '.join(costs))
    lines += [f'sensor {name}: {problem}'
              for name, problem in sorted(found['sensors'].items())]
    lines += [f'policy {policy["policy"]}: {policy["state"]}, '
              f'{_verb(policy["resource"])} {_amount(policy)}, failed '
              f'{policy["failed"]} of {policy["timelimit"]} s'
              for policy in found['policies']]
    for one in found['instances']:
        why = ', '.join(found['floors'].get(one['uuid'], ()))
        lines.append(
            f'secondary {one["uuid"]}: priority {one["priority"]}, cpu '
            f'{_percent(one["cpu"])}, '
            + (f'at the floor ({why})' if one['floored']
               else f'cap {_percent(one["cap"])}')
            + ''.join(f', {resource} at most {_percent(cap)}' for
                      resource, cap in sorted(found['rates'].get(
                          one['uuid'], {}).items()))
            + _suspicion(found['suspects'].get(one['uuid']))
            + ''.join(f', PROBLEM: {found[which][one["uuid"]]}'
                      for which in ('problems', 'rate_problems')
                      if one['uuid'] in found[which]))
    lines += [f'killed {one}: {reason}'
              for one, reason in found['killed'].items()]
    return lines


def _affinity_lines(found: dict[str, typing.Any]) -> list[str]:
    """Return topology and pool of the host, and the CPUs of secondaries."""
    lines = [f'CPU affinity: {one}' for one in found['problems']]
    if not found['guests'] and not found['pool']:
        return lines
    advice = ' (advice, nothing is written)' if found['advice'] else ''
    lines += [
        f'CPU topology: {found["topology"]}',
        f'CPU affinity: {found["driver"]}{advice}, secondaries share CPUs '
        f'{found["pool"] or "none"}, {found["moves"]} moves']
    for uuid, one in found['guests'].items():
        slowdown = ('unknown' if one['slowdown'] is None
                    else f'{one["slowdown"]:.2f}')
        predicted = ('' if one['predicted'] is None
                     else f', {one["predicted"]:.2f} predicted by profiles')
        lines.append(
            f'secondary {uuid}: vCPUs on CPUs '
            f'{" ".join(one["cpus"]) or "of its first set"}'
            + ' (idle)' * one['idle']
            + f', slow-down by sharing of time {slowdown}{predicted}'
            + (f', NOT CONFINED: {one["reason"]}' if one['reason'] else ''))
    return lines


def _suspicion(found: dict[str, typing.Any] | None) -> str:
    """Return the verdict of the trial of a secondary, '' without one."""
    if found is None:
        return ''
    lasting = f' for {found["left_s"]} s more' if found['left_s'] else ''
    like = (f': its {found["resource"]} is most like the signal'
            if found['resource'] else '')
    return f', suspect: {found["verdict"]}{lasting}{like}'


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog='secondary-agent', epilog=EPILOG,
        description='Keeps secondary instances on a compute host within the '
                    'policies.',
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.set_defaults(dry_run=False, json=False)
    commands = parser.add_subparsers(dest='command', metavar='COMMAND')
    for name in ('run', 'floor', 'release', 'status'):
        commands.add_parser(name, help=_COMMANDS[name],
                            description=_COMMANDS[name])
    for one in (parser, commands.choices['run']):
        one.add_argument('--dry-run', action='store_true',
                         default=argparse.SUPPRESS,
                         help='with run: log what would be written, write, '
                              'lock and report nothing')
    for one in (parser, commands.choices['status']):
        one.add_argument('--json', action='store_true',
                         default=argparse.SUPPRESS,
                         help='with status: print all values as JSON')
    characterise_command.add_parser(commands, _COMMANDS['characterise'])
    profiles_command.add_parser(commands, _COMMANDS['profiles'])
    return parser


@console.command
def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    chosen, rest = build_parser().parse_known_args(argv)
    try:
        return _run(chosen, rest)
    except console.CommandError as exc:
        print(f'secondary-agent: {exc}', file=sys.stderr)
        return 1
    except (cgroups.CgroupError, OSError) as exc:
        print(f'secondary-agent: {exc}', file=sys.stderr)
        return 2


def _run(chosen: argparse.Namespace, rest: list[str]) -> int:
    """Run a command.

    :param rest: options of the configuration
    """
    command = chosen.command or 'run'
    if command == 'profiles':
        if rest:
            raise console.CommandError(f'unknown arguments: {" ".join(rest)}')
        return profiles(**_values(chosen))
    try:
        conf = _configure(rest)
    except InputError as exc:
        print(f'secondary-agent: {exc}', file=sys.stderr)
        if command != 'floor':
            return 2
        # The floor must not depend on the configuration being valid.
        conf = _configure([], files=[])
    if command == 'run':
        return run(conf, chosen.dry_run)
    if command == 'status':
        return status(conf, chosen.json)
    if command == 'characterise':
        return characterise(conf, characterise_command.Request(
            **_values(chosen)))
    return floor(conf) if command == 'floor' else release(conf)


def _values(chosen: argparse.Namespace) -> dict[str, typing.Any]:
    """Return the arguments of a command with a parser of its own."""
    return {name: tuple(value) if isinstance(value, list) else value
            for name, value in vars(chosen).items()
            if name not in ('command', 'dry_run', 'json')}


if __name__ == '__main__':
    sys.exit(main())
