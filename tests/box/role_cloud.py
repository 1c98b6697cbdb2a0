# SPDX-License-Identifier: Apache-2.0

"""Machines for the Ansible role: containers with systemd on the box's cloud.

``control`` runs nova-api, nova-scheduler, Watcher's engine and applier as
units, from files and an environment that know nothing of this project, in
place of the box's own.  ``compute1`` and ``compute2`` have a libvirt of their
own; Nova knows them as two computes with its fake driver.
"""

from collections.abc import Iterator
import contextlib
import pathlib
import re
import shutil
import sys

sys.path += [str(pathlib.Path(__file__).parents[2] / f'tools/{name}')
             for name in ('box', 'devstack')]

# ruff: noqa: E402
import cgroups
import containers
import control
import layout
import seed
import shell
import stores
from tests.box import outside

DIRECTORY = layout.STATE / 'role'
WHEELS = DIRECTORY / 'wheels'
RELEASES = DIRECTORY / 'releases'
#: Of the packages that are made of the release before, and of this tree.
OLD, NEW = '0.1.0', '0.2.0'
#: What the role installs into environments of its own, but for libvirt's
#: binding, which is a package of Debian.
REQUIREMENTS = (
    'osc-placement', 'openstacksdk', 'python-openstackclient',
    'python-watcherclient', 'gunicorn', 'PyMySQL', 'python-memcached',
    'oslo.service[threading]')
#: In the containers, as the wheels are.
CONSTRAINTS = WHEELS / 'constraints.txt'
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


def make_wheels() -> None:
    """Make the wheels of two releases, and fetch all that they require.

    The containers reach no package index.
    """
    tree = _git('rev-parse', 'HEAD')
    for version, commit in ((OLD, release_before()), (NEW, tree)):
        shell.once(f'wheel {version} of the role', _make_wheel, version,
                   commit, key=f'{layout.SOURCE} {commit}')
    constraints = layout.HERE / 'constraints.txt'
    shell.once('packages of the role', _fetch, constraints,
               key=constraints.read_text() + ' '.join(REQUIREMENTS))


def wheel(version: str) -> pathlib.Path:
    """Return the wheel of OLD or of NEW."""
    return next((RELEASES / version).glob('*.whl'))


def _git(*arguments: str) -> str:
    return shell.run(['git', '-C', layout.SOURCE, *arguments]).stdout.strip()


def release_before() -> str:
    """Return the newest tag, or the first commit that has the role."""
    try:
        return _git('describe', '--tags', '--abbrev=0', 'HEAD^')
    except shell.BoxError:
        return _git('log', '--diff-filter=A', '--format=%H', '--',
                    'ansible/README.rst').rpartition('\n')[2]


def _make_wheel(version: str, commit: str) -> None:
    place = RELEASES / version
    shutil.rmtree(place, ignore_errors=True)
    tree = place / 'tree'
    shell.run(['git', 'clone', '--quiet', '--no-checkout', layout.SOURCE,
               tree])
    shell.run(['git', '-C', tree, 'checkout', '--quiet', commit])
    shell.run([layout.BIN / 'pip', 'wheel', '--quiet', '--no-deps',
               '--wheel-dir', place, tree],
              log='role-wheels', env={'PBR_VERSION': version})
    shutil.rmtree(tree)


def _fetch(constraints: pathlib.Path) -> None:
    shell.run([layout.BIN / 'pip', 'download', '--quiet', '--dest', WHEELS,
               '-c', constraints, f'{wheel(NEW)}[lease-api,metrics]',
               *REQUIREMENTS], log='role-wheels')
    for path in WHEELS.glob('secondary_scheduler-*'):
        path.unlink()
    shutil.copy(constraints, CONSTRAINTS)


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


PROMETHEUS = '''\
global: {scrape_interval: 5s}
rule_files: [/etc/prometheus/secondary_scheduler/rules.yaml]
scrape_configs:
  - job_name: secondary
    file_sd_configs:
      - files: [/etc/prometheus/secondary_scheduler/targets.yaml]
        refresh_interval: 5s
'''


def has_prometheus() -> bool:
    """Return whether this machine has a Prometheus for ``control``."""
    return shutil.which('prometheus') is not None


def _write_prometheus() -> None:
    _write('control', 'etc/prometheus/prometheus.yml', PROMETHEUS)
    _write('control', 'etc/systemd/system/prometheus.service', UNIT.format(
        command='/usr/bin/prometheus --config.file='
        '/etc/prometheus/prometheus.yml --storage.tsdb.path=/var/tmp/tsdb '
        '--web.listen-address=127.0.0.1:9090'))
    programs = containers.directory('control') / 'upper/usr/bin'
    programs.mkdir(parents=True, exist_ok=True)
    shutil.copy(str(shutil.which('prometheus')), programs / 'prometheus')


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
        shell.run(['ssh-keygen', '-A', '-f',
                   containers.directory(name) / 'upper'])


def _host_variables(host: str) -> str:
    """Return the variables of a host that Nova's fake driver is.

    Its node has the name of its service; libvirt's has that of the container.
    """
    own = {'secondary_agent': {'hypervisor_hostname': host}}
    # The containers share one address.
    port = 9910 + int(host.removeprefix('fake'))
    return (f'secondary_scheduler_host={host} '
            f'secondary_scheduler_agent_metrics_port={port} '
            f'secondary_scheduler_agent_options="{own}"')


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
        + (_host_variables(NOVA_HOSTS[name]) if name in NOVA_HOSTS else '')
        for name, port in PORTS.items()]
    hosts.append('broker ansible_connection=local ansible_become=false '
                 f'ansible_python_interpreter={sys.executable}')
    groups = {'secondary-admin': ['control'],
              'secondary-agent': ['compute1', 'compute2'],
              'secondary-lease-api': ['control'], 'nova-api': ['control'],
              'nova-scheduler': ['control'], 'placement-api': ['control'],
              'watcher-engine': ['control'], 'watcher-applier': ['control'],
              'rabbitmq': ['broker']}
    if has_prometheus():
        groups['prometheus'] = ['control']
    path = DIRECTORY / 'inventory.ini'
    path.write_text('\n'.join([*hosts, *(
        '\n'.join([f'[{group}]', *members])
        for group, members in groups.items()), '']))
    return path


def variables(version: str) -> dict:
    """Return the variables of the role for these machines."""
    return {
        'secondary_scheduler_wheel': str(wheel(version)),
        'secondary_scheduler_constraints': str(CONSTRAINTS),
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


def prepare() -> pathlib.Path:
    """Make what needs mirrors; return the root file system of the machines."""
    make_wheels()
    return containers.make_root('role', PACKAGES)


def up() -> None:
    """Start the machines; the box must be up, and all be prepared."""
    root = prepare()
    site = _make_site()
    # The containers wait for it, and no primary is measured here.
    cgroups.share(cgroups.path('cpu', 'control'), cgroups.SHARES['hosts'])
    if not shell.pid_of('fake-computes'):
        shell.start('fake-computes', cgroups.inside(
            'control', shell.inside_netns([
                layout.BIN / 'python', layout.HERE / 'fake_computes.py',
                str(len(NOVA_HOSTS))])))
    for name in PORTS:
        (containers.directory(name) / 'upper').mkdir(parents=True,
                                                     exist_ok=True)
    _make_keys()
    _write_control()
    if has_prometheus():
        _write_prometheus()
    for name in REPLACED:
        shell.stop(name)
    _forget_lease_service()
    stores.sql(f"GRANT ALL ON *.* TO '{ADMIN}'@'%' IDENTIFIED BY "
                f"'{layout.SECRET}' WITH GRANT OPTION")
    for name in PORTS:
        shell.say(f'container {name} ...')
        containers.boot(name, root, layout.NETNS, [
            containers.Mount(layout.STATE, str(layout.STATE), True),
            containers.Mount(layout.VENV.resolve(),
                             str(layout.VENV.resolve()))]
            if name == 'control' else [
            containers.Mount(WHEELS, str(WHEELS))])
    _make_environment(site)
    if has_prometheus():
        containers.run_in('control', ['systemctl', 'enable', '--now',
                                      'prometheus'])
    shell.wait_for('nova-api', lambda: shell.port_open(8774), 300)
    shell.wait_for('Watcher without the plug-in',
                   lambda: 'secondary' not in openstack(
                       'optimize', 'goal', 'list', '-c', 'Name'), 300)
    shell.wait_for('compute hosts', lambda: set(NOVA_HOSTS.values()) <= set(
        openstack('compute', 'service', 'list', '--service', 'nova-compute',
                  '-c', 'Host').split()), 300)


def _forget_lease_service() -> None:
    """Delete the box's own service in the catalog, which the role has too."""
    for line in openstack('service', 'list', '-c', 'ID', '-c', 'Name'
                          ).splitlines():
        uuid, _, name = line.partition(' ')
        if name == seed.LEASES:
            shell.run([layout.BIN / 'openstack', 'service', 'delete', uuid],
                      netns=True, env=layout.credentials())


def openstack(*command: str) -> str:
    """Return what a command of "openstack" says, as values by blanks."""
    return shell.run([layout.BIN / 'openstack', *command, '-f', 'value'],
                     netns=True, env=layout.credentials()).stdout


def down() -> None:
    """Stop and forget the machines; start the box's own services again."""
    for name in PORTS:
        containers.shut_down(name)
        containers.remove(name)
    shell.stop('fake-computes', timeout=2)
    stores.sql(f"DROP USER IF EXISTS '{ADMIN}'@'%'")
    for name in REPLACED:
        control.start_service(name)
    for name in REPLACED:
        control.wait_service(name)
    control.seed('identity')
    # Watcher without the plug-in has cancelled the box's own audit.
    control.seed('leases')
    cgroups.share(cgroups.path('cpu', 'control'), cgroups.SHARES['control'])


@contextlib.contextmanager
def machines() -> Iterator[None]:
    """Have the machines for a while."""
    outside.run_module('tests.box.role_cloud')
    try:
        up()
        yield
    finally:
        down()


if __name__ == '__main__':
    prepare()
