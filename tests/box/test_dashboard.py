# SPDX-License-Identifier: Apache-2.0

"""The dashboard in a real browser, on the box with ``up --horizon``."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import uuid

import pytest

import control
import dashboard
import layout
import shell
import stores
from tests.box import fleet as fleets
from tests.box import load, services

pytestmark = pytest.mark.soak

BROWSER = pathlib.Path(__file__).with_name('browser.py')
#: Leases in the list of one project.
MANY = 10_000


@pytest.fixture(scope='module')
def browse(leases_run, tmp_path_factory):
    """Run a flow of browser.py; return its output."""
    if not shell.pid_of('horizon'):
        pytest.skip('there is no dashboard: "python3 tools/box up --horizon"')
    for program in ('chromium', 'chromedriver'):
        if not shutil.which(program):
            pytest.skip(f'{program} is not installed: "apt-get install '
                        'chromium chromium-driver"')
    folder = pathlib.Path(os.environ.get('DASHBOARD_SCREENSHOTS')
                          or tmp_path_factory.mktemp('screenshots'))
    folder.mkdir(parents=True, exist_ok=True)

    def run(flow, argument='', *steps, user=''):
        # A step is done while the flow waits for a line of input.
        with (open(folder / f'{flow}.log', 'w+') as log, subprocess.Popen(
                [dashboard.VENV / 'bin/python', BROWSER, flow,
                 f'http://{layout.CONTROL}:{dashboard.PORT}', folder,
                 argument, user], text=True, bufsize=1, stdin=subprocess.PIPE,
                stdout=log, stderr=subprocess.STDOUT) as process):
            for number, step in enumerate(steps, 1):
                services.wait_until(
                    lambda number=number: process.poll() is not None
                    or pathlib.Path(log.name).read_text().count(
                        'waiting\n') == number, 180, f'step {number}')
                if process.poll() is None:
                    step()
                    process.stdin.write('\n')
            process.communicate(timeout=900)
            text = pathlib.Path(log.name).read_text()
        assert process.returncode == 0, f'{text[-4000:]}\n{folder}'
        return text
    return run


def test_lease_is_quoted_created_seen_and_cancelled(browse, no_fleet):
    browse('run-lease', f'pair-{uuid.uuid4().hex[:6]}')


def test_lease_with_a_wrong_image_is_refused_with_the_reason(browse, cloud):
    image = cloud.image.create_image(
        name=f'too-big-{uuid.uuid4().hex[:6]}', disk_format='raw',
        container_format='bare', visibility='public', min_ram=65536,
        data=b'nothing')
    try:
        browse('refuse-image', image.name)
    finally:
        cloud.image.delete_image(image)


def test_tenant_sees_nothing_of_the_administrators_panels(browse):
    browse('see-nothing')


@pytest.fixture(scope='module')
def many_leases(cloud):
    """Many leases of the project "other" that are over."""
    project = cloud.identity.find_project('other', domain_id='default').id
    columns = stores.sql(
        'SELECT column_name FROM information_schema.columns WHERE '
        f"table_schema = '{control.LEASES}' AND table_name = 'leases' "
        "AND column_name != 'id'").split()
    values = {'uuid': 'UUID()', 'token': 'NULL', 'trust_id': 'NULL',
              'name': "CONCAT('many-', seq)",
              'state': "ELT(1 + seq % 3, 'cancelled', 'done', 'failed')",
              'reason': "IF(seq % 3 = 2, 'no host has room', '')",
              'created_at': 'created_at - INTERVAL seq SECOND',
              'project_id': f"'{project}'"}
    names = ', '.join(f'`{one}`' for one in columns)
    copied = ', '.join(values.get(one, f'`{one}`') for one in columns)
    table = f'{control.LEASES}.leases'
    stores.sql(
        f'INSERT INTO {table} ({names}) SELECT {copied} FROM (SELECT * FROM '
        f'{table} LIMIT 1) AS one JOIN {control.LEASES}.seq_1_to_{MANY}')
    these = f"WHERE project_id = '{project}' AND name LIKE 'many-%'"
    stores.sql(
        f'INSERT INTO {control.LEASES}.node_sets (lease_id, number, flavor) '
        f"SELECT id, 2, 'secondary' FROM {table} {these}")
    yield
    stores.sql(f'DELETE FROM {table} {these}')


def test_lists_of_many_leases_open_in_two_seconds(browse, many_leases):
    print(browse('list-many', '/project/secondary_leases/'))
    print(browse('list-all', '/admin/secondary_leases/'))


def test_form_and_list_are_operated_with_the_keyboard(browse, many_leases):
    browse('use-keyboard')


def test_form_keeps_its_values_while_the_service_is_away(browse, no_fleet):
    browse('lose-service', f'away-{uuid.uuid4().hex[:6]}',
           lambda: services.kill('secondary-lease-api'),
           lambda: services.start('secondary-lease-api'))


@pytest.fixture
def stranger(cloud):
    """A new user with a new project, which has no lease."""
    name = f'stranger-{uuid.uuid4().hex[:6]}'
    project = cloud.identity.create_project(name=name, domain_id='default')
    user = cloud.identity.create_user(
        name=name, password=layout.SECRET, domain_id='default',
        default_project_id=project.id)
    cloud.identity.assign_project_role_to_user(
        project, user, cloud.identity.find_role('member'))
    yield user
    cloud.identity.delete_user(user)
    cloud.identity.delete_project(project)


def test_stranger_sees_no_lease_and_a_lost_session_is_named(
        browse, cloud, stranger):
    project = cloud.identity.find_project('demo', domain_id='default').id
    lease = stores.sql(
        f'SELECT uuid FROM {control.LEASES}.leases WHERE project_id = '
        f"'{project}' LIMIT 1").split()[-1]

    def revoke_tokens():
        for enabled in (False, True):
            cloud.identity.update_user(stranger, is_enabled=enabled)
        # The service remembers tokens that it has verified.
        services.kill('secondary-lease-api')
        services.start('secondary-lease-api')

    browse('lose-right', lease, revoke_tokens, user=stranger.name)


def test_violation_and_the_operation_after_it_are_seen(
        browse, cloud, owner, no_fleet):
    server = owner.compute.create_server(
        name='test-busy', flavor_id=owner.compute.find_flavor('secondary').id,
        image_id=owner.image.find_image('worker-cpu').id, networks='none')
    try:
        services.wait_until(
            lambda: cloud.compute.get_server(server).status == 'ACTIVE', 120,
            'the secondary runs')
        host = cloud.compute.get_server(server).compute_host
        with contextlib.ExitStack() as stack:
            browse('watch-violation', host, lambda: stack.enter_context(
                load.burner(host, 90)))
    finally:
        fleets.remove_leftovers(cloud)
