# SPDX-License-Identifier: Apache-2.0

"""Valid context switches by construction, and injected faults.

No decision is involved.  A scene is a random cluster with a plan that has a
chain of operations of each sort, groups of leases and constraints.  Each
function in ``FAULTS`` injects one fault, and the checker has to find it for
the reason that is given beside it.
"""

import dataclasses
import random

from secondary_scheduler.model import vocabulary
from secondary_scheduler.model.cluster import (
    Cluster,
    Host,
    HostPolicy,
    Instance,
    InstanceState,
)
from secondary_scheduler.model.constraints import (
    Among,
    Ban,
    Fence,
    Gather,
    Lonely,
    Quarantine,
    Root,
    Split,
    Spread,
)
from secondary_scheduler.plans.operations import (
    ClaimedState,
    Operation,
    OperationKind,
    Plan,
    SwitchClaim,
)

_AFTER = {OperationKind.MIGRATE: InstanceState.ACTIVE,
          OperationKind.RESUME: InstanceState.ACTIVE,
          OperationKind.SUSPEND: InstanceState.SUSPENDED,
          OperationKind.STOP: InstanceState.STOPPED}
#: Number of lanes of each host.
LANES = 2


class SwitchScene:
    """A cluster and a valid context switch, made from a seed."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.hosts, self.instances, self.operations = {}, {}, {}
        self.constraints, self.bypassed = [], ['by']
        self.claims, self.value, self.bound = {}, 100, 80
        for act in (self._swap, self._suspend_and_resume, self._down,
                    self._up, self._crowd, self._arrivals, self._stay):
            act()

    @property
    def cluster(self):
        return Cluster(self.hosts, self.instances,
                       constraints=tuple(self.constraints))

    @property
    def plan(self):
        """The operations in any order, with true claims unless changed."""
        operations = list(self.operations.values())
        states = {}
        for one in sorted(operations, key=lambda one: one.start_s):
            states[one.instance] = ClaimedState(
                _AFTER[one.kind], one.target or one.source)
        states.update(self.claims)
        self.rng.shuffle(operations)
        return Plan(tuple(operations), switch=SwitchClaim(
            'cost', self.value, self.bound, 'within',
            {uuid: one for uuid, one in states.items() if one is not None},
            tuple(self.bypassed)))

    def host(self, name, slots=50, **values):
        self.hosts[name] = Host(name, 8.0, {
            vocabulary.VCPU: 500, vocabulary.MEMORY_MB: 500_000,
            vocabulary.DISK_GB: 5000, vocabulary.SLOT: slots}, **values)
        return name

    def vm(self, uuid, host, state=InstanceState.ACTIVE, **values):
        if host not in self.hosts:
            self.host(host)
        values.setdefault('lease', f'of-{uuid}')
        self.instances[uuid] = Instance(
            uuid, host=host, state=state, vcpus=self.rng.randint(1, 4),
            memory_mb=self.rng.choice([256, 512, 1024]),
            disk_gb=self.rng.randint(1, 9), **values)
        return uuid

    def do(self, label, kind, uuid, target=None, after=(), source=None,
           offset=0.0):
        """Add an operation that begins after those of ``after``."""
        instance = self.instances[uuid]
        before = [self.operations[one] for one in after]
        start = max((one.start_s + one.duration_s for one in before),
                    default=0.0)
        self.operations[label] = Operation(
            len(self.operations) + 1, kind, uuid, instance.lease,
            source or instance.host, target, start + offset,
            self.rng.uniform(1, 9), tuple(sorted(one.id for one in before)))
        return label

    def migrate(self, label, uuid, target, after=(), **values):
        return self.do(label, OperationKind.MIGRATE, uuid, target, after,
                       **values)

    def together(self, kind, uuids, after=()):
        """Suspend or resume all members of a lease."""
        return [self.do(f'{kind}-{uuid}', kind, uuid, None if (
            kind is OperationKind.SUSPEND) else self.instances[uuid].host,
            after, offset=float(number))
            for number, uuid in enumerate(uuids)]

    def change(self, label, **values):
        self.operations[label] = dataclasses.replace(
            self.operations[label], **values)

    def cut(self, label, *others):
        """Remove dependencies, and nothing else."""
        ids = {self.operations[one].id for one in others}
        self.change(label, after=tuple(
            one for one in self.operations[label].after if one not in ids))

    def advance(self, label, *others):
        """Begin during other operations, without dependencies on them."""
        self.cut(label, *others)
        one = self.operations[self.rng.choice(others)]
        self.change(label, start_s=one.start_s + self.rng.uniform(
            0, one.duration_s * 0.9))

    def any(self, values):
        return self.rng.choice(sorted(values))

    # chains and groups

    def _swap(self):
        """Two instances swap full hosts through a pivot, used again later."""
        for name in ('left', 'right', 'pivot'):
            self.host(name, slots=1)
        self.vm('a', 'left')
        self.vm('b', 'right')
        self.vm('c', 'home-of-c')
        self.migrate('a-out', 'a', 'pivot')
        self.migrate('b', 'b', 'left', ['a-out'])
        self.migrate('a-in', 'a', 'right', ['b'], source='pivot')
        self.migrate('c', 'c', 'pivot', ['a-in'])

    def _suspend_and_resume(self):
        """A lease lets an instance pass through its host."""
        self.size = self.rng.randint(2, 4)
        self.host('tight', slots=2, policies=(
            HostPolicy('slots <= 1 for 60s', 'slots', 1, 60),))
        members = [self.vm(f'by-{number}',
                           'tight' if not number else f'by-{number}-home',
                           lease='by') for number in range(self.size)]
        self.vm('q', 'home-of-q')
        self.host('end-of-q')
        down = self.together(OperationKind.SUSPEND, members)
        self.migrate('q-in', 'q', 'tight', down)
        self.migrate('q-out', 'q', 'end-of-q', ['q-in'], source='tight')
        self.together(OperationKind.RESUME, members, ['q-out'])

    def _down(self):
        self.members_down = [
            self.vm(f'down-{number}', f'down-home-{number % 2}', lease='down')
            for number in range(self.rng.randint(2, 4))]
        self.together(OperationKind.SUSPEND, self.members_down)

    def _up(self):
        """A lease resumes when its last member can, and one moves on."""
        self.host('full', policies=(
            HostPolicy('slots <= 1 for 60s', 'slots', 1, 60),))
        self.vm('leaver', 'full')
        self.host('end-of-leaver')
        self.migrate('leave', 'leaver', 'end-of-leaver')
        self.members_up = [
            self.vm(f'up-{number}', f'up-home-{number}' if number else 'full',
                    InstanceState.SUSPENDED, lease='up', preempted=True)
            for number in range(self.rng.randint(2, 4))]
        self.together(OperationKind.RESUME, self.members_up, ['leave'])
        self.host('end-of-up')
        self.migrate('up-on', 'up-1', 'end-of-up', ['resume-up-1'])

    def _crowd(self):
        """A group is one operation on a host, and another follows it."""
        members = [self.vm(f'crowd-{number}', 'crowd', lease='crowd')
                   for number in range(self.rng.randint(3, 5))]
        self.vm('beside', 'crowd')
        self.vm('next', 'crowd')
        self.host('end-of-next')
        self.members_crowd = self.together(OperationKind.SUSPEND, members)
        self.do('beside', OperationKind.STOP, 'beside')
        self.migrate('next', 'next', 'end-of-next', self.members_crowd)

    # constraints

    def _arrivals(self):
        """An instance leaves, and then another may arrive."""
        for name, make in (
                ('spread', lambda left, came: Spread(left | came)),
                ('lonely', lambda left, came: Lonely(came)),
                ('quiet', lambda left, came: Lonely(left)),
                ('split', lambda left, came: Split((left, came)))):
            left = self.vm(f'{name}-0', f'{name}-host')
            came = self.vm(f'{name}-1', f'{name}-home')
            self.host(f'{name}-end')
            self.migrate(f'{name}-0', left, f'{name}-end')
            self.migrate(f'{name}-1', came, f'{name}-host', [f'{name}-0'])
            self.constraints.append(make(frozenset({left}),
                                         frozenset({came})))

    def _stay(self):
        """Instances that constraints keep, and hosts that are closed."""
        for name in ('fenced', 'banned', 'fenced-end', 'outside'):
            self.host(name)
        for number in range(2):
            self.vm(f'among-{number}', f'group-{number}')
            self.vm(f'gather-{number}', 'gathered')
        self.host('group-2')
        self.vm('f', 'fenced')
        self.migrate('f', 'f', 'fenced-end')
        self.migrate('among', 'among-0', 'group-1')
        for name in ('root', 'inside', 'movable'):
            self.vm(name, f'home-of-{name}')
        self.constraints += [
            Fence(frozenset({'f'}), frozenset({'fenced', 'fenced-end'})),
            Ban(frozenset({'f', 'movable'}), frozenset({'banned'})),
            Among(frozenset({'among-0', 'among-1'}), (
                frozenset({'group-0', 'group-1'}), frozenset({'group-2'}))),
            Gather(frozenset({'gather-0', 'gather-1'})),
            Root(frozenset({'root'})),
            Quarantine(frozenset({'home-of-inside'}))]
        self.host('off', usable=False)
        self.host('left-alone', blocked=True)
        self.host('kept', slots=3, held={vocabulary.SLOT: 2})
        self.vm('resident', 'kept')


def _direct(scene):
    """Drop the bypass: the cycle starts with a migration to a full host."""
    scene.cut('c', 'a-in')
    del scene.operations['a-in']
    scene.change('a-out', target='right')


def _wrong_order(scene):
    """Leave the pivot before the other instance has gone."""
    out = scene.operations['a-out']
    scene.change('a-in', after=(out.id,), start_s=out.start_s
                 + out.duration_s)
    moved = scene.operations['a-in']
    scene.change('b', after=(moved.id,), start_s=moved.start_s
                 + moved.duration_s)
    after = scene.operations['b']
    scene.change('c', start_s=after.start_s + after.duration_s)


def _loose_chain(scene):
    """Remove what makes a part of a chain wait for the one before."""
    label = scene.any(['a-in', 'q-out', 'up-on'])
    scene.change(label, after=(), start_s=scene.operations[label].start_s
                 + scene.rng.uniform(0, 50))


def _loose_resumes(scene):
    for number in range(scene.size):
        scene.cut(f'resume-by-{number}', 'q-out')


def _half_down(scene):
    del scene.operations[f'suspend-{scene.any(scene.members_down)}']


def _half_up(scene):
    uuid = scene.any(scene.members_up)
    del scene.operations[f'resume-{uuid}']
    scene.operations.pop('up-on' if uuid == 'up-1' else '', None)


def _half_bypass(scene):
    """Forget a member of a lease that is suspended and resumed."""
    number = scene.any(range(scene.size))
    down = scene.operations.pop(f'suspend-by-{number}')
    del scene.operations[f'resume-by-{number}']
    scene.change('q-in', after=tuple(
        one for one in scene.operations['q-in'].after if one != down.id))


def _stays_down(scene):
    del scene.operations[f'resume-by-{scene.any(range(scene.size))}']


def _early_resume(scene):
    """Resume a member before the last one of its lease can."""
    uuid = scene.any(scene.members_up[1:])
    scene.change(f'resume-{uuid}', after=(), start_s=0.0)


def _waits_alone(scene):
    """Let a member wait for more than the others do."""
    uuid = scene.any(scene.members_down)
    one = scene.operations['c']
    scene.change(f'suspend-{uuid}', after=(one.id,),
                 start_s=one.start_s + one.duration_s)


def _too_close(scene):
    members = scene.any([scene.members_down, scene.members_up])
    kind = 'suspend' if members is scene.members_down else 'resume'
    number = scene.any(range(1, len(members)))
    label = f'{kind}-{members[number]}'
    scene.change(label, start_s=scene.operations[label].start_s
                 - scene.rng.uniform(0.01, 1.0))


def _too_late(scene):
    label = f'suspend-{scene.members_down[-1]}'
    scene.change(label, start_s=scene.operations[label].start_s
                 + scene.rng.uniform(3.01, 50))


def _wrong_names(scene):
    """Suspend the last member first."""
    labels = [f'suspend-{uuid}' for uuid in scene.members_down]
    starts = [scene.operations[one].start_s for one in labels]
    for label, start in zip(labels, reversed(starts), strict=True):
        scene.change(label, start_s=start)


def _claim(change):
    def spoil(scene):
        uuid = scene.any(one.instance for one in scene.operations.values())
        scene.claims[uuid] = change(scene, uuid)
    return spoil


def _other_host(scene, uuid):
    true = scene.plan.switch.states[uuid]
    return true._replace(host=scene.any(
        scene.hosts.keys() - {true.host}))


def _other_state(scene, uuid):
    true = scene.plan.switch.states[uuid]
    return true._replace(state=scene.any(set(InstanceState) - {true.state}))


def _unknown_claim(scene):
    scene.claims['unknown'] = ClaimedState(InstanceState.ACTIVE, 'left')


def _idle_claim(scene):
    """Claim another end of an instance without an operation."""
    uuid = scene.any(['root', 'inside', 'movable', 'resident'])
    scene.claims[uuid] = ClaimedState(
        InstanceState.ACTIVE, scene.any(['left', 'right', 'pivot']))


def _cost(scene):
    scene.value = scene.rng.choice(
        [float('nan'), float('inf'), -1, scene.rng.uniform(0, 79.9)])


def _bypassed(*leases):
    def spoil(scene):
        scene.bypassed = list(leases)
    return spoil


def _more(uuid, *targets):
    return lambda scene: scene.migrate('more', uuid, scene.any(targets))


def _aim(label, *targets):
    return lambda scene: scene.change(label, target=scene.any(targets))


def _closed_pivot(scene):
    name = scene.any(['off', 'left-alone'])
    scene.change('a-out', target=name)
    scene.change('a-in', source=name)


def _kept(scene):
    scene.change(scene.any(['f', 'c', 'next', 'leave']), target='kept')


def _suspend_twice(scene):
    """Suspend an instance that has migrated, without a bypass."""
    label = scene.any(['c', 'b', 'next', 'leave'])
    one = scene.operations[label]
    scene.do('more', OperationKind.SUSPEND, one.instance, None, [label],
             source=one.target)


def _at_once(name):
    return lambda scene: scene.advance(f'{name}-1', f'{name}-0')


def _unordered(name):
    return lambda scene: scene.cut(f'{name}-1', f'{name}-0')


_WAIT = 'nothing makes it wait until'

#: Faults by name, with a part of the message.
FAULTS = {
    'dropped bypass': (_direct, 'no room in CUSTOM_SECONDARY_SLOT'),
    'wrong order at the pivot': (
        _wrong_order, 'host right has no room in CUSTOM_SECONDARY_SLOT'),
    'pivot used twice at once': (
        lambda scene: scene.advance('c', 'a-in'),
        'host pivot has no room in CUSTOM_SECONDARY_SLOT'),
    'pivot used twice in another order': (
        lambda scene: scene.cut('c', 'a-in'), f'{_WAIT} host pivot has room'),
    'parts of a chain without a dependency': (
        _loose_chain, 'which precedes it on the instance'),
    'closed pivot': (_closed_pivot, ': host '),
    'suspend after a migration': (_suspend_twice, 'has several operations'),
    'resumes do not wait for the room': (
        _loose_resumes, 'which precedes it on the instance'),
    'half of a lease is suspended': (_half_down, 'is preempted'),
    'half of a lease is resumed': (_half_up, 'is brought back'),
    'half of a lease is bypassed': (_half_bypass, 'is preempted'),
    'member of a bypassed lease stays down': (
        _stays_down, 'is not suspended and resumed with lease by'),
    'bypass that is not claimed': (_bypassed(), 'has several operations'),
    'claimed bypass without operations': (
        _bypassed('by', 'of-root'), 'not suspended and resumed'),
    'room of a suspended member': (
        _more('movable', 'tight'), 'host tight has no room'),
    'resume before the last member of its lease can': (
        _early_resume, 'waits for other operations than'),
    'member that waits for more': (
        _waits_alone, 'waits for other operations than'),
    'members start too close': (_too_close, 'starts less than 1 s after'),
    'members start too late': (_too_late, 'do not start within'),
    'members start in another order': (
        _wrong_names, 'starts less than 1 s after'),
    'group is not awaited in its lane': (
        lambda scene: scene.cut('next', scene.any(scene.members_crowd)),
        'too many at a time on crowd: 3 operations'),
    'wrong host at the end': (_claim(_other_host), 'as claimed'),
    'wrong state at the end': (_claim(_other_state), 'as claimed'),
    'instance missing at the end': (
        _claim(lambda scene, uuid: None), 'the claimed end omits instance'),
    'unknown instance at the end': (_unknown_claim, 'which is unknown'),
    'idle instance elsewhere at the end': (_idle_claim, 'as claimed'),
    'cost below its bound': (_cost, 'is no cost|below its bound'),
    'room that the lease schedule keeps': (
        _kept, 'host kept has no room in CUSTOM_SECONDARY_SLOT'),
    'spread broken at an instant': (_at_once('spread'), 'breaks spread'),
    'spread broken in another order': (
        _unordered('spread'), f'{_WAIT} it cannot break spread'),
    'lonely broken at an instant': (_at_once('lonely'), 'breaks lonely'),
    'lonely broken in another order': (
        _unordered('lonely'), f'{_WAIT} it cannot break lonely'),
    'lonely broken by another': (_at_once('quiet'), 'breaks lonely'),
    'lonely broken by another in another order': (
        _unordered('quiet'), f'{_WAIT} it cannot break lonely'),
    'split broken at an instant': (_at_once('split'), 'breaks split'),
    'split broken in another order': (
        _unordered('split'), f'{_WAIT} it cannot break split'),
    'among broken': (_aim('among', 'group-2', 'outside'), 'breaks among'),
    'gather broken': (
        _more('gather-0', 'outside', 'group-2'), 'breaks gather'),
    'fence broken': (_aim('f', 'outside', 'group-2'), 'breaks fence'),
    'ban broken': (_more('movable', 'banned'), 'breaks ban'),
    'root migrated': (
        _more('root', 'outside', 'group-2'), 'forbidden by root'),
    'quarantine left': (
        _more('inside', 'outside', 'group-2'), 'forbidden by quarantine'),
    'quarantine entered': (
        _more('movable', 'home-of-inside'), 'forbidden by quarantine'),
}


def spoiled(name, seed):
    """Return a cluster, a valid plan, and the same with a fault."""
    scene = SwitchScene(f'{name}-{seed}')
    good = scene.plan
    FAULTS[name][0](scene)
    return scene.cluster, good, scene.plan
