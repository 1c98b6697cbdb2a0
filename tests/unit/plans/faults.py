# SPDX-License-Identifier: Apache-2.0

"""Valid plans by construction, and injected faults.

No decision is involved.  A scene is a random cluster with a plan that has an
operation of each sort.  It also has bait for checks that are missing: a host
without memory, a peer of a group, a blocked instance.  Each function in
``FAULTS`` injects one fault into a scene's plan.
"""

from collections import Counter
import dataclasses
import random

from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import (
    Cluster,
    Host,
    HostPolicy,
    Instance,
    InstanceState,
    Item,
)
from secondary_scheduler.plans.operations import Operation, OperationKind, Plan

LIMIT_S = 300
CLOSED = {'off': {'usable': False}, 'left': {'blocked': True},
          'ill': {'policies': (HostPolicy(
              'cpu <= 90% for 10s', 'cpu', 90, 10, 4, True),)}}


class Scene:
    """A cluster and a valid plan, made from a seed."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.hosts, self.instances, self.operations = {}, {}, {}
        self.items = {}
        self._roomy = [f'roomy{one}' for one in range(self.rng.randint(2, 4))]
        self._stage()
        for act in (self._swap, self._count, self._total, self._group,
                    self._down,
                    self._up, self._through, self._queue):
            act()
        self._bait()

    @property
    def cluster(self):
        return Cluster(self.hosts, self.instances, items=self.items)

    @property
    def plan(self):
        """The operations, in any order."""
        operations = list(self.operations.values())
        self.rng.shuffle(operations)
        return Plan(tuple(operations))

    def host(self, name, **values):
        total = {vocabulary.VCPU: 500, vocabulary.MEMORY_MB: 500_000,
                 vocabulary.DISK_GB: 5000, vocabulary.SLOT: 500}
        total.update(values.pop('limits', {}))
        self.hosts[name] = Host(name, 8.0, total, cpu_primary=10.0, **values)

    def vm(self, uuid, host, state=InstanceState.ACTIVE, **values):
        values.setdefault('lease', f'of-{uuid}')
        self.instances[uuid] = Instance(
            uuid, host=host, state=state, vcpus=self.rng.randint(1, 4),
            memory_mb=self.rng.choice([256, 512, 1024]),
            disk_gb=self.rng.randint(1, 9), **values)

    def roomy(self, besides=()):
        return self.rng.choice([one for one in self._roomy
                                if one not in besides])

    def do(self, label, kind, uuid, target=None, after=(), source=''):
        """Add an operation that begins after those of ``after``."""
        instance = self.instances[uuid]
        before = [self.operations[one] for one in after]
        start = max((one.start_s + one.duration_s for one in before),
                    default=0.0) + self.rng.choice([0.0, 0.0, 1.5])
        source = instance.host if source == '' else source
        self.operations[label] = Operation(
            len(self.operations) + 1, kind, uuid, instance.lease, source,
            target, start, self.rng.uniform(1, 9),
            tuple(sorted(one.id for one in before)),
            LIMIT_S - 1 if source == 'bad' else None)

    def change(self, label, **values):
        self.operations[label] = dataclasses.replace(
            self.operations[label], **values)

    def _stage(self):
        self.host('bad', policies=(HostPolicy(
            f'slots <= 1 for {LIMIT_S}s', 'slots', 1, LIMIT_S, 1, True),))
        for name in self._roomy:
            self.host(name)
            for number in range(self.rng.randint(0, 5)):
                self.vm(f'{name}-{number}', name)

    def _swap(self):
        """One instance leaves a full host, and another takes its slot."""
        count = self.rng.randint(1, 4)
        self.host('full', limits={vocabulary.SLOT: count})
        for number in range(count):
            self.vm(
                f'full-{number}',
                'full',
                self.rng.choice(
                    [InstanceState.ACTIVE, InstanceState.SUSPENDED]
                )
                if number
                else InstanceState.ACTIVE,
            )
        self.vm('comer', 'bad', cooling_down=True)
        self.do('out', OperationKind.MIGRATE, 'full-0', self.roomy())
        self.do('into', OperationKind.MIGRATE, 'comer', 'full', ['out'])

    def _count(self):
        """One instance is preempted, so that a policy admits another."""
        count = self.rng.randint(1, 4)
        self.host('counted', policies=(HostPolicy(
            f'slots <= {count} for 60s', 'slots', count, 60),))
        for number in range(count):
            self.vm(f'counted-{number}', 'counted')
        self.vm('next', 'bad')
        self.do(
            'leave',
            self.rng.choice([OperationKind.SUSPEND, OperationKind.STOP]),
            'counted-0',
        )
        self.do('enter', OperationKind.MIGRATE, 'next', 'counted', ['leave'])

    def _total(self):
        """One instance leaves an item, so that it admits another."""
        count = self.rng.randint(1, 4)
        for number in range(2):
            self.host(f'part-{number}')
        self.items['shared'] = Item('shared', ('part-0', 'part-1'), (
            HostPolicy(f'slots <= {count} for 60s', 'slots', count, 60),))
        for number in range(count):
            self.vm(f'part-of-{number}', f'part-{number % 2}')
        self.vm('third', 'bad')
        self.do(
            'free',
            self.rng.choice([OperationKind.SUSPEND, OperationKind.STOP]),
            'part-of-0',
        )
        self.do('fill', OperationKind.MIGRATE, 'third', 'part-1', ['free'])

    def _group(self):
        """Members of a group move one after the other."""
        self.vm('g-0', 'bad', anti_affinity='g')
        self.vm('g-1', 'full-of-g', anti_affinity='g')
        self.host('full-of-g')
        self.do('group-0', OperationKind.MIGRATE, 'g-0', self.roomy())
        self.do('group-1', OperationKind.MIGRATE, 'g-1',
                self.roomy([self.operations['group-0'].target]), ['group-0'])

    def _down(self):
        """A lease with several instances is preempted."""
        self.lease_size = self.rng.randint(2, 4)
        for number in range(self.lease_size):
            self.vm(f'down-{number}', 'bad' if not number else self.roomy(),
                    lease='down')
            self.do(
                f'down-{number}',
                self.rng.choice(
                    [
                        OperationKind.SUSPEND,
                        OperationKind.STOP,
                        OperationKind.SHELVE,
                    ]
                ),
                f'down-{number}',
            )

    def _up(self):
        """Another lease returns."""
        for number in range(self.rng.randint(2, 4)):
            state = self.rng.choice(
                [InstanceState.SUSPENDED, InstanceState.STOPPED])
            home = self.roomy()
            self.vm(f'up-{number}', home, state, lease='up', preempted=True)
            self.do(
                f'up-{number}',
                OperationKind.RESUME
                if state is InstanceState.SUSPENDED
                else OperationKind.START,
                f'up-{number}',
                home,
            )

    def _through(self):
        """One instance resumes on its host and then migrates."""
        home = self.roomy()
        self.vm('through', home, InstanceState.SUSPENDED)
        self.do('first', OperationKind.RESUME, 'through', home)
        self.do('then', OperationKind.MIGRATE, 'through', self.roomy([home]),
                ['first'])

    def _queue(self):
        """With one operation more than lanes, the last one waits.

        No other host has so many operations, not even with a fault.
        """
        self.lanes = 1 + max(Counter(
            host for one in self.operations.values()
            for host in {one.source, one.target} - {None}).values())
        self.host('narrow')
        for number in range(self.lanes):
            self.vm(f'lane-{number}', 'narrow')
            self.do(f'lane-{number}', OperationKind.SUSPEND, f'lane-{number}')
        self.vm('last', 'narrow')
        self.do('last', OperationKind.STOP, 'last', after=['lane-0'])

    def _bait(self):
        self.host('slim', limits={vocabulary.MEMORY_MB: 100})
        for name, values in CLOSED.items():
            self.host(name, **values)
        self.host('peer')
        self.vm('g-2', 'peer', self.rng.choice(
            [InstanceState.ACTIVE, InstanceState.STOPPED]), anti_affinity='g')
        self.vm('untouchable', self.roomy(), blocked=True)
        self.vm('cooling-down', self.roomy(), cooling_down=True)
        self.vm('fallen', self.roomy(), InstanceState.OTHER,
                lease='down', return_failed=True)
        for number, name in enumerate(('half', 'other half')):
            self.vm(name, self.roomy(), InstanceState.SUSPENDED, lease=name)
            self.vm(
                f'return-failed-{number}',
                self.roomy(),
                self.rng.choice(
                    [InstanceState.OTHER, InstanceState.SUSPENDED]
                ),
                lease=name,
                return_failed=True,
            )
        self.vm(
            'asleep',
            self.roomy(),
            InstanceState.SUSPENDED,
            lease='of-comer',
            cooling_down=True,
        )
        self.vm('migration-failed', self.roomy(), migration_failed=True)
        self.vm('stranger', self.roomy(), InstanceState.OTHER)

    # operations of faults

    def moves(self):
        """Return the labels of migrations without dependent operations."""
        return ['into', 'enter', 'fill', 'group-1', 'then']

    def any(self, *labels):
        return self.rng.choice(labels or list(self.operations))

    def cut(self, label, other):
        """Remove a dependency, and nothing else."""
        after = [one for one in self.operations[label].after
                 if one != self.operations[other].id]
        self.change(label, after=tuple(after))

    def early(self, label, other):
        """Begin during another operation, without a dependency."""
        self.cut(label, other)
        one = self.operations[other]
        self.change(label, start_s=one.start_s + self.rng.uniform(
            0, one.duration_s * 0.95))


def _early(label, other):
    return lambda scene: scene.early(label, other)


def _cut(label, other):
    return lambda scene: scene.cut(label, other)


def _aim(*targets):
    """Set the target of a migration to an invalid host."""
    return lambda scene: scene.change(scene.any(*scene.moves()),
                                      target=scene.any(*targets))


def _add(kind, uuid, *targets):
    return lambda scene: scene.do(
        'more', kind, uuid, scene.any(*targets) if targets else None)


def _late(scene):
    label = scene.any('into', 'enter', 'group-0', 'down-0')
    one = scene.operations[label]
    if label != 'group-0' and scene.rng.random() < 0.5:
        scene.change(label, start_s=LIMIT_S - 1 - one.duration_s
                     + scene.rng.uniform(0.01, 50))
    else:       # the operation that waits for group-0 is late as well
        scene.change(label, duration_s=LIMIT_S + scene.rng.uniform(0, 50))
        if label == 'group-0':
            scene.change('group-1', start_s=2 * LIMIT_S)


def _late_deadline(scene):
    scene.change(scene.any('into', 'enter', 'group-0', 'down-0'),
                 deadline_s=LIMIT_S - 1 + scene.rng.uniform(0.01, 50))


def _drop(name):
    def spoil(scene):
        labels = [one for one in scene.operations if one.startswith(name)]
        del scene.operations[scene.any(*labels)]
    return spoil


def _elsewhere(scene):
    label = scene.any(*(one for one in scene.operations
                        if one.startswith('up-')))
    scene.change(label, target=scene.roomy(
        [scene.operations[label].source]))


def _twice(scene):
    label = scene.any('out', 'group-0', 'down-0', 'up-0', 'leave')
    one = scene.operations[label]
    kind = scene.any(OperationKind.SUSPEND, OperationKind.STOP,
                     OperationKind.RESUME, OperationKind.MIGRATE)
    scene.operations['more'] = dataclasses.replace(
        one, id=900, kind=kind, start_s=one.start_s + scene.rng.choice(
            [0.0, one.duration_s / 2, one.duration_s + 1]),
        target={OperationKind.RESUME: one.source,
                OperationKind.MIGRATE: 'full-of-g'}.get(kind),
        deadline_s=None)


def _field(name, *values):
    return lambda scene: scene.change(scene.any(), **{
        name: scene.any(*values)})


def _same_id(scene):
    one, other = scene.rng.sample(list(scene.operations), 2)
    scene.change(one, id=scene.operations[other].id)


def _cycle(scene):
    label, other = scene.any(('into', 'out'), ('enter', 'leave'),
                             ('group-1', 'group-0'), ('then', 'first'))
    scene.change(other, after=(scene.operations[label].id,))


def _too_soon(scene):
    label, other = scene.any(('into', 'out'), ('enter', 'leave'),
                             ('group-1', 'group-0'), ('then', 'first'))
    one = scene.operations[other]
    scene.change(label, start_s=one.start_s + scene.rng.uniform(
        0, one.duration_s * 0.99))


def _wake(*uuids):
    def spoil(scene):
        uuid = scene.any(*uuids)
        scene.do('more', OperationKind.RESUME,
                 uuid, scene.instances[uuid].host)
    return spoil


def _both(scene):
    number = scene.any(*range(scene.lease_size))
    scene.vm('again', scene.roomy(), InstanceState.SUSPENDED, lease='down')
    scene.do(f'again-{number}', OperationKind.RESUME, 'again',
             scene.instances['again'].host)


def _wrong_source(scene):
    scene.change(scene.any('out', 'leave', 'group-1', 'up-0'),
                 source=scene.any('bad', 'peer'), deadline_s=None)


def _wrong_lease(scene):
    scene.change(scene.any(), lease=scene.any('none', 'of-migration-failed'))


def _no_time(scene):
    scene.change(scene.any(), **scene.any(
        {'start_s': -1.0}, {'start_s': float('nan')}, {'duration_s': 0.0},
        {'duration_s': float('inf')}, {'duration_s': float('nan')}))


def _useless_down(scene):
    label = scene.any('leave', 'down-0', 'down-1')
    scene.change(label, target=scene.any('slim', 'bad', 'peer'))


#: Faults by name.
FAULTS = {
    'slot at one instant': _early('into', 'out'),
    'policy at one instant': _early('enter', 'leave'),
    'shared policy at one instant': _early('fill', 'free'),
    'memory': _aim('slim'),
    'no free slot': _add(OperationKind.MIGRATE, 'movable', 'full'),
    'policy has no room': _add(OperationKind.MIGRATE, 'movable', 'counted'),
    'shared policy has no room': _add(
        OperationKind.MIGRATE, 'movable', 'part-0', 'part-1'
    ),
    'anti-affinity': lambda scene: scene.change(
        scene.any('group-0', 'group-1'), target='peer'
    ),
    'group moves at once': _early('group-1', 'group-0'),
    'missed deadline': _late,
    'deadline beyond the time limit': _late_deadline,
    'half a lease goes down': _drop('down-'),
    'half a lease comes back': _drop('up-'),
    'half a lease cannot come back': _wake('half', 'other half'),
    'lease goes down and comes back': _both,
    'removed edge: slot': _cut('into', 'out'),
    'removed edge: policy': _cut('enter', 'leave'),
    'removed edge: shared policy': _cut('fill', 'free'),
    'removed edge: lane': _cut('last', 'lane-0'),
    'removed edge: group': _cut('group-1', 'group-0'),
    'removed edge: instance': _cut('then', 'first'),
    'starts before what it waits for has ended': _too_soon,
    'cycle': _cycle,
    'unknown dependency': _field('after', (777,), (-1,)),
    'resume on another host': _elsewhere,
    'double operation': _twice,
    'too many at a time': _add(OperationKind.SUSPEND, 'one-more'),
    'unknown host': _aim('nowhere', 'Bad', ''),
    'unknown instance': _field('instance', 'unknown', '', 'BAD'),
    'wrong lease': _wrong_lease,
    'wrong source': _wrong_source,
    'blocked instance': _add(OperationKind.SUSPEND, 'untouchable'),
    'cooling-down instance': _add(OperationKind.SUSPEND, 'cooling-down'),
    'cooling-down instance comes up': _wake('asleep'),
    'migration that has just failed': _add(
        OperationKind.MIGRATE, 'migration-failed', 'slim', 'peer', 'full-of-g'
    ),
    'closed target': _aim(*CLOSED),
    'wrong state': lambda scene: scene.do(
        'more',
        scene.any(
            OperationKind.SUSPEND, OperationKind.STOP, OperationKind.SHELVE
        ),
        scene.any('stranger', 'up-0-not'),
    ),
    'target of a preemption': _useless_down,
    'same id': _same_id,
    'no time': _no_time,
}


def spoiled(name, seed):
    """Return a cluster, a valid plan, the same with a fault, and the lanes."""
    scene = Scene(f'{name}-{seed}')
    scene.vm('movable', scene.roomy())
    scene.vm('one-more', 'narrow')
    scene.vm('up-0-not', scene.roomy(), InstanceState.SUSPENDED)
    good = scene.plan
    FAULTS[name](scene)
    return scene.cluster, good, scene.plan, scene.lanes
