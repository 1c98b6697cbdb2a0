# SPDX-License-Identifier: Apache-2.0

"""Dedicated CPUs of primaries that Nova itself has described."""

import dataclasses
import unittest
from xml.etree import ElementTree

import hypothesis
from hypothesis import strategies as st

from secondary_scheduler.agent import (
    controllers,
    dedicated_cpus,
    domains,
    pins,
)
from secondary_scheduler.agent.kernel_files import format_cpus
from tests.unit.agent import fakes, nova_domains

#: Examples that write many files.
FEWER = hypothesis.settings(
    max_examples=max(300, hypothesis.settings().max_examples // 6))
#: Two cells of four CPUs, of which half are dedicated ones.
HALVES = nova_domains.Compute(
    (frozenset(range(4)), frozenset(range(4, 8))), 1,
    frozenset({0, 1, 4, 5}), frozenset({2, 3, 6, 7}))
#: One shared CPU in each of two cells.
ONES = dataclasses.replace(HALVES, shared=frozenset({0, 4}))
SHARED = dataclasses.replace(HALVES, shared=HALVES.cpus,
                             dedicated=frozenset())
LEGACY = dataclasses.replace(SHARED, legacy=True)


def own(domain):
    return pins.own_cpus(
        pins.read_pins(ElementTree.fromstring(domain.xml)), ())


def has_cell_of_one(compute):
    """Return whether guests may float over a single CPU."""
    return 1 in (len(compute.shared), *(len(cpus & compute.shared)
                                        for cpus in compute.cells))


class Xml(unittest.TestCase):

    def check(self, expected, compute, *args, **kwargs):
        domain = nova_domains.make(compute, *args, **kwargs)
        self.assertEqual((set(expected),) * 2, (domain.dedicated,
                                                own(domain)), domain.xml)
        return domain

    def test_floating_instances_have_no_dedicated_cpu(self):
        for compute in (HALVES, ONES, SHARED, LEGACY):
            for specs in ({}, {'hw:mem_page_size': 'large'},
                          {'hw:numa_nodes': '2'}):
                for vcpus in (2, 4, 8):
                    if domain := nova_domains.make(compute, vcpus, specs):
                        self.assertEqual(frozenset(), own(domain))
        # Each vCPU has one CPU, over which it floats.
        domain = self.check((), ONES, 2, {'hw:numa_nodes': '2'})
        self.assertEqual(({0}, {4}), domain.vcpus)
        # An older domain looks like one with dedicated CPUs.
        self.assertEqual({0, 4}, own(nova_domains.make_older(domain)))

    def test_dedicated_instances(self):
        for policy in ('prefer', 'isolate'):
            self.check({2, 3}, HALVES, 2, {
                'hw:cpu_policy': 'dedicated', 'hw:cpu_thread_policy': policy})
        self.check({2}, HALVES, 1, {'hw:cpu_policy': 'dedicated'})
        self.check({6}, HALVES, 1, {'hw:cpu_policy': 'dedicated'},
                   pinned=frozenset({2}))
        self.check({2, 3}, HALVES, 2, {}, {'hw_cpu_policy': 'dedicated'})
        self.check({2, 3}, HALVES, 2, {'resources:PCPU': '2'})
        self.check({2, 6}, HALVES, 2, {
            'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': '2'})
        self.check({0, 1}, LEGACY, 2, {'hw:cpu_policy': 'dedicated'})
        self.check({2, 3}, HALVES, 2, {
            'hw:cpu_policy': 'dedicated', 'hw:cpu_realtime': 'yes',
            'hw:cpu_realtime_mask': '^0'})

    def test_mixed_instances(self):
        for compute in (HALVES, ONES):
            self.check({2, 3}, compute, 3, {
                'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '1-2'})
            # The emulator threads float over the CPUs of the first vCPU.
            self.check({2, 3}, compute, 3, {
                'hw:cpu_policy': 'mixed', 'hw:cpu_realtime': 'yes',
                'hw:cpu_realtime_mask': '^0'})

    def test_emulator_threads(self):
        for specs in ({'hw:cpu_policy': 'dedicated'}, {
                'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '0'}):
            for policy, expected in (('isolate', {2, 3}), ('share', {2})):
                self.check(expected, dataclasses.replace(
                    ONES, shared=frozenset({0})), len(specs), {
                        **specs, 'hw:emulator_threads_policy': policy})

    @hypothesis.given(nova_domains.computes(), nova_domains.instances())
    def test_dedicated_cpus_are_those_that_nova_has_counted(self, compute,
                                                            instance):
        domain = nova_domains.make(compute, *instance)
        hypothesis.assume(domain is not None)
        self.assertEqual(domain.dedicated, own(domain), domain.xml)
        older = own(nova_domains.make_older(domain))
        self.assertLessEqual(domain.dedicated, older)
        if not has_cell_of_one(compute):
            self.assertEqual(domain.dedicated, older)


class Hosts(unittest.TestCase):
    """Hosts of files, before and after the first secondary."""

    def start(self, compute):
        self.compute = compute
        self.host = fakes.Host(self, 2)
        self.host.write('cgroup/all/cpuset.cpus.effective',
                        format_cpus(compute.cpus))
        hierarchy = self.host.hierarchy()
        self.dedicated = dedicated_cpus.DedicatedCpus(
            hierarchy, self.host.store, controllers.Controllers(
                hierarchy, self.host.store),
            mask_of=lambda thread: compute.cpus)
        self.known = domains.Domains(
            self.host.libvirt.connect, self.host.store, self.host.run_dir,
            proc=self.host.proc)
        self.now = 0.0

    def add_primary(self, number, domain):
        """Start a primary with the masks that libvirt gives its threads."""
        self.host.guest(number, specs={}, vcpus=0)
        self.host.libvirt.domains[-1].xml = domain.xml
        for thread, (name, cpus) in enumerate((
                ('qemu-system-x86', domain.others),
                ('IO iothread1', domain.others), *(
                    (f'CPU {place}/KVM', cpus)
                    for place, cpus in enumerate(domain.vcpus)))):
            self.write_mask(number, thread, name, cpus)

    def write_mask(self, number, thread, name, cpus):
        self.host.write(
            f'proc/{1000 + number}/task/{thread}/status',
            f'Name:\t{name}\nCpus_allowed_list:\t{format_cpus(cpus)}\n')

    def add_secondary(self):
        """Start a secondary, to which Nova gives ``cpu_shared_set``."""
        cpus = format_cpus(self.compute.shared)
        self.host.guest(0)
        domain = self.host.libvirt.domains[-1]
        domain.xml = domain.xml.replace('<vcpu>', f'<vcpu cpuset="{cpus}">'
                                        if cpus else '<vcpu>')
        scope = 'cgroup/all' + self.host.scope('instance-00000000', 1)
        self.host.write(f'{scope}/cpuset.cpus', '')
        for name in ('vcpu0', 'vcpu1', 'emulator', 'iothread1'):
            self.host.write(f'{scope}/libvirt/{name}/cpuset.cpus', cpus)

    def usable(self):
        """Return the CPUs that the secondary, or one more, may use."""
        self.now += 11.0
        self.known.refresh()
        guests = self.known.secondaries()
        self.dedicated.find_dedicated(self.known.others(), guests, self.now)
        first = [self.dedicated.shared_cpus(one) for one in guests]
        return (first[0] if first else self.compute.shared
                or self.compute.cpus) - self.dedicated.own

    def check(self, compute, domains_of, expected):
        """Check the CPUs before and after the first secondary."""
        self.start(compute)
        pinned: frozenset[int] = frozenset()
        for number, arguments in enumerate(domains_of, 1):
            domain = nova_domains.make(
                compute, *arguments, pinned=pinned,
                name=f'instance-{number:08x}')
            pinned |= domain.dedicated
            self.add_primary(number, domain)
        self.assertEqual(set(expected), self.usable())
        self.add_secondary()
        self.assertEqual(set(expected), self.usable())

    def test_huge_pages(self):
        for vcpus in (1, 3, 4):
            self.check(SHARED, [(vcpus, {'hw:mem_page_size': 'large'})],
                       range(8))

    def test_numa_nodes(self):
        for vcpus in (2, 4, 8):
            self.check(SHARED, [(vcpus, {'hw:numa_nodes': '2'})], range(8))
        self.check(ONES, [(2, {'hw:numa_nodes': '2'})], {0, 4})

    def test_floating_primaries_as_wide_as_their_set(self):
        for compute in (HALVES, ONES, LEGACY, dataclasses.replace(
                HALVES, shared=frozenset({1}))):
            self.check(compute, [(len(compute.shared), {})] * 2,
                       compute.shared)

    def test_dedicated_and_mixed(self):
        for compute in (HALVES, ONES):
            self.check(compute, [
                (2, {'hw:cpu_policy': 'dedicated'}),
                (2, {'hw:cpu_policy': 'mixed',
                     'hw:cpu_dedicated_mask': '^0'})], compute.shared)
        # Nova does not give secondaries a set there.
        self.check(dataclasses.replace(HALVES, shared=frozenset()), [
            (2, {'hw:cpu_policy': 'dedicated',
                 'hw:emulator_threads_policy': 'share'})],
            HALVES.cpus - {2, 3})
        self.check(LEGACY, [(3, {'hw:cpu_policy': 'dedicated'}), (8, {})],
                   range(3, 8))

    def test_isolated_emulator_threads(self):
        self.check(dataclasses.replace(HALVES, shared=frozenset()), [
            (1, {'hw:cpu_policy': 'dedicated',
                 'hw:emulator_threads_policy': 'isolate'})],
            HALVES.cpus - {2, 3})
        self.check(LEGACY, [
            (1, {'hw:cpu_policy': 'dedicated',
                 'hw:emulator_threads_policy': 'isolate'}), (4, {})],
            range(2, 8))

    def test_guests_of_a_slice_of_one_cpu_float(self):
        self.start(dataclasses.replace(SHARED, shared=frozenset()))
        self.host.write(f'cgroup/all{self.host.slice}/cpuset.cpus.effective',
                        '3')
        domain = nova_domains.make(self.compute, 1, {},
                                   name='instance-00000001')
        one = frozenset({3})
        self.add_primary(1, dataclasses.replace(domain, vcpus=(one,),
                                                others=one))
        self.assertEqual(self.compute.cpus, self.usable())

    def test_vcpus_pinned_by_hand(self):
        self.start(SHARED)
        self.add_primary(1, nova_domains.make(
            SHARED, 4, {'hw:mem_page_size': 'large'},
            name='instance-00000001'))
        self.assertEqual(SHARED.cpus, self.usable())
        self.write_mask(1, 2, 'CPU 0/KVM', {3})
        self.assertEqual(SHARED.cpus - {3}, self.usable())
        claim, = self.dedicated.claims
        self.assertEqual(('instance-00000001', {3}, 'masks of its threads'),
                         claim)

    def test_what_the_groups_above_leave_of_a_cell_is_no_pin(self):
        """A cell of two CPUs of which one is offline, or not the slice's."""
        compute = dataclasses.replace(SHARED, shared=frozenset({2, 3, 4}))
        self.start(compute)
        self.host.write(f'cgroup/all{self.host.slice}/cpuset.cpus.effective',
                        '3-7')
        domain = nova_domains.make(compute, 2, {'hw:mem_page_size': 'large'},
                                   name='instance-00000001')
        self.assertEqual(({2, 3},) * 2, domain.vcpus)
        one = frozenset({3})
        self.add_primary(1, dataclasses.replace(domain, vcpus=(one, one),
                                                others=one))
        self.assertEqual(frozenset(), self.usable() - compute.shared)
        self.assertEqual(frozenset(), self.dedicated.own)

    @FEWER
    @hypothesis.given(
        nova_domains.computes(), st.lists(nova_domains.instances(),
                                          max_size=5), st.booleans())
    def test_secondaries_may_use_all_but_what_is_dedicated(self, compute,
                                                           instances, older):
        self.start(compute)
        pinned: frozenset[int] = frozenset()
        for number, instance in enumerate(instances, 1):
            domain = nova_domains.make(compute, *instance, pinned=pinned,
                                       name=f'instance-{number:08x}')
            if domain is not None:
                pinned |= domain.dedicated
                self.add_primary(number, nova_domains.make_older(domain)
                                 if older else domain)
        expected = (compute.shared or compute.cpus) - pinned
        for _ in range(2):      # before and after the first secondary
            found = self.usable()
            if older and has_cell_of_one(compute):
                # With vcpu_pin_set Nova lets guests float over the CPUs of
                # pinned ones, too; then such a pin is not recognised.
                if not compute.legacy:
                    self.assertLessEqual(found, expected)
            else:
                self.assertEqual(expected, found)
            self.add_secondary()
