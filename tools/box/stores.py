# SPDX-License-Identifier: Apache-2.0

"""Databases and messages: MariaDB and RabbitMQ, with data of the box's own.
"""

import pathlib
import shutil

import cgroups
import layout
import shell
from shell import once, run, start


def _socket() -> pathlib.Path:
    return layout.RUN / 'mysql/mysql.sock'


def _install_database() -> None:
    data = layout.STATE / 'mysql'
    data.mkdir(parents=True, exist_ok=True)
    shutil.chown(data, 'mysql', 'mysql')
    run(['mariadb-install-db', '--no-defaults', '--user=mysql',
         f'--datadir={data}', '--auth-root-authentication-method=normal',
         '--skip-test-db'], log='mariadb')


def in_control_plane(command: list) -> list:
    """Return what runs a command in the network and group of services."""
    return cgroups.inside('control', shell.inside_netns(command))


def start_mariadb() -> None:
    """Start MariaDB with a data directory of the box's own."""
    once('database files', _install_database)
    _socket().parent.mkdir(parents=True, exist_ok=True)
    shutil.chown(_socket().parent, 'mysql', 'mysql')
    start('mariadb', in_control_plane([
        'mariadbd', '--no-defaults', '--user=mysql',
        f'--datadir={layout.STATE}/mysql', f'--socket={_socket()}',
        f'--pid-file={_socket().parent}/mysqld.pid',
        f'--bind-address={layout.CONTROL}', '--port=3306',
        '--max-connections=1000', '--innodb-buffer-pool-size=256M',
        '--innodb-flush-log-at-trx-commit=0', '--skip-log-bin',
        '--skip-name-resolve', '--character-set-server=utf8mb4']))


def start_rabbitmq() -> None:
    """Start RabbitMQ as a node of the box's own."""
    base = layout.STATE / 'rabbitmq'
    layout.write(base / 'rabbitmq.conf', '\n'.join([
        f'listeners.tcp.1 = {layout.CONTROL}:5672', 'loopback_users = none',
        'default_user = openstack', f'default_pass = {layout.SECRET}',
        'default_permissions.configure = .*',
        'default_permissions.read = .*', 'default_permissions.write = .*',
        'log.file.level = warning', '']))
    layout.write(base / 'env.conf', '\n'.join([
        'NODENAME=box@localhost', 'NODE_IP_ADDRESS=127.0.0.1',
        'DIST_PORT=25672', f'MNESIA_BASE={base}/mnesia',
        f'LOG_BASE={base}/log', f'CONFIG_FILE={base}/rabbitmq',
        f'ENABLED_PLUGINS_FILE={base}/enabled_plugins',
        'SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface '
        '{127,0,0,1} +S 1:1 +sbwt none"', '']))
    layout.write(base / 'enabled_plugins', '[].\n')
    run(['chown', '-R', 'rabbitmq:rabbitmq', base])
    start('rabbitmq', in_control_plane([
        'setpriv', '--reuid=rabbitmq', '--regid=rabbitmq', '--init-groups',
        'env', f'HOME={base}', 'ERL_EPMD_ADDRESS=127.0.0.1',
        f'RABBITMQ_CONF_ENV_FILE={base}/env.conf',
        '/usr/lib/rabbitmq/bin/rabbitmq-server']), cwd='/')


def rabbitmqctl(*arguments: str) -> str:
    """Run rabbitmqctl against the node of the box; return what it says."""
    base = layout.STATE / 'rabbitmq'
    return run(['setpriv', '--reuid=rabbitmq', '--regid=rabbitmq',
                '--init-groups', 'env', f'HOME={base}',
                f'RABBITMQ_CONF_ENV_FILE={base}/env.conf',
                '/usr/lib/rabbitmq/bin/rabbitmqctl', '-q', *arguments],
               netns=True, cwd='/').stdout


#: What the account of an agent may do in its virtual host, and in the topic
#: exchange there: doc/source/install/manual.rst, step 7.
PERMISSIONS = (
    r'^(secondary_scheduler(_fanout)?|secondary_agent(\.{host}|_fanout.*)?'
    r'|reply_.+)$',
    r'^(secondary_scheduler(_fanout)?|secondary_agent(\.{host}|_fanout_.+)?'
    r'|amq\.default)$',
    r'^(secondary_scheduler|secondary_agent(\.{host}|_fanout.*)?'
    r'|reply_.+)$')
TOPICS = (r'^secondary_scheduler_describe$', r'^secondary_agent(\.{host})?$')


def account_url(host: str) -> str:
    """Return the transport URL of a host's agent."""
    return (f'rabbit://secondary-agent-{host}:{layout.SECRET}'
            f'@{layout.CONTROL}:5672/{layout.MEETING}')


def make_accounts(names: list[str]) -> None:
    """Give each host's agent a broker account of its own."""
    rabbitmqctl('add_vhost', layout.MEETING)
    rabbitmqctl('set_permissions', '-p', layout.MEETING, 'openstack',
                '.*', '.*', '.*')
    known = rabbitmqctl('list_users').split()
    for host in names:
        account = f'secondary-agent-{host}'
        if account not in known:
            rabbitmqctl('add_user', account, layout.SECRET)
        rabbitmqctl('set_permissions', '-p', layout.MEETING, account,
                    *(one.format(host=host) for one in PERMISSIONS))
        rabbitmqctl('set_topic_permissions', '-p', layout.MEETING, account,
                    'secondary_scheduler',
                    *(one.format(host=host) for one in TOPICS))


def sql(statement: str) -> str:
    """Run a statement in MariaDB as its root; return the rows."""
    return run(['mariadb', '--no-defaults', '-uroot', '-N', '-S', _socket(),
                '-e', statement]).stdout


def create_database(name: str) -> None:
    """Create a database of a service, unless it exists."""
    sql(f'CREATE DATABASE IF NOT EXISTS {name} CHARACTER SET utf8mb3; '
        f"GRANT ALL ON {name}.* TO 'box'@'%' "
        f"IDENTIFIED BY '{layout.SECRET}';")
