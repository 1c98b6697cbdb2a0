# SPDX-License-Identifier: Apache-2.0

"""Trial of the Ansible role on the machines of ``role_cloud``.

    python3 tools/box script tests/box/role_trial.py

deploys, repeats, upgrades and removes with the role's playbooks, and tells
each expectation that holds.  The box must be up, and ``ansible-playbook`` in
the path.
"""

from collections.abc import Iterator
import contextlib
import filecmp
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import typing

sys.path += [str(pathlib.Path(__file__).parents[2] / name)
             for name in ('', 'tools/box', 'tools/devstack')]

# ruff: noqa: E402
import openstack

import cgroups
import containers
import control
import layout
from secondary_scheduler.model import vocabulary
import seed
import shell
import stores
from tests.box import role_cloud as cloud

ANSIBLE = layout.SOURCE / 'ansible'
LOG = layout.LOG / 'role-playbooks.log'
#: Of a container's files those that each run of a system changes.
PASSING = re.compile(
    r'(tmp|run|root|var/(log|cache|tmp|spool)|var/lib/(systemd|dbus|apt))/'
    r'|.*/__pycache__|.*-$|etc/(ld.so.cache|.pwd.lock)')


class Run(typing.NamedTuple):
    """Result of a run of a playbook.

    ``recap`` has the numbers of each host: ok, changed, failed.
    """

    code: int
    recap: dict[str, dict[str, int]]
    text: str

    @property
    def changed(self) -> int:
        """Number of changes on all hosts."""
        return sum(one['changed'] for one in self.recap.values())


def play(playbook: str, version: str, *arguments: str,
         stop_after: int | None = None, **changes: object) -> Run:
    """Run a playbook of the role.

    :param version: of the package.
    :param stop_after: kill ansible-playbook in the task of this number.
    :param changes: variables that differ from those of the machines.
    """
    began = time.monotonic()
    lines, tasks = [], 0
    with LOG.open('a') as log, subprocess.Popen(
            cgroups.inside('clients', shell.inside_netns([
                'ansible-playbook', '-i', str(cloud.write_inventory()),
                '-e', json.dumps({**cloud.variables(version), **changes}),
                *arguments, f'playbooks/{playbook}.yml'])),
            cwd=ANSIBLE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True, env={
                **os.environ, 'ANSIBLE_NOCOLOR': '1',
                'ANSIBLE_HOST_KEY_CHECKING': 'false',
                'ANSIBLE_PIPELINING': '1',
                'ANSIBLE_CALLBACKS_ENABLED': 'ansible.posix.profile_tasks',
                'PROFILE_TASKS_TASK_OUTPUT_LIMIT': '10',
                'ANSIBLE_STDOUT_CALLBACK': 'ansible.builtin.default'},
            ) as process:
        for line in process.stdout or ():
            lines.append(line)
            log.write(line)
            log.flush()
            tasks += line.startswith('TASK [')
            if line.startswith('PLAY ['):
                shell.say('    ' + line.strip(' *\n'))
            if tasks == stop_after:
                # The time of a task varies: it is killed in its midst, or
                # in that of the next.
                time.sleep(random.uniform(0, 1))
                os.killpg(process.pid, signal.SIGKILL)
                break
    text = ''.join(lines)
    recap = {
        found[1]: {key: int(value) for key, value in (
            part.split('=') for part in found[2].split())}
        for found in re.finditer(r'^(\S+) +: (ok=.*)$', text, re.MULTILINE)}
    run = Run(process.returncode, recap, text)
    shell.say(f'{playbook} {version} {" ".join(arguments)}: '
              + (f'killed in task {stop_after}, ' if stop_after else '')
              + f'exit code {run.code}, {time.monotonic() - began:.0f} s, '
              f'{tasks} tasks, changed {run.changed}')
    return run


def _files(name: str) -> Iterator[str]:
    """Yield the files that a container has written, in /etc with digests.

    What is as in the root file system is left out.
    """
    top, root = containers.directory(name) / 'upper', containers.ROOTS / 'role'
    for directory, _, names in os.walk(top):
        for path in (pathlib.Path(directory, one) for one in names):
            short = str(path.relative_to(top))
            if PASSING.match(short) or _are_same(path, root / short):
                continue
            digest = ''
            if short.startswith('etc/') and path.is_file() and not (
                    path.is_symlink()):
                digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
            yield f'{name}: /{short} {digest}'
        short = str(pathlib.Path(directory).relative_to(top))
        if not (PASSING.match(f'{short}/') or (root / short).is_dir()):
            yield f'{name}: /{short}/'


def _are_same(path: pathlib.Path, other: pathlib.Path) -> bool:
    """Return whether two paths are regular files with the same content."""
    return all(one.is_file() and not one.is_symlink()
               for one in (path, other)) and filecmp.cmp(path, other, False)


def _objects(connection: typing.Any) -> Iterator[str]:
    """Yield the objects of the cloud that the role makes some of."""
    users, compute = connection.identity, connection.compute
    placement, watcher = connection.placement, seed.watcher(connection)
    for kind, objects in (
            ('aggregate', compute.aggregates()),
            ('flavor', compute.flavors(is_public=None)),
            ('user', users.users()), ('role', users.roles()),
            ('service', users.services()),
            ('provider', placement.resource_providers()),
            ('class', placement.resource_classes()),
            ('trait', placement.traits())):
        yield from (f'{kind} {one.name or one.id}' for one in objects)
    yield from (f'endpoint {one.url}' for one in users.endpoints())
    yield from (f'assignment {one.role} {one.user} {one.scope}'
                for one in users.role_assignments())
    for kind in ('audits', 'audit_templates'):
        yield from (f'{kind} {one["name"]} {one.get("state", "")}'
                    for one in seed.listed(watcher, kind))


def listing() -> set[str]:
    """Return what the role could leave behind: files and objects."""
    found = {one for name in cloud.PORTS for one in _files(name)}
    policies = layout.ETC / 'placement'
    found |= {f'placement: {path.relative_to(policies)}'
              for path in policies.rglob('*')}
    found |= set(_objects(openstack.connect()))
    definitions = json.loads(stores.rabbitmqctl('export_definitions', '-'))
    for kind in ('users', 'vhosts'):
        found |= {f'broker {kind}: {one["name"]}'
                  for one in definitions[kind]}
    found |= {f'broker: {one}' for kind in ('permissions', 'topic_permissions')
              for one in definitions[kind]}
    for kind in ('SHOW DATABASES', 'SELECT User, Host FROM mysql.user'):
        found |= {f'{kind}: {line}'
                  for line in stores.sql(kind).splitlines()}
    return found


def expect(what: str, true: bool, text: object = '') -> None:
    """Say that something was seen.

    :raises BoxError: if it was not.
    """
    if not true:
        raise shell.BoxError(f'not seen: {what}:\n{str(text)[-6000:]}')
    shell.say(f'seen: {what}')


def expect_same(what: str, before: set[str]) -> None:
    """Say that the listing is that of before.

    :raises BoxError: with the difference, if it is not.
    """
    now = listing()
    expect(what, now == before, '\n'.join(
        [f'- {one}' for one in sorted(before - now)]
        + [f'+ {one}' for one in sorted(now - before)]))


def open_hosts() -> set[str]:
    """Return the hosts whose agents admit secondaries."""
    found = shell.run(
        [layout.BIN / 'secondary-scheduler', 'host', 'list', '--json'],
        netns=True, env=layout.credentials()).stdout
    return {one['host'] for one in json.loads(found)
            if not one['closed'] and not one['switched_off']
            and one['allowed']['slots']}


def expect_deployed(version: str) -> None:
    """Say that both hosts are open, and all services have the version."""
    wanted = set(cloud.NOVA_HOSTS.values())
    deadline = time.monotonic() + 120
    while not wanted <= open_hosts() and time.monotonic() < deadline:
        time.sleep(2)
    expect(f'both hosts are open with {version}', wanted <= open_hosts(),
           open_hosts())
    for name in cloud.PORTS:
        shared = containers.run_in(name, [
            'cat', '/etc/secondary_scheduler/secondary_scheduler.conf']).stdout
        expect(f'the shared file of {name} has policies and no secret',
               'policy = cpu' in shared and 'rabbit' not in shared, shared)
    for name, venv, units in (
            ('control', cloud.VENV, list(cloud.UNITS)),
            ('control', '/opt/secondary_scheduler', ['secondary-lease-api']),
            ('compute1', '/opt/secondary_scheduler', ['secondary-agent']),
            ('compute2', '/opt/secondary_scheduler', ['secondary-agent'])):
        said = containers.run_in(name, ['sh', '-c', (
            f'{venv}/bin/python3 -m pip show secondary-scheduler; '
            f'systemctl is-active {" ".join(units)}; for unit in '
            f'{" ".join(units)}; do find {venv}/lib/python3*/site-packages/'
            'secondary_scheduler-*.dist-info -maxdepth 0 -newermt "$('
            'systemctl show -P ExecMainStartTimestamp --timestamp=us+utc '
            '$unit)"; done')], check=False).stdout
        expect(f'{name} has {version}, and its services were started since: '
               f'{", ".join(units)}',
               f'Version: {version}\n' in said and 'dist-info' not in said
               and said.split().count('active') == len(units), said)


def try_first_deployment() -> None:
    """Check mode; then a deployment that is killed three times."""
    before = listing()
    run = play('deploy', cloud.OLD, '--check')
    expect('check mode before the first deployment succeeds', run.code == 0,
           run.text)
    expect_same('check mode changes nothing', before)
    for first, last in ((15, 60), (60, 110), (110, 160)):
        task = random.randint(first, last)
        run = play('deploy', cloud.OLD, stop_after=task)
        expect('the run was killed', run.code == -signal.SIGKILL, run.text)
    run = play('deploy', cloud.OLD)
    expect('the interrupted deployment is completed', run.code == 0, run.text)
    expect_deployed(cloud.OLD)
    run = play('deploy', cloud.OLD)
    expect('a second run changes nothing',
           run.code == 0 and run.changed == 0, run.text)


@contextlib.contextmanager
def foreign_account() -> Iterator[None]:
    """Have an account of somebody else on the broker."""
    stores.rabbitmqctl('add_user', 'foreign', 'secret')
    stores.rabbitmqctl('set_permissions', '-p', 'role', 'foreign', '.*', '',
                        '')
    try:
        yield
    finally:
        stores.rabbitmqctl('delete_user', 'foreign')


@contextlib.contextmanager
def without_watcher() -> Iterator[None]:
    """Have no API of Watcher for a while."""
    shell.stop('watcher-api')
    try:
        yield
    finally:
        control.start_service('watcher-api')
        control.wait_service('watcher-api')


@contextlib.contextmanager
def old_placement() -> Iterator[None]:
    """Have Placement offer no microversion from 1.36 on."""
    shell.stop('placement')
    shell.start('placement', shell.inside_netns([
        layout.BIN / 'uwsgi', '--http-socket', f'{layout.CONTROL}:8778',
        '--wsgi-file', pathlib.Path(__file__).with_name('old_placement.py'),
        '--virtualenv', layout.VENV, '--master', '--die-on-term',
        '--processes', '1', '--threads', '4', '--lazy-apps', '--need-app',
        '--add-header', 'Connection: close', '--buffer-size', '65535']),
        env={'OS_PLACEMENT_CONFIG_DIR': str(layout.ETC / 'placement')})
    try:
        control.wait_service('placement')
        yield
    finally:
        shell.stop('placement')
        control.start_service('placement')
        control.wait_service('placement')


#: What is wrong; variables or the state of the cloud; what the run must say.
WRONG: tuple[tuple[str, object, tuple[str, ...]], ...] = (
    ('a policy that cannot be read',
     {'secondary_scheduler_policies': ['cpu <= 90 for ever']},
     ('secondary_scheduler_policies: ', 'Correct the policy')),
    ('a host that Nova does not know', {'secondary_scheduler_host': 'nowhere'},
     ('Nova has no compute host "nowhere"', 'Set secondary_scheduler_host')),
    ('an agent\'s account with other rights', foreign_account,
     ('The broker account "foreign" exists with other rights',
      'rabbitmqctl delete_user foreign')),
    ('no Watcher', without_watcher, ('no Watcher that answers', 'install it')),
    ('a Placement that is too old', old_placement,
     ('Placement has microversion 1.35', 'upgrade Placement')),
)


def try_wrong_variables() -> None:
    """Each mistake stops the run, and leaves the cloud as it was."""
    before = listing()
    for what, wrong, words in WRONG:
        changes = wrong if isinstance(wrong, dict) else {}
        if wrong is foreign_account:
            changes = {'secondary_scheduler_broker_agent': 'foreign'}
        with (contextlib.nullcontext() if isinstance(wrong, dict)
              else wrong()):  # type: ignore[operator]
            run = play('deploy', cloud.OLD, **changes)
        said = ' '.join(run.text.replace('\\n', ' ').split())
        expect(f'{what} stops the run', run.code == 2 and run.changed == 0,
               run.text)
        expect(f'it says what to do: {words}', all(
            one in said or json.dumps(one)[1:-1] in said for one in words),
            run.text)
        expect_same('the cloud is as it was', before)


def try_upgrade() -> None:
    """An upgrade; then check mode with another policy."""
    run = play('deploy', cloud.NEW)
    expect('the role upgrades', run.code == 0, run.text)
    expect_deployed(cloud.NEW)
    before = listing()
    run = play('deploy', cloud.NEW, '--check', secondary_scheduler_policies=[
        'cpu <= 80% for 10s on aggregate:role'])
    expect('check mode tells what another policy changes',
           run.code == 0 and run.changed > 0, run.text)
    expect_same('check mode changes nothing', before)


def try_role() -> None:
    """Deploy, repeat, upgrade and remove; the machines must be up.

    :raises BoxError: at the first expectation that does not hold.
    """
    # The box's own hosts stay enabled, so the role keeps what they share.
    for trait in vocabulary.CLOSING_TRAITS:
        openstack.connect().placement.create_trait(trait)
    before = listing()
    try_first_deployment()
    try_wrong_variables()
    try_upgrade()
    run = play('remove', cloud.NEW)
    expect('the role removes', run.code == 0, run.text)
    expect_same('removal leaves nothing', before)


def main() -> None:
    """Try the role on machines that are made for it."""
    try:
        with cloud.machines():
            try_role()
    except shell.BoxError as problem:
        sys.exit(f'role: {problem}')


if __name__ == '__main__':
    main()
