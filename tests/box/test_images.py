# SPDX-License-Identifier: Apache-2.0

"""Images of ``kolla/`` on the box, built and run as the page says.

The first build takes some minutes, and needs the mirrors of packages.
"""

import time
import urllib.request

from keystoneauth1 import adapter
import pytest

import cgroups
import hosts as box_hosts
import layout
import secondaries
from secondary_scheduler.leases.client import client
import seed
import shell
from tests.box import images, load, outside, primaries, services
from tests.box.observer import vcpu_limits
from tests.box.services import agent_status, wait_until

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(bool(images.missing_programs()),
                       reason=images.missing_programs())]

AGENT, LEASE_API = 'secondary-agent', 'secondary-lease-api'
#: Percent of a host that the load asks for: more than the policy leaves.
LOAD = 85.0
#: Limit of a vCPU at the floor: quota and period in microseconds.
FLOOR = (1000, 100_000)
#: Refusals of the kernel, which have no place in a log.
REFUSALS = ('Read-only file system', 'Operation not permitted',
            'Permission denied', 'Traceback')


@pytest.fixture(scope='module')
def built():
    """Have the images of this tree."""
    outside.run_module('tests.box.images', 'unshare', '--mount')
    yield
    images.unmount()


class Container:
    """A container that the page starts; removed at the end of a block.

    :param enter: makes a command run at its place in the box.
    :param volumes: for directories of the page, those of the box.
    """

    def __init__(self, name, image, enter, volumes):
        self._name, self._image = name, image
        self._enter, self._volumes = enter, volumes

    def __enter__(self):
        self._remove()
        return self

    def __exit__(self, *exc):
        self._remove()

    def _remove(self):
        self._podman(['docker', 'rm', '--force', '--ignore', '--time', '5',
                      self._name])

    def _podman(self, command):
        return shell.run(self._enter(images.podman(
            command, self._image, self._volumes))).stdout

    def start(self):
        """Run the command of the page that has the container's name."""
        self.run_documented(self._name)

    def run_documented(self, *words):
        """Run the one command of the page that has these words."""
        return self._podman(images.documented(*words))

    def stop(self):
        """Stop it as a supervisor of containers does."""
        self._podman(['docker', 'stop', '--time', '5', self._name])

    def log(self):
        """Return what it has logged."""
        return self._podman(['docker', 'logs', self._name])

    def ask(self, *command):
        """Return the output of a command inside."""
        return self._podman(['docker', 'exec', self._name, *command])


@pytest.fixture
def host_of_guests(cloud, owner, no_fleet, switch):
    """A host with at least one of two secondaries."""
    made = secondaries.boot(owner, [
        (f'test-image-{n}', 'secondary', None) for n in (1, 2)])
    try:
        yield cloud.compute.get_server(min(made)).compute_host
    finally:
        primaries.delete(cloud, *made)


@pytest.fixture
def paused_switch(cloud, switch):
    """Have no operation of Watcher: limits are the agent's answer alone."""
    api = seed.watcher(cloud)

    def audit(state):
        answer = api.patch(f'/audits/{switch}', json=[
            {'path': '/state', 'op': 'replace', 'value': state}])
        assert answer.ok, answer.text

    audit('SUSPENDED')
    yield
    audit('ONGOING')


def quotas(host):
    """Return the quota of each vCPU on a host, None without a limit."""
    return [quota for vcpus in vcpu_limits(host).values()
            for quota, _ in vcpus.values()]


def wait_controls(host, began, agent):
    """Wait until an agent controls the guests of its host."""
    wait_until(lambda: (status := agent_status(host)) and (
        status['time'] > began and status['libvirt']
        and status['instances'] and not status['problems']), 120,
        lambda: f'it controls: {agent_status(host)} {agent.log()}')
    wait_until(lambda: None not in quotas(host)
               and min(quotas(host)) > FLOOR[0], 120,
               lambda: f'all have a share: {vcpu_limits(host)}')


def test_image_of_the_agent_limits_guests(
        built, host_of_guests, paused_switch):
    host = host_of_guests
    with services.without(f'secondary-agent-{host}'), Container(
            'secondary_agent', images.reference(AGENT),
            lambda command: images.in_host(host, command), {
                '/etc/secondary_scheduler': images.write_options_of_host(host),
                '/var/lib/secondary-agent':
                    box_hosts.directory(host) / 'agent'}) as agent:
        began = time.time()
        agent.start()
        wait_controls(host, began, agent)
        calm = quotas(host)
        machine = cgroups.path('cpu', f'hosts/{host}/machine')
        assert (machine / 'cpu.idle').read_text().strip() == '1'
        assert 'admission' in agent.ask(AGENT, 'status')
        with load.burner(host, LOAD):
            wait_until(lambda: max(quotas(host)) < min(calm),
                       layout.TIMELIMIT, lambda: 'load outside lowers each '
                       f'limit: {calm}, then {quotas(host)}', 0.1)
            busy = quotas(host)
        wait_until(lambda: min(quotas(host)) > max(busy), 60,
                   lambda: 'limits rise after the load: '
                   f'{busy}, then {quotas(host)}')
        print(f'quotas in us: calm {calm}, load {busy}, '
              f'after it {quotas(host)}')
        agent.stop()
        log = agent.log()
        assert not [one for one in REFUSALS if one in log], log
        # Its end leaves the limits; the supervisor's command lowers them.
        agent.run_documented('floor')
        assert {limit for vcpus in vcpu_limits(host).values()
                for limit in vcpus.values()} == {FLOOR}


def test_image_of_the_lease_service_answers(
        built, cloud, hosts, leases_run):
    before = {one['id'] for one in client.Client.of(cloud).leases(
        all_projects=True)}
    with services.without(LEASE_API), Container(
            'secondary_lease_api', images.reference(LEASE_API),
            images.in_control_plane, {
                '/etc/secondary_scheduler':
                    images.write_options_of_service()}) as service:
        service.start()
        wait_until(lambda: shell.port_open(8791, '127.0.0.1'), 30,
                   lambda: f'the service listens: {service.log()}')
        leases = client.Client(adapter.Adapter(
            cloud.session, service_type=client.SERVICE_TYPE,
            endpoint_override='http://127.0.0.1:8791'))
        assert {one['id'] for one in leases.leases(
            all_projects=True)} == before
        assert {one['host'] for one in leases.capacity()} == set(hosts)
        assert service.ask('id', '-u').strip() == str(images.LEASE_ID)
        with urllib.request.urlopen(
                f'http://{layout.CONTROL}:9930/metrics', timeout=10) as page:
            assert b'secondary_lease_api_requests_total' in page.read()
        log = service.log()
        assert not [one for one in REFUSALS if one in log], log
