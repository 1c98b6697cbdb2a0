# SPDX-License-Identifier: Apache-2.0

"""Domains of primaries, as Nova's libvirt driver describes them."""

import contextlib
import dataclasses
from unittest import mock

from hypothesis import strategies as st
from nova import exception, objects
from nova.virt import driver as virt_driver
from nova.virt import hardware
from nova.virt.libvirt import config, driver
from oslo_config import fixture as config_fixture

objects.register_all()

#: Policies of a flavor.  ``%m`` stands for a mask of some of its vCPUs.
POLICIES = (
    {}, {'hw:mem_page_size': 'large'}, {'hw:mem_page_size': 'small'},
    {'hw:numa_nodes': '1'}, {'hw:numa_nodes': '2'},
    {'hw:cpu_policy': 'shared', 'hw:numa_nodes': '2'},
    {'hw:cpu_policy': 'dedicated'},
    {'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': '2'},
    {'hw:cpu_policy': 'dedicated', 'hw:mem_page_size': 'large'},
    *({'hw:cpu_policy': 'dedicated', 'hw:cpu_thread_policy': one}
      for one in ('prefer', 'isolate', 'require')),
    {'hw:cpu_policy': 'dedicated', 'hw:cpu_realtime': 'yes',
     'hw:cpu_realtime_mask': '%m'},
    {'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '%m'},
    {'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '%m',
     'hw:mem_page_size': 'large'},
    {'hw:cpu_policy': 'mixed', 'hw:cpu_realtime': '1',
     'hw:cpu_realtime_mask': '%m'},
    {'resources:PCPU': '%p'})
IMAGES = ({}, {}, {'hw_cpu_policy': 'dedicated'}, {'hw_cpu_policy': 'shared'},
          {'hw_numa_nodes': '2'}, {'hw_mem_page_size': 'large'},
          {'hw_cpu_realtime_mask': '%m'})


@dataclasses.dataclass(frozen=True)
class Compute:
    """CPUs of a compute host in Nova's configuration.

    :param legacy: whether ``vcpu_pin_set`` names ``shared``, and dedicated
        CPUs are among these
    """

    cells: tuple[frozenset[int], ...]
    threads: int
    shared: frozenset[int]
    dedicated: frozenset[int]
    legacy: bool = False

    @property
    def cpus(self):
        return frozenset().union(*self.cells)

    @contextlib.contextmanager
    def configured(self):
        """Set Nova's options."""
        fixture = config_fixture.Config(driver.CONF)
        fixture.setUp()
        try:
            for name, group, cpus in (
                    ('vcpu_pin_set', None, self.legacy and self.shared),
                    ('cpu_shared_set', 'compute',
                     not self.legacy and self.shared),
                    ('cpu_dedicated_set', 'compute', self.dedicated)):
                fixture.config(**{name: hardware.format_cpu_spec(cpus)
                                  if cpus else None}, group=group)
            yield
        finally:
            fixture.cleanUp()

    def topology(self, pinned=frozenset()):
        """Return the host for Nova's scheduler."""
        dedicated = self.shared if self.legacy else self.dedicated
        return objects.NUMATopology(cells=[objects.NUMACell(
            id=number, socket=0, cpuset=set(cpus & self.shared),
            pcpuset=set(cpus & dedicated), memory=1 << 20, cpu_usage=0,
            pinned_cpus=set(pinned & cpus), memory_usage=0,
            siblings=[some for start in range(min(cpus), max(cpus) + 1,
                                              self.threads)
                      if (some := set(range(start, start + self.threads))
                          & cpus & (self.shared | dedicated))],
            mempages=[objects.NUMAPagesTopology(
                size_kb=size, total=1 << 30, used=0, reserved=0)
                for size in (4, 2048)],
            network_metadata=objects.NetworkMetadata(
                physnets=set(), tunneled=False))
            for number, cpus in enumerate(self.cells)])


@dataclasses.dataclass(frozen=True)
class Domain:
    """XML of a domain, and what it has for itself.

    :param masks: CPUs of each vCPU, and those of all other threads
    """

    xml: str
    dedicated: frozenset[int]
    vcpus: tuple[frozenset[int], ...]
    others: frozenset[int]


def make(compute, vcpus, specs, image=None, pinned=frozenset(), name='a'):
    """Return the domain of an instance; None if Nova refuses it.

    :param pinned: dedicated CPUs of other instances
    """
    with compute.configured():
        return _make(compute, vcpus, specs, image or {}, pinned, name)


def _make(compute, vcpus, specs, image, pinned, name):
    flavor = objects.Flavor(
        name='f', flavorid='1', vcpus=vcpus, memory_mb=1024, root_gb=1,
        ephemeral_gb=0, swap=0, extra_specs=dict(specs))
    properties = objects.ImageMeta.from_dict({'properties': image})
    try:
        wanted = hardware.numa_get_constraints(flavor, properties)
    except (exception.NovaException, ValueError):
        return None
    host = compute.topology(pinned)
    found = wanted
    if wanted is not None:
        found = hardware.numa_fit_instance_to_host(host, wanted, {})
        if found is None:
            return None
    nova = driver.LibvirtDriver.__new__(driver.LibvirtDriver)
    nova._host = mock.Mock(get_online_cpus=lambda: set(compute.cpus))
    with (mock.patch.object(nova, '_has_numa_support', return_value=True),
          mock.patch.object(nova, '_get_host_numa_topology',
                            return_value=host)):
        numa = nova._get_guest_numa_config(found, flavor, properties)
    guest = config.LibvirtConfigGuest()
    guest.uuid, guest.name = '00000000-0000-4000-8000-000000000000', name
    guest.memory, guest.vcpus = 1 << 20, vcpus
    guest.virt_type, guest.os_type = 'kvm', 'hvm'
    guest.cpuset, guest.cputune = numa.cpuset, numa.cputune
    guest.numatune = numa.numatune
    guest.cpu = config.LibvirtConfigGuestCPU()
    guest.cpu.numa = numa.numaconfig
    guest.metadata.append(nova._get_guest_config_meta(
        virt_driver.InstanceDriverMetadata(
            root_type='image', root_id='x', network_info=[],
            nova_package='34.0.0', creation_time=0.0,
            instance_meta=virt_driver.NovaInstanceMeta('n', 'u'),
            owner=virt_driver.OwnerMeta('u', 'u', 'p', 'p'),
            image=virt_driver.ImageMeta(
                'x', 'n', 'bare', 'raw', 0, 0,
                properties.properties.to_dict()),
            flavor=virt_driver.FlavorMeta(
                'f', '1', 1024, vcpus, 1, 0, dict(specs), 0))))
    dedicated: set[int] = set()
    for cell in found.cells if found is not None else ():
        dedicated.update((cell.cpu_pinning or {}).values())
        dedicated.update(cell.cpuset_reserved or ())
    every = frozenset(numa.cpuset or compute.cpus)
    tune = numa.cputune
    return Domain(
        guest.to_xml(), frozenset(dedicated), tuple(
            frozenset(pin.cpuset) for pin in tune.vcpupin) if tune
        else vcpus * (every,),
        frozenset(tune.emulatorpin.cpuset) if tune else every)


def make_older(domain):
    """Return a domain as older releases write it, without extra specs."""
    xml = domain.xml
    for name in ('extraSpecs', 'image'):
        start, _, rest = xml.partition(f'<nova:{name}')
        if f'</nova:{name}>' in rest:
            xml = start + rest.partition(f'</nova:{name}>')[2]
        elif rest:
            xml = start + rest.partition('/>')[2]
    return dataclasses.replace(domain, xml=xml)


@st.composite
def computes(draw):
    """Draw a host of one or two NUMA cells."""
    count = draw(st.integers(2, 16))
    threads = draw(st.sampled_from((1, 1, 2)))
    cut = draw(st.sampled_from((count, *range(1, count))))
    cells = tuple(filter(None, (frozenset(range(cut)),
                                frozenset(range(cut, count)))))
    some = st.sets(st.integers(0, count - 1), max_size=count).map(frozenset)
    shared = draw(some)
    if draw(st.integers(0, 3)) == 0:
        return Compute(cells, threads, shared or frozenset({0}), frozenset(),
                       True)
    return Compute(cells, threads, shared, draw(some) - shared)


@st.composite
def instances(draw):
    """Draw vCPUs, extra specs and image properties of an instance."""
    vcpus = draw(st.integers(1, 4))
    mask = hardware.format_cpu_spec(draw(st.sets(
        st.integers(0, vcpus - 1), min_size=1)))
    mask = draw(st.sampled_from((mask, f'^{mask.partition(",")[0]}')))
    policy = draw(st.sampled_from(POLICIES))
    emulator = draw(st.sampled_from(({}, {}, *(
        {'hw:emulator_threads_policy': one} for one in ('isolate', 'share')))))
    pcpus = vcpus + ('isolate' in emulator.values())
    specs = {name: value.replace('%m', mask).replace('%p', str(pcpus))
             for name, value in {**policy, **emulator}.items()}
    image = {name: value.replace('%m', mask)
             for name, value in draw(st.sampled_from(IMAGES)).items()}
    return vcpus, specs, image
