# SPDX-License-Identifier: Apache-2.0

"""One sequence of boots and deletes on Nova's own in-process test harness.

Not collected by pytest (testtools' clean-up does not work there):
``test_stock_behaviour.py`` runs it in processes of its own, as by hand::

    OS_NOVA_DISABLE_EVENTLET_PATCHING=1 PYTHONHASHSEED=0 PYTHONPATH=. \
        SEQUENCE=10 RESULT=stock.json \
        python tests/functional/nova_sequence.py Stock

Nova's API, conductor, scheduler and computes are the real ones, Placement as
well; the databases are SQLite, the hypervisors Nova's fake driver, and each
request is served to its end before the next one starts.

Hosts that weigh the same come in the order of a Python set, so runs to be
compared need the same PYTHONHASHSEED.
"""

# ruff: noqa: E402
from nova import monkey_patch

# Before anything that imports eventlet.
monkey_patch.patch()

import json
import os
import pathlib
import random
import sys
import typing
import unittest
import warnings

from keystoneauth1 import adapter, session
from nova import exception
from nova.tests import fixtures as nova_fixtures
from nova.tests.functional import integrated_helpers
from nova.virt import fake
from oslo_config import cfg
from oslo_messaging import opts as messaging_options
import sqlalchemy.exc

from secondary_scheduler.cmd import providers
from secondary_scheduler.model import vocabulary
from secondary_scheduler.nova import report_books
from tests.unit.nova import fakes

CONF = cfg.CONF

#: An image that Nova's Glance fixture knows.
IMAGE = '155d900f-4e14-4e4c-a73d-069cbf4541e6'

#: (vCPUs, memory in MiB, disk in GiB); no two hosts are alike.
SIZES = {f'node{n:02d}': (8 + 4 * (n % 7), 16384 + 3072 * n, 200 + 30 * n)
         for n in range(20)}

#: No secondary can be built here.  It is the host that primaries like best:
#: were the failures counted, the sequence would soon look different.
BROKEN = 'node19'

PRIMARIES = ((1, 512, 5), (2, 2048, 10), (4, 4096, 20), (4, 8192, 40))
SECONDARIES = ((2, 1024, 5), (4, 6144, 10), (8, 3072, 30))

#: Secondaries that fill a host, and what they may have together.
SLOTS = 2
TOTALS = {vocabulary.VCPU: 16, vocabulary.MEMORY_MB: 12288,
          vocabulary.DISK_GB: 60, vocabulary.SLOT: SLOTS}

#: Steps between two runs of nova-compute's periodic task on all hosts.
PERIOD = 8


class Host(fake.FakeDriver):
    """A hypervisor with the size that belongs to its name.

    Unlike Nova's fake one it measures free disk, as libvirt's does.
    """

    def init_host(self, host: str) -> None:
        """Take the size."""
        super().init_host(host)
        self.vcpus, self.memory_mb, self.local_gb = SIZES[host]
        self.resources = fake.Resources(
            self.vcpus, self.memory_mb, self.local_gb)
        self.host_status_base['hypervisor_type'] = 'QEMU'

    def get_available_resource(self, nodename: str) -> dict[str, typing.Any]:
        """Return what nova-compute reports."""
        self.host_status_base['disk_available_least'] = (
            self.local_gb - self.resources.local_gb_used)
        return dict(super().get_available_resource(nodename))

    def spawn(self, context: typing.Any, instance: typing.Any,
              *args: typing.Any, **kwargs: typing.Any) -> None:
        """Start a guest, or fail to."""
        if self._host == BROKEN and vocabulary.is_marked(
                instance.flavor.extra_specs):
            raise exception.NovaException('no secondary starts here')
        super().spawn(context, instance, *args, **kwargs)


class Stock(integrated_helpers.ProviderUsageBaseTestCase):
    """Nova as it is."""

    compute_driver = 'fake.SizedDriver'
    options: typing.ClassVar[dict[str, typing.Any]] = {}

    def setUp(self) -> None:
        """Start Nova, then the hosts."""
        self.stub_out('nova.virt.fake.SizedDriver', Host)
        # Each request is served to its end before its caller goes on.
        self.useFixture(nova_fixtures.SpawnIsSynchronousFixture())
        self.useFixture(nova_fixtures.CastAsCallFixture(self))
        self.flags(group='wsgi', api_paste_config=str(
            pathlib.Path(sys.prefix, 'etc/nova/api-paste.ini')))
        self.flags(host_subset_size=1, shuffle_best_same_weighed_hosts=False,
                   group='filter_scheduler', **self.options)
        self.flags(initial_cpu_allocation_ratio=4.0,
                   initial_ram_allocation_ratio=1.0,
                   initial_disk_allocation_ratio=1.0,
                   reserved_host_memory_mb=0)
        # One request at a time needs few threads; Nova's 64 a service, each
        # of which looks for work once a second, end up doing nothing else.
        pool_size = 'executor_thread_pool_size'
        CONF.register_opts(
            one for one in dict(messaging_options.list_opts())[None]
            if one.name == pool_size)
        self.flags(**{pool_size: 8})
        super().setUp()
        warnings.filterwarnings(
            'ignore', category=sqlalchemy.exc.SADeprecationWarning)
        # Nova's harness switches this weigher off; here it is as shipped.
        self.flags(build_failure_weight_multiplier=1000000.0,
                   group='filter_scheduler')
        self.flags(instances=-1, cores=-1, ram=-1, group='quota')
        for host in SIZES:
            self._start_compute(host)

    def test_sequence(self) -> None:
        """Run it and write down which hosts the primaries got."""
        chance = random.Random(int(os.environ.get('SEED', '1')))
        flavors = [self.flavor(*size) for size in PRIMARIES]
        self.prepare()
        # Hosts report failed builds with their periodic task only.
        self._run_periodics()
        alive: list[str] = []
        chosen: list[str | None] = []
        for step in range(int(os.environ.get('SEQUENCE', '10'))):
            if alive and chance.random() < 0.35:
                self.api.delete_server(
                    alive.pop(chance.randrange(len(alive))))
            else:
                server = self.boot(chance.choice(flavors))
                alive.append(server['id'])
                chosen.append(server['OS-EXT-SRV-ATTR:host'])
            self.meanwhile(step)
            if step % PERIOD == PERIOD - 1:
                self._run_periodics()
        pathlib.Path(os.environ['RESULT']).write_text(json.dumps(
            {'chosen': chosen, **self.findings()}))

    def prepare(self) -> None:
        """Do what comes before the first step."""

    def meanwhile(self, step: int) -> None:
        """Do what others do between two steps."""

    def findings(self) -> dict[str, typing.Any]:
        """Return what else is worth knowing."""
        return {}

    def flavor(self, vcpus: int, ram: int, disk: int, **more: typing.Any
               ) -> str:
        """Return the ID of a new flavor."""
        return str(self._create_flavor(
            vcpu=vcpus, memory_mb=ram, disk=disk, ephemeral=0, **more))

    def boot(self, flavor: str, **where: str) -> dict[str, typing.Any]:
        """Return a server when its build has ended."""
        server = self.api.post_server({'server': self._build_server(
            flavor_id=flavor, image_uuid=IMAGE, networks='none', **where)})
        return dict(self.api.get_server(server['id']))


class Plugin(Stock):
    """With our plug-in, and secondaries that fill every host."""

    #: As an operator writes it into nova.conf.
    options: typing.ClassVar[dict[str, typing.Any]] = {
        'available_filters': [
            'nova.scheduler.filters.all_filters',
            'secondary_scheduler.nova.filters.all_filters'],
        'enabled_filters': [
            'ComputeFilter', 'ComputeCapabilitiesFilter',
            'ImagePropertiesFilter', 'ServerGroupAntiAffinityFilter',
            'ServerGroupAffinityFilter', 'SecondaryPolicyFilter'],
        'weight_classes': ['secondary_scheduler.nova.weights.all_weighers'],
    }

    def setUp(self) -> None:
        """Have reports that no agent sent."""
        self.snapshot = report_books.ReportBooks()
        self.stub_out('secondary_scheduler.nova.report_books._books',
                      self.snapshot)
        self.stub_out('secondary_scheduler.nova.report_books.ReportBooks._listen',
                      lambda snapshot: object())
        super().setUp()
        # Without an answer in time Nova's own numbers would stand, and it is
        # not the machine's speed that is tested here.
        self.flags(policy=[fakes.POLICY], lookup_budget=30.0,
                   group='secondary_scheduler')

    def prepare(self) -> None:
        """Enable all hosts and fill them."""
        self.chance = random.Random(2)
        self.reports = 0
        self.failures = 0
        self.secondaries: dict[str, list[str]] = {h: [] for h in SIZES}
        self.secondary_flavors = [self.flavor(
            *size, extra_spec=vocabulary.secondary_extra_specs(
                *size, vocabulary.SecondaryMark())) for size in SECONDARIES]
        placement = adapter.Adapter(
            session.Session(auth=None), service_type='placement',
            endpoint_override=self.placement.fixture.endpoint,
            additional_headers={'x-auth-token': 'admin'})
        self.providers = providers.Providers(placement)
        for host in SIZES:
            child = self.providers.enable(host, TOTALS)
            self.providers._put_inventories(child, {
                name: {**one, 'reserved': 0}
                for name, one in child.inventories.items()})
        self.fill()

    def fill(self) -> None:
        """Boot secondaries until no host has room for another one."""
        for host, servers in self.secondaries.items():
            while len(servers) < SLOTS:
                server = self.boot_secondary(host)
                if server is None:
                    break
                servers.append(server)

    def boot_secondary(self, host: str) -> str | None:
        """Boot one on a host; return None if that fails."""
        self.reports += 1
        self.snapshot.book.accept(fakes.report(host, self.reports))
        server = self.boot(
            self.chance.choice(self.secondary_flavors), host=host)
        if server['status'] == 'ACTIVE':
            self.assertEqual(host, server['OS-EXT-SRV-ATTR:host'])
            return str(server['id'])
        self.assertEqual(BROKEN, host, server.get('fault'))
        self.failures += 1
        if self.chance.random() < 0.5:
            self.api.delete_server(server['id'])
        return None

    def meanwhile(self, step: int) -> None:
        """Let owners come and go."""
        if step % 5 == 0:
            self.boot_secondary(BROKEN)
        if step % PERIOD == PERIOD - 1:
            # Just before the periodic task: until then nova-compute goes on
            # to report the free disk that it measured last.
            for host in self.chance.sample(sorted(SIZES), 3):
                if self.secondaries[host]:
                    self.api.delete_server(self.secondaries[host].pop())
        elif step % PERIOD == 0:
            self.fill()

    def findings(self) -> dict[str, typing.Any]:
        """Return how full the hosts are, and the failures."""
        return {'broken': BROKEN, 'failures': self.failures,
                'secondaries': {host: len(servers) for host, servers
                                in self.secondaries.items()}}


if __name__ == '__main__':
    unittest.main()
