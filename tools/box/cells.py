# SPDX-License-Identifier: Apache-2.0

"""Second cell of Nova: the last host, and a database that can be taken away.

Nova reaches that database through a forwarder with faults.  Once the cell was
made it stays, without hosts after ``up --cells 1``.
"""

import re
import sys

import layout
import shell
from shell import once, run
import stores

#: Service that forwards to the database, its port, and the file that names
#: its fault: "refused" or "silent".
LINK, _PORT = 'cell2-database', 3307
FAULT = layout.STATE / 'cell2-fault'
#: Virtual host of the cell's messages.
_MESSAGES = 'cell2'
#: What nova.conf of the cell differs in.
CONFIG = layout.ETC / 'nova/nova-cell2.conf'
_CONFIG = '''\
[DEFAULT]
transport_url = {broker}
[database]
connection = {db}
'''
_STEP = 'second cell'


def hosts_of_second(settings: dict) -> list[str]:
    """Return the hosts of the second cell: the last one, if it has any."""
    return layout.host_names(settings)[-1:] if settings['cells'] == 2 else []


def has_second(settings: dict) -> bool:
    """Return whether Nova has a second cell, with or without hosts."""
    return settings['cells'] == 2 or (layout.STAMPS / _STEP).exists()


def _database() -> str:
    """Return the URL of the cell's database, by the forwarder.

    It has the time-outs that the documentation recommends.  Without them each
    request to a silent database keeps a thread of Nova's API for ever.  Each
    boot in the other cell waits twice for an answer.
    """
    return (layout.database('nova_cell2').replace(':3306', f':{_PORT}')
            + '&connect_timeout=5&read_timeout=5')


def configure() -> None:
    """Write the configuration file of the cell."""
    layout.write(CONFIG, _CONFIG.format(
        broker=layout.BROKER + _MESSAGES, db=_database()))


def start_link() -> None:
    """Start the forwarder, without a fault."""
    FAULT.unlink(missing_ok=True)
    shell.start(LINK, stores.in_control_plane([
        sys.executable, layout.HERE / 'faulty_link.py', layout.CONTROL,
        str(_PORT), '3306', FAULT]))


def make_second() -> None:
    """Start the forwarder, and make the cell the first time."""
    start_link()
    shell.wait_for(LINK, lambda: shell.port_open(_PORT), timeout=30,
                   service=LINK)
    once(_STEP, _make, key=_database())


def _make() -> None:
    stores.rabbitmqctl('add_vhost', _MESSAGES)
    stores.rabbitmqctl('set_permissions', '-p', _MESSAGES, 'openstack',
                       '.*', '.*', '.*')
    stores.create_database('nova_cell2')
    _manage('--config-file', CONFIG, 'db', 'sync', '--local_cell')
    known = re.search(r'\| *cell2 *\| *(\S+)',
                      _manage('cell_v2', 'list_cells'))
    _manage('cell_v2', *(
        ('update_cell', '--cell_uuid', known[1]) if known
        else ('create_cell',)), '--name', 'cell2', '--database_connection',
        _database(), '--transport-url', layout.BROKER + _MESSAGES)


def _manage(*arguments) -> str:
    return run([layout.BIN / 'nova-manage', '--config-file',
                layout.ETC / 'nova/nova.conf', *arguments],
               netns=True).stdout
