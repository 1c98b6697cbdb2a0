# SPDX-License-Identifier: Apache-2.0

"""The box's commands for its users, as they are typed."""

import pathlib
import re
import subprocess
import sys

import layout
from secondary_scheduler.leases.client import client
from tests.box import boots
from tests.box.services import wait_until

README = (layout.SOURCE / 'README.md').read_text()
#: In which a lease of two small servers runs on hosts that have room.
RUNS_S = 180


def box(*words: str, text: str = '') -> str:
    """Run a command of the box; return what it prints."""
    done = subprocess.run(
        [sys.executable, str(layout.HERE), *words], input=text, text=True,
        cwd=layout.SOURCE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_exec_runs_programs_of_the_box(hosts):
    assert hosts[0] in box('exec', 'secondary-scheduler', 'host', 'list')
    # It finds its configuration.
    assert box('exec', 'secondary-scheduler', 'lease-db', 'version').strip()
    assert 'leader: none' not in box(
        'exec', 'secondary-scheduler', 'leader', 'show', '--config-file',
        str(layout.ETC / 'watcher/watcher-1.conf'))


def test_exec_runs_programs_inside_a_host(hosts):
    for host in (hosts[0], hosts[-1]):
        assert f'host {host}' in box('exec', '--host', host,
                                     'secondary-agent', 'status')
        assert box('exec', '--host', host, 'hostname').strip() == host
        assert box('exec', '--host', host, 'pwd').strip() == str(
            layout.SOURCE)


def test_shell_has_credentials_and_programs(hosts):
    said = box('shell', '--user', 'demo', '--host', hosts[0], text=(
        'hostname; echo $OS_USERNAME $OS_PROJECT_NAME; which openstack'))
    assert said.split() == [hosts[0], 'demo', 'demo',
                            str(layout.BIN / 'openstack')]


def test_each_command_takes_another_user_and_project():
    for words in (('exec', '--user', 'other', 'openstack'),
                  ('openstack', '--user', 'other')):
        shown = box(*words, 'token', 'issue', '-f', 'value', '-c',
                    'project_id')
        assert shown == box('openstack', 'project', 'show', 'other', '-f',
                            'value', '-c', 'id')
    assert box('exec', '--user', 'admin', '--project', 'other', 'printenv',
               'OS_PROJECT_NAME').strip() == 'other'


def test_a_program_that_is_not_there_is_named():
    done = subprocess.run(
        [sys.executable, str(layout.HERE), 'exec', 'no-such-program'],
        text=True, capture_output=True)
    assert done.returncode == 1
    assert done.stderr.startswith('box: there is no program "no-such-program"')


def test_the_lease_of_the_readme_runs(
        leases_run, cloud, no_fleet, owner):
    """As it stands there, with nothing done before it."""
    lines = re.findall(r'^    python3 (tools/box openstack --user demo .*)$',
                       README, re.M)
    assert len(lines) == 3
    leases = client.Client.of(owner)
    # A first attempt that finds hosts still closed is logged with a traceback.
    boots.wait_for_room(cloud, owner, 'before the lease')
    made = []
    try:
        for line in lines:
            words = line.split()
            assert pathlib.Path(layout.SOURCE, words[0]) == layout.HERE
            said = box(*words[1:])
            made = made or re.findall(r'\| id +\| (\S+)', said)
        assert made
        wait_until(lambda: leases.get(made[0])['state'] == 'active', RUNS_S,
                   lambda: f'it runs: {leases.get(made[0])}')
    finally:
        for one in made:
            leases.act(one, 'cancel')
            wait_until(lambda one=one: leases.get(one)['state'] in (
                'cancelled', 'done'), RUNS_S,
                lambda one=one: f'it is over: {leases.get(one)}')
