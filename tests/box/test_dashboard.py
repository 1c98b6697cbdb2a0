# SPDX-License-Identifier: Apache-2.0

"""The dashboard in a real browser, on the box with ``up --horizon``."""

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

    def run(flow, argument=''):
        done = subprocess.run(
            [dashboard.VENV / 'bin/python', BROWSER, flow,
             f'http://{layout.CONTROL}:{dashboard.PORT}', folder, argument],
            capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, (
            f'{done.stdout}\n{done.stderr[-1500:]}\nscreenshots: {folder}')
        return done.stdout
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


@pytest.fixture
def many_leases(cloud):
    """Many cancelled leases of the project "other"."""
    project = cloud.identity.find_project('other', domain_id='default').id
    columns = control.sql(
        'SELECT column_name FROM information_schema.columns WHERE '
        f"table_schema = '{control.LEASES}' AND table_name = 'leases' "
        "AND column_name != 'id'").split()
    values = {'uuid': 'UUID()', 'token': 'NULL', 'trust_id': 'NULL',
              'name': "CONCAT('many-', seq)", 'state': "'cancelled'",
              'project_id': f"'{project}'"}
    names = ', '.join(f'`{one}`' for one in columns)
    copied = ', '.join(values.get(one, f'`{one}`') for one in columns)
    table = f'{control.LEASES}.leases'
    control.sql(
        f'INSERT INTO {table} ({names}) SELECT {copied} FROM (SELECT * FROM '
        f'{table} LIMIT 1) AS one JOIN seq_1_to_{MANY}')
    yield
    control.sql(f"DELETE FROM {table} WHERE project_id = '{project}' "
                "AND name LIKE 'many-%'")


def test_list_of_many_leases_opens_in_two_seconds(browse, many_leases):
    print(browse('list-many', str(MANY)))


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
        with load.burner(host, 90):
            browse('watch-violation', host)
    finally:
        fleets.remove_leftovers(cloud)
