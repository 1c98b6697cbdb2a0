# SPDX-License-Identifier: Apache-2.0

"""A host with dedicated CPUs only: secondaries keep off those of primaries.

Nova gives a secondary no CPU set there.  An observer reads the masks of all
of its threads, from outside, some ten times a second.
"""

import contextlib
import threading
import time

from openstack import exceptions
import pytest

import layout
from secondary_scheduler.cmd import providers
from tests.box import cpus, machine, services
from tests.box import fleet as fleets
from tests.box.boots import migrate, wait_status
from tests.box.primaries import boot_primary, delete, wait_active
from tests.box.services import agent_status, wait_until

FLAVOR = 'test-dedicated'
#: Seconds between two looks, and for how many a thread may be allowed to run
#: on a dedicated CPU: libvirt makes a guest's groups, and the agent is told.
#: On a host of the box, with a third of a CPU, that takes seconds.
LOOK_S, LATE_S = 0.05, 5.0


class Masks(threading.Thread):
    """Watch of the time for which threads of a domain may run on some CPUs.

    ``longest`` is the longest such time since ``watch``, in seconds in which
    the machine ran.
    """

    def __init__(self, hosts, name):
        super().__init__(daemon=True, name='masks')
        self._hosts, self._name = hosts, name
        self._ended = threading.Event()
        self._cpus = frozenset()
        self._since = {}
        self.longest, self.looks = 0.0, 0

    def watch(self, *wrong):
        """Watch out for these CPUs from now on."""
        self._cpus, self._since = frozenset(wrong), {}
        self.longest = 0.0

    def masks(self, host):
        """Return the CPUs that each thread of the domain may run on."""
        return cpus.read_masks(host, self._name)

    def run(self):
        while not self._ended.wait(LOOK_S):
            now, wrong = machine.clock(), self._cpus
            those = {(host, thread) for host in self._hosts
                     for thread, mask in self.masks(host).items()
                     if mask & wrong}
            self._since = {key: self._since.get(key, now) for key in those}
            self.longest = max([self.longest, *(
                now - since for since in self._since.values())])
            self.looks += 1

    def stop(self):
        self._ended.set()
        self.join()


@pytest.fixture(scope='module')
def host(cloud, hosts, empty_cloud):
    """A host that has two CPUs, and one of them for dedicated ones.

    Nova starts on no such host that has instances which float, so it has
    none meanwhile.
    """
    _, others = layout.cpus()
    (dedicated,), (name, *_) = layout.cpus()[0], hosts[1:] or [None]
    if name is None or dedicated in others:
        pytest.skip('this takes two hosts, and a machine with two CPUs')
    fleets.remove_leftovers(cloud)
    path = layout.ETC / f'hosts/{name}/nova-compute.conf'
    original = path.read_text()
    cpus.give_cpus(name, {*others, dedicated})
    path.write_text(f'{original}[compute]\ncpu_dedicated_set = {dedicated}\n')
    try:
        _restart_compute(cloud, name, {'PCPU'})
        yield name
    finally:
        fleets.remove_leftovers(cloud)
        path.write_text(original)
        _restart_compute(cloud, name, {'VCPU'})
        cpus.give_cpus(name, layout.host_cpus(layout.load_settings())[name])


def _restart_compute(cloud, host, expected):
    """Restart nova-compute; wait until Placement knows of its CPUs."""
    services.kill(f'nova-compute-{host}')
    began = time.time()
    services.start(f'nova-compute-{host}')
    root = next(one for one in cloud.placement.resource_providers()
                if one.name == host)

    def known():
        try:
            found = {one.resource_class for one in
                     cloud.placement.resource_provider_inventories(root)}
        except exceptions.SDKException:
            return False
        up = any(one.host == host and one.state == 'up' for one in
                 cloud.compute.services(binary='nova-compute'))
        return up and expected == found & {'PCPU', 'VCPU'}

    wait_until(known, 120, f'nova-compute of {host} has reported '
               f'{expected} since {began:.0f}', period=1)


@pytest.fixture
def dedicated(cloud, host):
    """Boot a primary with a CPU of its own, and delete it: its CPUs."""
    if not (flavor := cloud.compute.find_flavor(FLAVOR)):
        flavor = cloud.compute.create_flavor(
            name=FLAVOR, vcpus=1, ram=128, disk=1)
        cloud.compute.create_flavor_extra_specs(
            flavor, {'hw:cpu_policy': 'dedicated'})
    booted = []

    @contextlib.contextmanager
    def boot():
        uuid = boot_primary(cloud, 'test-dedicated-primary', host,
                            flavor=FLAVOR)
        booted.append(uuid)
        server = wait_active(cloud, uuid)
        masks = Masks([host], server.instance_name).masks(host)
        own = min(masks.values(), key=len)
        assert len(own) == 1, masks
        yield own
        delete(cloud, booted.pop())

    yield boot
    delete(cloud, *booted)
    cloud.compute.delete_flavor(flavor)


@pytest.fixture
def secondary(cloud, host):
    """A secondary that works, on the host."""
    wait_until(lambda: agent_status(host).get('admission'), 120,
               lambda: f'{host} is open: {agent_status(host)}')
    uuid = boot_primary(cloud, 'test-floating', host, image='worker-cpu',
                        flavor='secondary')
    try:
        yield wait_active(cloud, uuid)
    finally:
        delete(cloud, uuid)


@pytest.fixture
def masks(host, secondary):
    watching = Masks([host], secondary.instance_name)
    watching.start()
    yield watching
    watching.stop()


def test_a_secondary_never_runs_on_dedicated_cpus(
        cloud, hosts, host, dedicated, secondary, masks):
    compute, uuid = cloud.compute, secondary.id
    free = masks.masks(host)
    with dedicated() as own:
        # Without the agent it would.
        assert all(own < one for one in free.values()), (own, free)

        def keeps_off(*where):
            time.sleep(LATE_S)
            found = {one: masks.masks(one) for one in where or (host,)}
            assert any(found.values()), 'it does not run'
            for those in found.values():
                assert not any(own & one for one in those.values()), found

        wait_until(lambda: not any(own & one for one
                                   in masks.masks(host).values()),
                   10, lambda: f'it keeps off {own}: {masks.masks(host)}, '
                   f'{agent_status(host)}', period=0.05)
        masks.watch(*own)
        status = agent_status(host)
        assert status['dedicated_cpus'] == sorted(own), status
        assert not status['problems'], status
        for kind in ('HARD', 'SOFT'):
            compute.reboot_server(uuid, kind)
            time.sleep(2)
            wait_status(cloud, uuid, 'ACTIVE')
            keeps_off()
        compute.suspend_server(uuid)
        wait_status(cloud, uuid, 'SUSPENDED')
        compute.resume_server(uuid)
        wait_status(cloud, uuid, 'ACTIVE')
        keeps_off()
        away = next(one for one in hosts if one != host)
        # Elsewhere these CPUs are nobody's; it starts anew as it comes back.
        masks.watch()
        migrate(cloud, uuid, away)
        masks.watch(*own)
        migrate(cloud, uuid, host)
        keeps_off()
        # An agent that was killed finds all as it was.
        services.kill(f'secondary-agent-{host}')
        keeps_off()
        services.start(f'secondary-agent-{host}')
        time.sleep(5)
        keeps_off()
        print(f'longest time on a dedicated CPU: {masks.longest:.2f} s, in '
              f'{masks.looks} looks')
        assert masks.looks > 100
        assert masks.longest < LATE_S
    # What it had before is its again.
    wait_until(lambda: set(masks.masks(host).values())
               == set(free.values()), 30,
               lambda: f'it has all CPUs: {masks.masks(host)}')


def test_where_no_cpu_is_left_it_is_at_the_floor(
        host, dedicated, secondary):
    cpus.confine(host, secondary.instance_name, layout.cpus()[0])
    with dedicated():
        wait_until(lambda: agent_status(host).get('problems', {}).get(
            secondary.id), 20, lambda: f'it is told: {agent_status(host)}')
        status = agent_status(host)
        assert not status['admission'], status
        assert 'primaries have all of the CPUs' in status['reason'], status
        assert 'cpus' in status['floors'][secondary.id], status
    wait_until(lambda: not agent_status(host)['problems'], 30, lambda:
               f'nothing is wrong any more: {agent_status(host)}')


def test_the_upgrade_check_names_the_host(cloud, host):
    assert list(providers.Providers(
        cloud.placement).without_shared_cpus()) == [host]
