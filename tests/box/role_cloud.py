# SPDX-License-Identifier: Apache-2.0

"""Machines for the Ansible role: containers with systemd on the box's cloud.

``control`` runs nova-api, nova-scheduler, Watcher's engine and applier as
units, from files and an environment that know nothing of this project, in
place of the box's own.  ``compute1`` and ``compute2`` have a libvirt of their
own; Nova knows them as two computes with its fake driver.
"""

from collections.abc import Iterator
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

sys.path += [str(pathlib.Path(__file__).parents[2] / f'tools/{name}')
             for name in ('box', 'devstack')]

# ruff: noqa: E402
import containers
import control
import layout
import shell
from shell import BoxError

ANSIBLE = layout.SOURCE / 'ansible'
DIRECTORY = layout.STATE / 'role'
WHEELS = DIRECTORY / 'wheels'
VENV = '/opt/stack/data/venv'
#: Services of the box that the units of ``control`` stand in for.
REPLACED = ('nova-api', 'nova-scheduler', 'watcher-engine-1',
            'watcher-applier', 'secondary-lease-api')
#: Port of sshd of each container: they share the box's network namespace.
PORTS = {'control': 2200, 'compute1': 2201, 'compute2': 2202}
NOVA_HOSTS = {'compute1': 'fake0001', 'compute2': 'fake0002'}
PACKAGES = (*containers.PACKAGES, 'libpam-systemd', 'libvirt-daemon-system',
            'python3-apt',
            'python3-libvirt')
ADMIN = 'role_admin'

UNIT = '''\
[Unit]
After=network.target
[Service]
ExecStart={command}
Environment=OS_NOVA_CONFIG_DIR=/etc/nova PYTHONWARNINGS=ignore
Restart=on-failure
[Install]
WantedBy=multi-user.target
'''

UNITS = {
    'nova-api': (
        f'{VENV}/bin/uwsgi --http-socket {layout.CONTROL}:8774 --module '
        f'nova.wsgi.osapi_compute:application --virtualenv {VENV} --master '
        '--die-on-term --processes 1 --threads 8 --enable-threads '
        '--lazy-apps --buffer-size 65535 --need-app --add-header '
        '"Connection: close" --disable-logging'),
    'nova-scheduler': (f'{VENV}/bin/nova-scheduler '
                       '--config-file /etc/nova/nova.conf'),
    'watcher-decision-engine': (f'{VENV}/bin/watcher-decision-engine '
                                '--config-file /etc/watcher/watcher.conf'),
    'watcher-applier': (f'{VENV}/bin/watcher-applier '
                        '--config-file /etc/watcher/watcher.conf'),
}

CLOUDS = f'''\
clouds:
  admin:
    auth:
      auth_url: {layout.AUTH_URL}
      username: admin
      password: {layout.SECRET}
      project_name: admin
      user_domain_id: default
      project_domain_id: default
    region_name: RegionOne
'''

RABBITMQCTL = '''\
#!/bin/sh
exec nsenter --net=/run/netns/{netns} -- setpriv --reuid=rabbitmq \\
    --regid=rabbitmq --init-groups env HOME={base} \\
    RABBITMQ_CONF_ENV_FILE={base}/env.conf \\
    /usr/lib/rabbitmq/bin/rabbitmqctl "$@"
'''


def _without_plugin(text: str) -> str:
    """Return nova.conf or watcher.conf without what is for the plug-in."""
    sections = re.split(r'^(?=\[)', text, flags=re.MULTILINE)
    return ''.join(
        one for one in sections if not re.match(
            r'\[(secondary_|collector|watcher_applier|watcher_workflow|'
            r'watcher_cluster_data_model_collectors.secondary)', one))


def _write(name: str, path: str, text: str, mode: int = 0o644) -> None:
    target = containers.directory(name) / 'upper' / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    target.chmod(mode)


def _make_site() -> pathlib.Path:
    """Return a directory with the box's packages but for this project's."""
    site = DIRECTORY / 'site'
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    packages, = (layout.VENV / 'lib').glob('python3.*/site-packages')
    for path in packages.iterdir():
        if not re.search('secondary_scheduler|editable|nspkg|[.]pth$',
                         path.name):
            (site / path.name).symlink_to(path)
    return site


def _write_control() -> None:
    values = control.values(
        'nova', db_api=layout.database('nova_api'), filters=control.FILTERS,
        plugin='')
    _write('control', 'etc/nova/nova.conf',
           _without_plugin(control.NOVA.format(**values)))
    _write('control', 'etc/nova/api-paste.ini',
           (layout.ETC / 'nova/api-paste.ini').read_text())
    _write('control', 'etc/watcher/watcher.conf', _without_plugin(
        control.WATCHER.format(**control.values('watcher', host='control1'))))
    _write('control', 'etc/openstack/clouds.yaml', CLOUDS, 0o600)
    for name, command in UNITS.items():
        _write('control', f'etc/systemd/system/{name}.service',
               UNIT.format(command=command))


def _make_environment(site: pathlib.Path) -> None:
    """Make the environment of Nova and Watcher inside ``control``."""
    containers.run_in('control', ['sh', '-ec', f'''
for name in nova watcher; do
    id $name >/dev/null 2>&1 || useradd --system $name
done
test -x {VENV}/bin/python || python3 -m venv {VENV}
echo {site} > "$(echo {VENV}/lib/python3.*/site-packages)/box.pth"
for name in uwsgi nova-scheduler watcher-decision-engine watcher-applier; do
    rm -f {VENV}/bin/$name
    sed "1s,.*,#!{VENV}/bin/python," {layout.BIN}/$name > {VENV}/bin/$name
    chmod 755 {VENV}/bin/$name
done
systemctl daemon-reload
systemctl enable {' '.join(UNITS)}
systemctl restart {' '.join(UNITS)}
'''])


def _make_keys() -> None:
    key = DIRECTORY / 'key'
    if not key.exists():
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        shell.run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', key])
    for name, port in PORTS.items():
        _write(name, 'root/.ssh/authorized_keys',
               key.with_suffix('.pub').read_text(), 0o600)
        (containers.directory(name) / 'upper/root/.ssh').chmod(0o700)
        (containers.directory(name) / 'upper/root').chmod(0o700)
        _write(name, 'etc/ssh/sshd_config.d/port.conf', f'Port {port}\n')


def write_inventory() -> pathlib.Path:
    """Write the inventory of the machines; return its path."""
    base = layout.STATE / 'rabbitmq'
    rabbitmqctl = DIRECTORY / 'rabbitmqctl'
    rabbitmqctl.write_text(RABBITMQCTL.format(netns=layout.NETNS, base=base))
    rabbitmqctl.chmod(0o755)
    hosts = [
        f'{name} ansible_host={layout.CONTROL} ansible_port={port} '
        f'ansible_user=root ansible_ssh_private_key_file={DIRECTORY}/key '
        'ansible_python_interpreter=/usr/bin/python3 ansible_become=false '
        + (f'secondary_scheduler_host={NOVA_HOSTS[name]}'
           if name in NOVA_HOSTS else '') for name, port in PORTS.items()]
    hosts.append('broker ansible_connection=local ansible_become=false '
                 f'ansible_python_interpreter={sys.executable}')
    groups = {'secondary-admin': ['control'],
              'secondary-agent': ['compute1', 'compute2'],
              'secondary-lease-api': ['control'], 'nova-api': ['control'],
              'nova-scheduler': ['control'], 'placement-api': ['control'],
              'watcher-engine': ['control'], 'watcher-applier': ['control'],
              'rabbitmq': ['broker']}
    path = DIRECTORY / 'inventory.ini'
    path.write_text('\n'.join([*hosts, *(
        '\n'.join([f'[{group}]', *members])
        for group, members in groups.items()), '']))
    return path


def variables(wheel: pathlib.Path) -> dict:
    """Return the variables of the role for these machines."""
    return {
        'secondary_scheduler_wheel': str(wheel),
        'secondary_scheduler_policies': [
            'cpu <= 90% for 10s on aggregate:role'],
        'secondary_scheduler_auth_url': layout.AUTH_URL,
        'secondary_scheduler_brokers': [f'{layout.CONTROL}:5672'],
        'secondary_scheduler_agent_user': 'role-agent',
        'secondary_scheduler_agent_password': 'agent-secret',
        'secondary_scheduler_broker_control': 'role-control',
        'secondary_scheduler_broker_control_password': 'control/secret',
        'secondary_scheduler_broker_agent_secret': 'agents-secret',
        'secondary_scheduler_vhost': 'role',
        'secondary_scheduler_rabbitmqctl': [f'{DIRECTORY}/rabbitmqctl'],
        'secondary_scheduler_aggregate': 'role',
        'secondary_scheduler_switch': 'role',
        'secondary_scheduler_totals': {'memory_mb': 1024, 'slots': 4},
        'secondary_scheduler_flavors': [
            {'name': 'role.small', 'vcpus': 1, 'ram': 128, 'disk': 1}],
        'secondary_scheduler_placement_conf_dir': str(
            layout.ETC / 'placement'),
        'secondary_scheduler_pip_arguments': [
            '--no-index', '--find-links', str(WHEELS)],
        'secondary_scheduler_lease_user': 'role-lease',
        'secondary_scheduler_lease_password': 'lease-secret',
        'secondary_scheduler_lease_bind': layout.CONTROL,
        'secondary_scheduler_lease_endpoint':
            f'http://{layout.CONTROL}:8791',
        'secondary_scheduler_lease_database_host': layout.CONTROL,
        'secondary_scheduler_lease_database_name': 'role_lease',
        'secondary_scheduler_lease_database_user': 'role_lease',
        'secondary_scheduler_lease_database_password': 'database-secret',
        'secondary_scheduler_lease_database_admin': ADMIN,
        'secondary_scheduler_lease_database_admin_password': layout.SECRET,
        'secondary_scheduler_remove_database': True,
    }


def up() -> None:
    """Start the machines; the box must be up, with two fake hosts."""
    root = containers.make_root('role', PACKAGES)
    site = _make_site()
    for name in PORTS:
        (containers.directory(name) / 'upper').mkdir(parents=True,
                                                     exist_ok=True)
    _make_keys()
    _write_control()
    for name in REPLACED:
        shell.stop(name)
    control.sql(f"GRANT ALL ON *.* TO '{ADMIN}'@'%' IDENTIFIED BY "
                f"'{layout.SECRET}' WITH GRANT OPTION")
    for name in PORTS:
        containers.boot(name, root, layout.NETNS, [
            containers.Mount(layout.STATE, str(layout.STATE), True),
            containers.Mount(layout.VENV.resolve(),
                             str(layout.VENV.resolve()))]
            if name == 'control' else [
            containers.Mount(WHEELS, str(WHEELS))])
        containers.run_in(name, ['sh', '-ec',
                                 'ssh-keygen -A; systemctl restart ssh'])
    _make_environment(site)
    shell.wait_for('nova-api', lambda: shell.port_open(8774), 300)


def down() -> None:
    """Stop and forget the machines; start the box's own services again."""
    for name in PORTS:
        containers.shut_down(name)
        containers.remove(name)
    control.sql(f"DROP USER IF EXISTS '{ADMIN}'@'%'")
    (layout.ETC / 'placement/policy.d/secondary_scheduler.yaml').unlink(
        missing_ok=True)
    control.seed('identity')
    for name in REPLACED:
        control.start_service(name)


def play(playbook: str, wheel: pathlib.Path, *arguments: str,
         **changes) -> tuple[int, dict[str, dict[str, int]], str]:
    """Run a playbook of the role.

    :returns: its exit code, the recap of each host, and its output.
    """

    began = time.monotonic()
    done = subprocess.run(
        shell.inside_netns([
            'ansible-playbook', '-i', str(write_inventory()),
            '-e', json.dumps({**variables(wheel), **changes}), *arguments,
            f'playbooks/{playbook}.yml']),
        cwd=ANSIBLE, capture_output=True, text=True,
        env={**os.environ, 'ANSIBLE_NOCOLOR': '1',
             'ANSIBLE_HOST_KEY_CHECKING': 'false', 'ANSIBLE_PIPELINING': '1',
             'ANSIBLE_STDOUT_CALLBACK': 'ansible.builtin.default'})
    text = done.stdout + done.stderr
    recap = {
        found[1]: {key: int(value) for key, value in (
            part.split('=') for part in found[2].split())}
        for found in re.finditer(r'^(\S+) +: (ok=.*)$', text, re.MULTILINE)}
    shell.say(f'{playbook} {" ".join(arguments)}: exit code '
              f'{done.returncode}, {time.monotonic() - began:.0f} s, changed '
              f'{sum(one["changed"] for one in recap.values())}')
    return done.returncode, recap, text


def listing() -> str:
    """Return what the role could leave behind: files, units and objects."""
    lines = []
    for name in PORTS:
        lines.append(containers.run_in(name, ['sh', '-c', (
            'find /etc /opt /var/lib/secondary-agent -path "*secondary*" '
            '2>/dev/null; getent passwd | grep -E "secondary|role-"; '
            f'{VENV}/bin/pip list 2>/dev/null | grep -i secondary')],
            check=False).stdout)
    for command in (
            ['host', 'list', '--json'],):
        lines.append(shell.run(
            [layout.BIN / 'secondary-scheduler', *command], netns=True,
            env=layout.credentials()).stdout)
    for command in (
            ['aggregate', 'list'], ['flavor', 'list', '--all'],
            ['optimize', 'audit', 'list'], ['user', 'list'],
            ['optimize', 'audittemplate', 'list'], ['service', 'list']):
        lines.append(shell.run(
            [layout.BIN / 'openstack', *command, '-f', 'value'], netns=True,
            env=layout.credentials()).stdout)
    definitions = json.loads(control.rabbitmqctl('export_definitions', '-'))
    lines.append(json.dumps({
        kind: sorted(one['name'] for one in definitions[kind])
        for kind in ('users', 'vhosts')}))
    return '\n'.join(lines)


def _expect(what: str, true: bool, text: str = '') -> None:
    if not true:
        raise BoxError(f'{what}:\n{text[-4000:]}')
    shell.say(f'seen: {what}')


def _changes(recap: dict[str, dict[str, int]]) -> int:
    return sum(one['changed'] for one in recap.values())


def try_role(old: pathlib.Path, new: pathlib.Path) -> None:
    """Deploy, repeat, upgrade and remove; the machines must be up.

    :param old: wheel of the release before.
    :param new: wheel of this release.
    :raises BoxError: at the first expectation that does not hold.
    """
    before = listing()
    code, _, text = play('deploy', old, '--check')
    _expect('check mode succeeds', code == 0, text)
    _expect('check mode changes nothing', listing() == before)
    code, recap, text = play('deploy', old, secondary_scheduler_policies=[
        'cpu <= 90 for ever'])
    _expect('a wrong policy stops the run', code == 2
            and 'secondary_scheduler_policies' in text, text)
    code, recap, text = play('deploy', old)
    _expect('the role deploys', code == 0, text)
    code, recap, text = play('deploy', old)
    _expect('a second run changes nothing',
            code == 0 and _changes(recap) == 0, text)
    code, recap, text = play('deploy', new)
    _expect('the role upgrades', code == 0 and _changes(recap) > 0, text)
    code, recap, text = play('deploy', new, '--check')
    _expect('check mode finds nothing to change',
            code == 0 and _changes(recap) == 0, text)
    code, recap, text = play('remove', new)
    _expect('the role removes', code == 0, text)
    after = listing()
    _expect('removal leaves nothing', after == before, after)


def main() -> None:
    """Try the role with the wheels of two releases: OLD NEW."""
    with machines():
        try_role(*map(pathlib.Path, sys.argv[1:]))


@contextlib.contextmanager
def machines() -> Iterator[None]:
    """Have the machines for a while."""
    try:
        up()
        yield
    finally:
        down()


if __name__ == '__main__':
    main()
