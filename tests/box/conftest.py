# SPDX-License-Identifier: Apache-2.0

"""Fixtures of the tests on the one-machine cloud (see doc, "Testing").

They run inside the box's network namespace, as root, with the box up:
``python3 tools/box test tests/box``.  All tests share one fleet; each one
that needs a calm cloud asks for ``calm_fleet``.
"""

import contextlib
import pathlib
import signal
import sys

import openstack
import pytest

# The box's modules have bare names; this comes last, so they hide nothing.
sys.path.append(str(pathlib.Path(__file__).parents[2] / 'tools/box'))

# ruff: noqa: E402
import cgroups
import control
import demo
import layout
import seed
import shell
from tests.box import fleet as fleets
from tests.box import load, logs, machine, primaries, services, trial
from tests.box.observer import Observer
import workload


@pytest.fixture(scope='session', autouse=True)
def box():
    """Fail if the box is not up, and start all services at the end.

    Changes are undone too if the tests are interrupted.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not shell.pid_of('nova-api'):
        pytest.fail('the box is not up: python3 tools/box test tests/box',
                    pytrace=False)
    machine.watch()
    # Most tests are about secondaries that have no lease.
    with seed.without_leases(openstack.connect()):
        yield
        services.start_missing()
    machine.watch().stop()


@pytest.fixture(autouse=True)
def everything_runs(box):
    """Start what a test has killed."""
    yield
    services.start_missing()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Add to a failure what the box's services say."""
    report = yield
    if report.failed:
        report.sections.append(('the box', '\n'.join([
            *(f'{name} does not run' for name in services.missing()),
            *services.agent_remarks(), *logs.last_records()])))
    return report


@pytest.fixture(autouse=True)
def nothing_raises(request, box):
    """Assert that logs have no traceback through our code, except in a soak.
    """
    before = logs.sizes()
    yield
    if request.node.get_closest_marker('soak') is None:
        assert not logs.frames_since(before)


@pytest.fixture(scope='session')
def hosts(box):
    """Names of the compute hosts."""
    return layout.host_names(layout.load_settings())


@pytest.fixture(scope='session')
def cloud(box):
    """The cloud as its operator sees it."""
    return openstack.connect()


@pytest.fixture(scope='session')
def owner(box):
    """The cloud as the owner of the secondaries sees it."""
    return openstack.connect(username='demo', project_name='demo')


@pytest.fixture(scope='session')
def switch(cloud):
    """The audit that switches the feature on; it is left on."""
    return seed.switch(cloud)


@pytest.fixture(scope='module')
def leases_run(cloud):
    """Leases are run, as by "box up", and hosts may be claimed twice."""
    seed.run_leases(cloud, True)
    yield
    seed.run_leases(cloud, False)


@pytest.fixture(scope='module')
def quick_control_plane(hosts):
    """It has machines of its own, as it were.

    No primary is measured here, and a server runs on its second if Nova does
    not wait for the CPU that other servers boot with.
    """
    group = cgroups.path('cpu', 'control')
    cgroups.share(group, cgroups.SHARES['clients'])
    yield
    cgroups.share(group, cgroups.SHARES['control'])


@pytest.fixture(scope='session')
def empty_cloud(cloud):
    """Nothing of a demo or of an earlier run is left."""
    demo.remove(cloud)
    fleets.remove_leftovers(cloud)
    control.forget_orphans()
    for service in cloud.compute.services(binary='nova-compute'):
        if service.status == 'disabled':
            cloud.compute.enable_service(service)
    seed.demo_objects(cloud)


@pytest.fixture
def no_fleet(cloud, empty_cloud):
    """Hosts without guests: the next test that needs some boots them."""
    fleets.remove_leftovers(cloud)


@pytest.fixture(scope='session')
def rates(empty_cloud, hosts, tmp_path_factory):
    """Rates of transactions, measured before any secondary runs."""
    workload.prepare(hosts)
    return workload.calibrate(tmp_path_factory.mktemp('rates'), hosts[0])


@pytest.fixture(scope='session')
def observer(hosts):
    """The kernel's view of the hosts."""
    watching = Observer(hosts)
    watching.start()
    yield watching
    watching.stop()


@pytest.fixture(scope='session')
def fleet(cloud, owner, rates, observer, switch):
    """The secondaries; deleted at the end."""
    made = fleets.Fleet(cloud, owner, observer.hosts, observer.follow)
    try:
        made.restore()
        services.wait_until(
            lambda: all(observer.units.count.values()), 300,
            lambda: f'every guest works: {observer.units.count}')
        yield made
    finally:
        services.start_missing()
        made.delete()


@pytest.fixture(scope='module')
def nova_primary(fleet, cloud, observer):
    """A primary of Nova's beside most of the secondaries."""
    fleet.restore()
    fleet.wait_all_run(300)
    uuid = primaries.boot_primary(cloud, 'test-primary', fleet.busiest())
    try:
        server = primaries.wait_active(cloud, uuid)
        observer.primaries.add(server.instance_name)
        yield server
    finally:
        primaries.delete(cloud, uuid)


@pytest.fixture(scope='module')
def by_hand(nova_primary, observer):
    """Both domains that Nova does not know, on the same host."""
    observer.primaries |= set(primaries.BY_HAND)
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(primaries.domain_by_hand(
            nova_primary.compute_host, name)) for name in primaries.BY_HAND}


@pytest.fixture
def calm_fleet(fleet):
    """The fleet, complete and running, with room on another host.

    A test that cuts Nova off takes no place away from the next one.
    """
    control.forget_orphans()
    fleet.restore()
    fleet.wait_calm(300)
    return fleet


@pytest.fixture(scope='session')
def burst(rates, tmp_path_factory):
    """Make a host's real primary service busy: ``with burst(host): ...``."""
    def make(host):
        return load.burst(host, rates, tmp_path_factory.mktemp('burst'))
    return make


@pytest.fixture
def new_trial(fleet, observer):
    """Begin a trial: ``trial = new_trial()``."""
    return lambda: trial.Trial(fleet, observer)
