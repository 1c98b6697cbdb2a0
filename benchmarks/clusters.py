# SPDX-License-Identifier: Apache-2.0

"""Violated clusters to decide on: two generators and a reader.

``easy`` is the synthetic cluster on which Watcher's strategies have been
measured, ``tight`` one that is nearly full and known to be repairable; each
is the same for the same seed.  ``from_watcher`` reads Watcher's own model.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
import dataclasses
import itertools
import random
import typing

from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import (
    Cluster,
    Host,
    HostPolicy,
    Instance,
    InstanceState,
)

AMPLE = 10**6

#: CPUs of hosts of several generations.
SIZES = (4, 8, 16, 32, 64, 128)

#: easy: 32 CPUs, four times overbooked; 128 GiB, of which Nova keeps a little
EASY_CPUS, EASY_RATIO = 32, 4.0
EASY_MEMORY_MB, EASY_RESERVED_MB = 128 * 1024, 512
EASY_LEAST_MB = 24 * 1024
EASY_THRESHOLD = 80.0

#: tight: 64 cores and 256 GiB, not overbooked
TIGHT_CORES, TIGHT_MEMORY_MB = 64, 256 * 1024
GROUPED, GROUP = 0.10, 3
#: Draws of newcomers to a host, after which another cluster is drawn.
ATTEMPTS = 1000


def _totals(vcpus: float, memory_mb: int) -> dict[str, int]:
    return {vocabulary.VCPU: int(vcpus), vocabulary.MEMORY_MB: memory_mb,
            vocabulary.DISK_GB: AMPLE, vocabulary.SLOT: AMPLE}


def _cpu_policy(violated: bool) -> HostPolicy:
    # As many failed checks as fire the trigger at this timelimit.
    return HostPolicy(f'cpu <= {EASY_THRESHOLD:g}% for 60s', 'cpu',
                      EASY_THRESHOLD, 60, 7 if violated else 0, violated, 7)


def easy_host(name: str, vcpus: int, ratio: float, memory_mb: int,
              reserved_mb: int, violated: bool) -> Host:
    """Return a host that runs nothing but secondaries."""
    return Host(name, float(vcpus), _totals(vcpus * ratio, memory_mb),
                {vocabulary.MEMORY_MB: reserved_mb}, 0.0,
                (_cpu_policy(violated),))


def easy(hosts: int, instances: int, violated: float, seed: int,
         unequal: bool = False) -> Cluster:
    """Return hosts of which a part is above 80 % CPU, others at 20 to 70 %.

    Instances have 1 to 8 vCPUs and 2 GiB for each; ten make up a lease.  Of
    ``unequal`` hosts, with 4 to 128 CPUs, they have up to a quarter.
    """
    rng = random.Random(seed)
    cpus = [rng.choice(SIZES) if unequal else EASY_CPUS
            for _host in range(hosts)]
    hot = set(rng.sample(range(hosts), round(hosts * violated)))
    order = rng.sample(range(instances), instances)
    made: dict[str, Host] = {}
    guests: dict[str, Instance] = {}
    for number in range(hosts):
        name = f'host-{number:05}'
        memory_mb = max(EASY_LEAST_MB,
                        EASY_MEMORY_MB // EASY_CPUS * cpus[number])
        made[name] = easy_host(name, cpus[number], EASY_RATIO, memory_mb,
                               EASY_RESERVED_MB, number in hot)
        mine = order[number * instances // hosts:
                     (number + 1) * instances // hosts]
        use = rng.uniform(82, 97) if number in hot else rng.uniform(20, 70)
        sizes = _easy_sizes(rng, len(mine), use, cpus[number], memory_mb)
        for one, vcpus, cpu in zip(mine, sizes, _spread(
                rng, use, sizes, cpus[number]), strict=True):
            uuid = f'instance-{one:06}'
            guests[uuid] = Instance(
                uuid,
                f'lease-{one // 10:05}',
                name,
                InstanceState.ACTIVE,
                vcpus,
                2048 * vcpus,
                20,
                priority=1 + one // 10 % 10,
                cpu=cpu * cpus[number] / 100,
            )
    return Cluster(made, guests)


def _easy_sizes(rng: random.Random, count: int, use: float, cpus: int,
                memory_mb: int) -> list[int]:
    """Draw vCPUs that fit into a host's memory and can use its CPU so far."""
    while True:
        sizes = [rng.randint(1, cpus // 4) for _one in range(count)]
        if (2048 * sum(sizes) <= memory_mb - EASY_RESERVED_MB
                and sum(sizes) >= 1.02 * use / 100 * cpus):
            return sizes


def _spread(rng: random.Random, use: float, sizes: list[int],
            cpus: int) -> list[float]:
    """Share a host's use out among instances, none above its own vCPUs.

    In percent of the host.
    """
    most = [100.0 * size / cpus for size in sizes]
    weights = [rng.uniform(0.3, 1.0) * one for one in most]
    while True:
        factor = use / sum(weights)
        if all(factor * one <= top + 1e-9
               for one, top in zip(weights, most, strict=True)):
            return [factor * one for one in weights]
        weights = [min(factor * one, top)
                   for one, top in zip(weights, most, strict=True)]


def tight(hosts: int, instances: int, violated: float, seed: int,
          unequal: bool = False) -> tuple[Cluster, dict[str, str]]:
    """Return a cluster that is nearly full, and a repair of it.

    Memory is allocated to 85 % and CPU to 80 %, unevenly; one instance in
    ten is in an anti-affinity group of three.  Then instances are moved to a
    part of the hosts until one resource is overdrawn there.  Moving them
    back is the repair: the host of each that was moved.

    Of ``unequal`` hosts, of 4 to 128 cores, the larger half is overdrawn:
    nearly all instances would overdraw both resources of a small one.
    """
    rng = random.Random(seed)
    names = [f'host-{number:05}' for number in range(hosts)]
    cores = {name: rng.choice(SIZES) if unequal else TIGHT_CORES
             for name in names}
    large = [name for name in names if 2 * cores[name] >= TIGHT_CORES]
    moved: dict[str, Instance] | None = None
    while moved is None:
        cluster = _full(rng, cores, instances)
        bad = sorted(rng.sample(large, max(1, round(hosts * violated))))
        moved = _overload(rng, cluster, bad, cores)
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for one in moved.values():
        used[str(one.host)] += Counter(cores=one.vcpus, memory=one.memory_mb)
    return Cluster({name: static_host(
        name, cores[name], TIGHT_MEMORY_MB // TIGHT_CORES * cores[name],
        used[name]) for name in names},
        moved), {
        uuid: str(cluster.instances[uuid].host) for uuid, one in moved.items()
        if one.host != cluster.instances[uuid].host}


def _full(rng: random.Random, cores: Mapping[str, int],
          instances: int) -> Cluster:
    """Return instances on hosts that are nearly full."""
    guests: list[Instance] = []
    edges = _shares(instances, cores.values())
    for (before, after), (name, most) in zip(
            itertools.pairwise(edges), cores.items(), strict=True):
        parts = _parts(rng, most * rng.uniform(0.65, 0.95), after - before)
        memory = _parts(rng, most * TIGHT_MEMORY_MB / TIGHT_CORES / 1024
                        * rng.uniform(0.75, 0.95), after - before)
        for size, gigabytes in zip(parts, memory, strict=True):
            uuid = f'instance-{len(guests):06}'
            guests.append(
                Instance(
                    uuid,
                    f'lease-{len(guests) // 10:05}',
                    name,
                    InstanceState.ACTIVE,
                    size,
                    1024 * gigabytes,
                    0,
                )
            )
    _group(rng, guests)
    return Cluster({}, {one.uuid: one for one in guests})


def _shares(instances: int, cores: Collection[int]) -> list[int]:
    """Return where the instances of each host begin; it has one at least."""
    rest, total = instances - len(cores), sum(cores)
    return [number + rest * before // total for number, before in enumerate(
        itertools.accumulate(cores, initial=0))]


def _parts(rng: random.Random, total: float, count: int) -> list[int]:
    """Return ``count`` whole numbers from 1 that sum up to ``total``."""
    sums = list(itertools.accumulate(
        (rng.uniform(0.3, 1.7) for _one in range(count)), initial=0.0))
    edges = [round(total * one / sums[-1]) for one in sums]
    return [max(1, after - before)
            for before, after in itertools.pairwise(edges)]


def _group(rng: random.Random, guests: list[Instance]) -> None:
    """Put a tenth of the instances into groups, each on hosts of its own."""
    picked = rng.sample(range(len(guests)), int(GROUPED * len(guests)))
    for number in range(0, len(picked) - GROUP + 1, GROUP):
        members = picked[number:number + GROUP]
        if len({guests[one].host for one in members}) == GROUP:
            for one in members:
                guests[one] = dataclasses.replace(
                    guests[one], anti_affinity=f'group-{number // GROUP:05}')


def _overload(rng: random.Random, cluster: Cluster, bad: list[str],
              cores: Mapping[str, int]) -> dict[str, Instance] | None:
    """Move instances to the bad hosts until one resource is overdrawn.

    None if no host is overdrawn in one resource only.
    """
    instances = dict(cluster.instances)
    donors = [uuid for uuid in sorted(instances)
              if instances[uuid].host not in bad]
    for name in bad:
        comers: list[Instance] = []
        for _attempt in range(ATTEMPTS):
            comers = _too_many(cluster.residents(name), [
                instances[uuid] for uuid in rng.sample(donors, 6)],
                cores[name])
            if comers:
                break
        else:
            return None
        for one in comers:
            instances[one.uuid] = dataclasses.replace(one, host=name)
            donors.remove(one.uuid)
    return instances


def _too_many(there: list[Instance], offered: list[Instance],
              cores: int) -> list[Instance]:
    """Return the first of some newcomers that overdraw one resource.

    None of them if they overdraw both at once, or belong apart.
    """
    for count in range(1, len(offered) + 1):
        crowd = [*there, *offered[:count]]
        over = ((sum(one.vcpus for one in crowd) > cores)
                + (sum(one.memory_mb for one in crowd)
                   > TIGHT_MEMORY_MB // TIGHT_CORES * cores))
        if over:
            groups = [one.anti_affinity for one in crowd if one.anti_affinity]
            apart = len(groups) == len(set(groups))
            return offered[:count] if over == 1 and apart else []
    return []


def from_watcher(model: typing.Any, cpu: Mapping[str, float]) -> Cluster:
    """Return what Watcher's model says, with CPU use by instance in percent.

    ``cpu`` is that of the instance's own vCPUs, as Watcher's metric is.
    """
    hosts, instances = {}, {}
    for node in model.get_all_compute_nodes().values():
        use = 0.0
        for one in model.get_node_instances(node):
            share = cpu[one.uuid] * one.vcpus / 100
            instances[one.uuid] = Instance(
                one.uuid, one.metadata['lease'], node.hostname,
                InstanceState(one.state), one.vcpus, one.memory, one.disk,
                one.metadata['priority'], cpu=share)
            use += share
        hosts[node.hostname] = easy_host(
            node.hostname, node.vcpus, node.vcpu_ratio, node.memory,
            node.memory_mb_reserved,
            100 * use / node.vcpus > EASY_THRESHOLD)
    return Cluster(hosts, instances)


def static_host(name: str, cores: int, memory_mb: int,
                 used: Mapping[str, int]) -> Host:
    """Return a host whose policies bound what allocations hold on it."""
    return Host(
        name, float(cores), _totals(cores, memory_mb), cpu_primary=0.0,
        policies=tuple(
            HostPolicy(f'{resource} <= {most}', resource, most, 60,
                       int(used[resource] > most), used[resource] > most)
            for resource, most in (('cores', cores), ('memory', memory_mb))))
