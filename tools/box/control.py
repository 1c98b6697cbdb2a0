# SPDX-License-Identifier: Apache-2.0

"""The control plane: configuration files, migrations, services, in order.

Everything is a stock package; what is ours gets in through entry points and
configuration files only.
"""

import concurrent.futures
import json
import pathlib
import shutil
import sys

import cells
import layout
import shell
from shell import once, run, say, start
import stores

#: The service of leases, its user and its database.
LEASES = 'secondary_lease'
DATABASES = ('keystone', 'glance', 'placement', 'nova_api', 'nova',
             'nova_cell0', 'neutron', 'watcher')

AUTH = '''\
auth_type = password
auth_url = {url}
project_domain_id = default
user_domain_id = default
project_name = service
username = {user}
password = {secret}
region_name = RegionOne
'''

# No password: the account that validates tokens.
TOKEN = '''\
[keystone_authtoken]
www_authenticate_uri = http://{control}:5000
token_cache_time = 3600
{auth}'''  # nosec B105

KEYSTONE = '''\
[DEFAULT]
log_file = {log}/keystone.log
[database]
connection = {db}
[identity]
# Watcher logs in anew for each audit and action, which would cost 300 ms of
# a CPU each; a secret of this machine needs no protection from dictionaries.
password_hash_rounds = 4
[token]
provider = fernet
expiration = 86400
[fernet_tokens]
key_repository = {etc}/keystone/fernet-keys/
[credential]
key_repository = {etc}/keystone/credential-keys/
[cache]
# Without a cache each token validation costs some 300 ms.
enabled = true
backend = oslo_cache.dict
expiration_time = 600
'''

PLACEMENT = '''\
[DEFAULT]
log_file = {log}/placement.log
[api]
auth_strategy = keystone
[placement_database]
connection = {db}
{token}
'''

GLANCE = '''\
[DEFAULT]
log_file = {log}/glance.log
enabled_backends = files:file
enabled_import_methods = []
worker_self_reference_url = http://{control}:9292
[database]
connection = {db}
[glance_store]
default_backend = files
[files]
filesystem_store_datadir = {state}/glance/images
[os_glance_staging_store]
filesystem_store_datadir = {state}/glance/staging
[os_glance_tasks_store]
filesystem_store_datadir = {state}/glance/tasks
[paste_deploy]
flavor = keystone
config_file = {etc}/glance/glance-api-paste.ini
{token}
'''

NEUTRON = '''\
[DEFAULT]
core_plugin = ml2
service_plugins =
api_paste_config = {etc}/neutron/api-paste.ini
state_path = {state}/neutron
transport_url = {broker}
log_file = {log}/neutron.log
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
dhcp_agent_notification = false
rpc_workers = 0
rpc_state_report_workers = 0
[database]
connection = {db}
[oslo_concurrency]
lock_path = {state}/neutron/locks
{token}
'''

ML2 = '''\
[ml2]
type_drivers = flat,local
tenant_network_types = local
mechanism_drivers =
extension_drivers =
[ml2_type_flat]
flat_networks = *
'''

NOVA = '''\
[DEFAULT]
my_ip = {control}
host = control
state_path = {state}/nova
transport_url = {broker}
allow_resize_to_same_host = false
report_interval = 5
service_down_time = 30
rpc_response_timeout = 60
# With this and the quota by Placement, a silent cell delays boots in the
# others less ("box up --cells 2").
cell_worker_thread_pool_size = 20
[api_database]
connection = {db_api}
[database]
connection = {db}
[service_user]
send_service_user_token = true
{auth}[placement]
{auth}[glance]
{auth}[neutron]
{auth}[cinder]
{auth}[wsgi]
api_paste_config = {etc}/nova/api-paste.ini
[oslo_concurrency]
lock_path = {state}/nova/locks
[conductor]
workers = 1
[scheduler]
workers = 2
discover_hosts_in_cells_interval = 5
[filter_scheduler]
track_instance_changes = true
host_subset_size = 1
shuffle_best_same_weighed_hosts = false
enabled_filters = {filters}
{plugin}
[quota]
count_usage_from_placement = true
instances = -1
cores = -1
ram = -1
server_groups = -1
server_group_members = -1
[vnc]
enabled = false
[oslo_messaging_notifications]
driver = messagingv2
[notifications]
notification_format = versioned
notify_on_state_change = vm_and_task_state
[secondary_scheduler]
transport_url = {meeting}
{token}
'''

FILTERS = ('ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,'
           'ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter')

#: What an operator adds to nova.conf for the plug-in.
NOVA_PLUGIN = '''\
available_filters = nova.scheduler.filters.all_filters
available_filters = secondary_scheduler.nova.filters.all_filters
weight_classes = secondary_scheduler.nova.weights.all_weighers
'''

WATCHER = '''\
[DEFAULT]
host = {host}
state_path = {state}/watcher
# Nothing reads Watcher's own notifications here.
notification_level =
transport_url = {broker}
control_exchange = watcher
[database]
connection = {db}
[watcher_clients_auth]
timeout = 10
{auth}[nova]
{auth}[placement]
{auth}[oslo_messaging_notifications]
driver = messagingv2
[oslo_concurrency]
lock_path = {state}/watcher/locks
[collector]
collector_plugins = compute,secondary
[watcher_cluster_data_model_collectors.compute]
period = 60
[watcher_cluster_data_model_collectors.secondary]
period = 15
[watcher_decision_engine]
continuous_audit_interval = 5
check_periodic_interval = 300
max_audit_workers = 4
[watcher_applier]
workers = 8
workflow_engine = secondary
[watcher_workflow_engines.secondary]
max_workers = 8
[secondary_scheduler]
transport_url = {meeting}
[secondary_lease_api]
database_url = {lease_db}
[secondary_leases]
# Guests of 128 MB, on hosts with a third of a CPU each.
boot_time = 20
action_plan_lead_time = 6
command_latency = 1.5
suspend_margin = 0.5
shutdown_time = 5
migration = no
image_fetch_time = 15
# Tests do not wait for half an hour.
give_up_after = 25
[secondary_watcher]
# Tests make one burst after the other on a dozen instances; the default of 5
# preemptions in 5 minutes would end them.
breaker_minimum = 50
metrics_port = 9920
metrics_address = {control}
constraints_file = {etc}/secondary_scheduler/constraints.yaml
model_directory = {state}/watcher/models
{token}
'''

LEASE_API = '''\
[DEFAULT]
log_file = {log}/secondary-lease-api.log
[secondary_lease_api]
database_url = {lease_db}
trustee_user_id = {trustee}
metrics_port = 9930
metrics_address = {control}
{token}
'''

POLICIES = f'''\
# One file for agents, schedulers and Watcher (see reference/decisions, 10).
[secondary_scheduler]
policy = {layout.POLICY}
report_interval = 2
# Hosts this small are noisy: one transaction of the primary is 1 % of a
# second of a host. Four guests have room beside a calm primary, and beside
# the demo's burst one at most.
set_point_margin = 4
useful_share = 8
'''

AGENT = '''\
[DEFAULT]
log_file = {log}/agent-{host}.log
[secondary_scheduler]
transport_url = {account}
[secondary_agent]
host = {host}
state_path = {hosts}/{host}/agent
# The default of 10 s suits clouds whose guests boot less often.
admission_delay = 3
metrics_port = 9911
metrics_address = {address}
[placement]
{auth}
'''


def _auth(user: str) -> str:
    return AUTH.format(url=layout.AUTH_URL, user=user, secret=layout.SECRET)


def values(service: str, **more) -> dict:
    """Return what the templates of a service are filled with."""
    auth = _auth(service)
    return {'control': layout.CONTROL, 'etc': layout.ETC, 'log': layout.LOG,
            'state': layout.SERVICE_STATE, 'broker': layout.BROKER,
            'meeting': layout.BROKER + layout.MEETING,
            'hosts': layout.HOSTS, 'auth': auth,
            'token': TOKEN.format(control=layout.CONTROL, auth=auth),
            'db': layout.database(service),
            'lease_db': layout.database(LEASES).partition('?')[0], **more}


def _link(path: pathlib.Path, target: pathlib.Path) -> None:
    """Let a program find a file by the name that it looks for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def configure(settings: dict) -> None:
    """Write every configuration file; cheap, so done at each ``up``."""
    etc, shipped = layout.ETC, layout.VENV / 'etc'
    layout.write(etc / 'keystone/keystone.conf', KEYSTONE.format(
        **values('keystone')))
    layout.write(etc / 'placement/placement.conf', PLACEMENT.format(
        **values('placement')))
    layout.write(etc / 'glance/glance-api.conf', GLANCE.format(
        **values('glance')))
    layout.write(etc / 'neutron/neutron.conf', NEUTRON.format(
        **values('neutron')))
    layout.write(etc / 'neutron/plugins/ml2/ml2_conf.ini', ML2)
    layout.write(etc / 'nova/nova.conf', NOVA.format(
        **values('nova', db_api=layout.database('nova_api'),
                 filters=FILTERS + ',SecondaryPolicyFilter',
                 plugin=NOVA_PLUGIN)))
    cells.configure()
    for engine in range(1, 3):
        layout.write(etc / f'watcher/watcher-{engine}.conf', WATCHER.format(
            **values('watcher', host=f'control{engine}')))
    policies = etc / 'secondary_scheduler/policies.conf'
    # What a user has changed stays until the box itself has other policies.
    once('policies', layout.write, policies, POLICIES, key=POLICIES)
    _link(etc / 'secondary_scheduler/secondary_scheduler.conf', policies)
    once('constraints', layout.write,
         etc / 'secondary_scheduler/constraints.yaml', '[]\n', key='')
    (layout.SERVICE_STATE / 'watcher/models').mkdir(
        parents=True, exist_ok=True)
    for host in layout.host_names(settings):
        agent = etc / f'hosts/{host}/agent.conf'
        layout.write(agent, AGENT.format(**values(
            'secondary-agent', host=host, account=stores.account_url(host),
            address=layout.host_address(host))))
        agent.chmod(0o600)
        own = layout.HOSTS / host / 'etc/secondary_scheduler'
        _link(own / 'secondary_scheduler.conf', policies)
        _link(own / 'secondary-agent.conf', agent)
    shutil.copy(layout.SOURCE / 'etc/placement/policy.yaml',
                etc / 'placement/policy.yaml')
    for service, name in (('glance', 'glance-api-paste.ini'),
                          ('neutron', 'api-paste.ini'),
                          ('nova', 'api-paste.ini')):
        shutil.copy(shipped / service / name, etc / service / name)
    for service in ('nova', 'neutron', 'watcher', 'glance'):
        (layout.SERVICE_STATE / service / 'locks').mkdir(parents=True,
                                                         exist_ok=True)


# --- migrations -------------------------------------------------------------

def _create_databases() -> None:
    for name in DATABASES:
        stores.create_database(name)


def _manage(name: str, *arguments, env: dict | None = None) -> None:
    run([layout.BIN / name, *arguments], log='migrations', netns=True,
        env=env)


def _migrate_keystone() -> None:
    conf = ('--config-file', layout.ETC / 'keystone/keystone.conf')
    for keys in ('fernet-keys', 'credential-keys'):
        (layout.ETC / 'keystone' / keys).mkdir(parents=True, exist_ok=True)
    _manage('keystone-manage', *conf, 'db_sync')
    for setup in ('fernet_setup', 'credential_setup'):
        _manage('keystone-manage', *conf, setup, '--keystone-user', 'root',
                '--keystone-group', 'root')
    urls = []
    for kind in ('admin', 'internal', 'public'):
        urls += [f'--bootstrap-{kind}-url', layout.AUTH_URL]
    _manage('keystone-manage', *conf, 'bootstrap', '--bootstrap-password',
            layout.SECRET, '--bootstrap-region-id', 'RegionOne', *urls)


def _migrate_nova() -> None:
    conf = ('--config-file', layout.ETC / 'nova/nova.conf')
    _manage('nova-manage', *conf, 'api_db', 'sync')
    _manage('nova-manage', *conf, 'cell_v2', 'map_cell0',
            '--database_connection', layout.database('nova_cell0'))
    _manage('nova-manage', *conf, 'db', 'sync')
    known = run([layout.BIN / 'nova-manage', *conf, 'cell_v2', 'list_cells'],
                netns=True).stdout
    if 'cell1' not in known:
        _manage('nova-manage', *conf, 'cell_v2', 'create_cell', '--name',
                'cell1')


def forget_orphans() -> None:
    """Release the orphaned allocations of secondaries.

    Nova leaves some behind where a test, or its interruption, cuts it off
    within a live migration.
    """
    audit = run([layout.BIN / 'secondary-scheduler', 'host', 'audit',
                 '--delete'], netns=True, env=layout.credentials(),
                timeout=120)
    for line in audit.stdout.splitlines():
        if line.endswith('released.'):
            say(line)


def _migrate_rest() -> None:
    etc = layout.ETC
    _manage('placement-manage', '--config-file',
            etc / 'placement/placement.conf', 'db', 'sync',
            env={'OS_PLACEMENT_CONFIG_DIR': str(etc / 'placement')})
    _manage('glance-manage', '--config-file', etc / 'glance/glance-api.conf',
            'db_sync')
    _manage('neutron-db-manage', '--config-file', etc / 'neutron/neutron.conf',
            '--config-file', etc / 'neutron/plugins/ml2/ml2_conf.ini',
            'upgrade', 'heads')
    _manage('watcher-db-manage', '--config-file',
            etc / 'watcher/watcher-1.conf', 'upgrade')


def _lease_config() -> pathlib.Path:
    return layout.ETC / 'secondary_scheduler/secondary-lease-api.conf'


def _lease_migrations() -> list[str]:
    return sorted(path.stem for path in (
        layout.SOURCE / 'secondary_scheduler/leases/api/db/migrations/versions'
    ).glob('*.py'))


def _make_lease_service() -> None:
    """Make its database, its users' trustee known, and its tables."""
    stores.sql(f'CREATE DATABASE IF NOT EXISTS {LEASES} '
               'CHARACTER SET utf8mb4; '
               f"GRANT ALL ON {LEASES}.* TO 'box'@'%' "
               f"IDENTIFIED BY '{layout.SECRET}';")
    layout.write(_lease_config(), LEASE_API.format(**values(
        'secondary-lease', trustee=seed('identity')['watcher'])))
    _manage('secondary-scheduler', 'lease-db', 'sync', '--config-file',
            _lease_config())


def _migrate() -> None:
    _create_databases()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(f) for f in (
                _migrate_nova, _migrate_keystone, _migrate_rest)]:
            done.result()


# --- services ----------------------------------------------------------------

def _wsgi(name: str, port: int, module: str, *extra: str,
          threads: int = 8, env: dict | None = None) -> None:
    # "Connection: close": uwsgi drops a kept-alive connection without saying
    # so, and the client's next POST would fail.
    start(name, stores.in_control_plane([
        layout.BIN / 'uwsgi', '--http-socket', f'{layout.CONTROL}:{port}',
        '--module', f'{module}:application', '--virtualenv', layout.VENV,
        '--master', '--die-on-term', '--processes', '1', '--threads',
        str(threads), '--enable-threads', '--lazy-apps', '--buffer-size',
        '65535', '--need-app', '--add-header', 'Connection: close',
        '--thunder-lock', '--listen', '100', '--disable-logging', *extra]),
        env={'PATH': f'{layout.BIN}:/usr/sbin:/usr/bin:/sbin:/bin',
             **(env or {})})


def _daemon(name: str, program: str, *config) -> None:
    arguments = []
    for path in config:
        arguments += ['--config-file', path]
    start(name, stores.in_control_plane([
        layout.BIN / program, *arguments, '--log-file',
        layout.LOG / f'{name}-service.log']),
        env={'PATH': f'{layout.BIN}:/usr/sbin:/usr/bin:/sbin:/bin'})


PORTS = {'keystone': 5000, 'placement': 8778, 'glance': 9292,
         'neutron': 9696, 'nova-api': 8774, 'watcher-api': 9322,
         'secondary-lease-api': 8791}


def start_service(name: str) -> None:
    """Start one service of the control plane by its name in the box."""
    etc = layout.ETC
    nova = etc / 'nova/nova.conf'
    policies = etc / 'secondary_scheduler/policies.conf'
    if name == 'mariadb':
        stores.start_mariadb()
    elif name == 'rabbitmq':
        stores.start_rabbitmq()
    elif name == 'keystone':
        _wsgi(name, 5000, 'keystone.wsgi.api', env={
            'OS_KEYSTONE_CONFIG_FILES': str(etc / 'keystone/keystone.conf')})
    elif name == 'placement':
        _wsgi(name, 8778, 'placement.wsgi.api', env={
            'OS_PLACEMENT_CONFIG_DIR': str(etc / 'placement')})
    elif name == 'glance':
        _wsgi(name, 9292, 'glance.wsgi.api', '--http-auto-chunked',
              '--http-chunked-input', '--socket-timeout', '120',
              '--chunked-input-timeout', '120', threads=4,
              env={'OS_GLANCE_CONFIG_DIR': str(etc / 'glance')})
    elif name == 'neutron':
        _wsgi(name, 9696, 'neutron.wsgi.api', threads=4,
              env={'OS_NEUTRON_CONFIG_DIR': str(etc / 'neutron')})
    elif name == 'nova-api':
        _wsgi(name, 8774, 'nova.wsgi.osapi_compute',
              env={'OS_NOVA_CONFIG_DIR': str(etc / 'nova')})
    elif name == 'nova-conductor':
        _daemon(name, name, nova)
    elif name == 'nova-conductor-cell2':
        _daemon(name, 'nova-conductor', nova, cells.CONFIG)
    elif name == cells.LINK:
        cells.start_link()
    elif name == 'nova-scheduler':
        _daemon(name, name, nova, policies)
    elif name == 'watcher-api':
        _wsgi(name, 9322, 'watcher.wsgi.api', '--pyargv',
              f'--config-file {etc}/watcher/watcher-1.conf', threads=4)
    elif name == 'secondary-lease-api':
        _wsgi(name, 8791, 'secondary_scheduler.leases.api.wsgi', env={
            'OS_SECONDARY_LEASE_CONFIG': str(_lease_config())})
    elif name.startswith('watcher-engine-'):
        number = name.removeprefix('watcher-engine-')
        _daemon(name, 'watcher-decision-engine',
                etc / f'watcher/watcher-{number}.conf', policies)
    elif name == 'watcher-applier':
        _daemon(name, name, etc / 'watcher/watcher-1.conf', policies)
    else:
        raise shell.BoxError(f'there is no service "{name}"')


def services(settings: dict) -> list[str]:
    """Return the names of the control plane's services, in start order."""
    second = ([cells.LINK, 'nova-conductor-cell2']
              if cells.has_second(settings) else [])
    return ['mariadb', 'rabbitmq', *second, 'keystone', 'placement', 'glance',
            'neutron', 'nova-api', 'nova-conductor', 'nova-scheduler',
            'watcher-api', 'secondary-lease-api',
            *[f'watcher-engine-{n + 1}' for n in range(settings['engines'])],
            'watcher-applier']


def wait_service(name: str) -> None:
    """Wait until a service listens; other daemons than the scheduler are not
    waited for here (their work shows whether they are ready).

    While no scheduler listens nova-compute cannot delete an instance: what
    it tells the schedulers finds no exchange, and the instance stays.
    """
    ports = {**PORTS, 'mariadb': 3306, 'rabbitmq': 5672}
    if name == 'nova-scheduler':
        shell.wait_for(name, lambda: 'scheduler_fanout' in stores.rabbitmqctl(
            'list_exchanges', 'name'), timeout=120, service=name)
    elif name in ports:
        shell.wait_for(name, lambda: shell.port_open(ports[name]),
                       timeout=120, service=name)
    if name == 'neutron':
        run([sys.executable, '-c', WARM_NEUTRON, layout.AUTH_URL,
             f'http://{layout.CONTROL}:9696', layout.SECRET], netns=True)


#: Neutron's first request must not be GET /ports (an ORM attribute exists
#: only after another request has configured the mappers), so list networks.
WARM_NEUTRON = '''
import json, sys, urllib.request
auth, network, secret = sys.argv[1:]
domain = {'id': 'default'}
user = {'name': 'admin', 'domain': domain, 'password': secret}
body = {'auth': {
    'identity': {'methods': ['password'], 'password': {'user': user}},
    'scope': {'project': {'name': 'admin', 'domain': domain}}}}
answer = urllib.request.urlopen(urllib.request.Request(
    auth + '/auth/tokens', json.dumps(body).encode(),
    {'Content-Type': 'application/json'}))
urllib.request.urlopen(urllib.request.Request(
    network + '/v2.0/networks',
    headers={'X-Auth-Token': answer.headers['X-Subject-Token']})).read()
'''


def up(settings: dict) -> None:
    """Start the control plane; migrate and seed it the first time."""
    configure(settings)
    for name in ('mariadb', 'rabbitmq'):
        start_service(name)
    wait_service('mariadb')
    once('database migrations', _migrate)
    start_service('keystone')
    wait_service('keystone')
    wait_service('rabbitmq')
    once('users and endpoints', seed, 'identity', key='3')
    once('lease service', _make_lease_service, key=' '.join(
        [*_lease_migrations(), LEASE_API]))
    names = layout.host_names(settings)
    if cells.has_second(settings):
        cells.make_second()
    once('broker accounts', stores.make_accounts, names,
         key=f'{names} {stores.PERMISSIONS} {stores.TOPICS}')
    say('control plane starting ...')
    for name in services(settings):
        start_service(name)
    for name in services(settings):
        wait_service(name)
    say('control plane is up')


def seed(*commands: str, check: bool = True) -> dict:
    """Run the seeding script inside the box; return what it prints (JSON)."""
    done = run([layout.BIN / 'python', layout.HERE / 'seed.py', *commands],
               netns=True, env=layout.credentials(), check=check)
    line = done.stdout.strip().rpartition('\n')[2]
    return json.loads(line) if line.startswith('{') else {}
