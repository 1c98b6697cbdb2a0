# SPDX-License-Identifier: Apache-2.0

"""Accuracy of learned durations, on operations of the box.

Action plans of one kind each, of one to three operations, one at a time on a
host as ours have them, go through Watcher's applier to Nova, on nine
secondaries, a third of which write to their memory all the time; the primaries
are calm.  What the actions note of their durations is then what estimates are
learned from (``secondary_scheduler.estimation.learning``): a third of the
operations is held out, the lines are fitted to the other two, and so on in
turn.

Run it on a box that is up; it boots its own secondaries and takes some 50
minutes:

    python3 tools/box script benchmarks/operation_durations.py
"""

import argparse
import collections
from collections.abc import Iterator
import contextlib
import json
import random
import statistics
import time
import uuid

import openstack
from watcher import objects
from watcher.applier import rpcapi
from watcher.common import context, rpc

from benchmarks import forms
import demo
import layout
import secondaries
from secondary_scheduler.estimation import learning
from secondary_scheduler.model import vocabulary
from secondary_scheduler.watcher.action_members import ACTION_PREFIX
from secondary_scheduler.watcher.history import AuditHistory
from secondary_scheduler.watcher.settings import CONF
import seed
from shell import BoxError, say

#: What is done to some, and then what brings them back.
ROUNDS = (('migrate',), ('stop', 'start'), ('shelve', 'unshelve'),
          ('suspend', 'resume'))
#: How many at a time; alone is what happens most.
CROWDS = (1, 1, 2, 3)
#: Secondaries, and how many of them a host may hold.
MEMBERS, SLOTS = 9, 4
#: What they do, each a third of them.
IMAGES = ('worker-cpu', 'worker-cpu', 'worker-dirty-24')
#: Seconds between two plans: agents see what has changed.
SETTLE_S = 2
TIMEOUT_S = 300


class Operator:
    """Has action plans carried out, and collects their durations."""

    def __init__(self, cloud, servers: list[str]) -> None:
        self.cloud, self.servers = cloud, servers
        self.context = context.make_context(is_admin=True)
        self.strategy = objects.Strategy.get_by_name(self.context,
                                                     vocabulary.STRATEGY)
        self.audit = objects.Audit(
            self.context, uuid=str(uuid.uuid4()), scope=[],
            name=f'durations-{time.time():.0f}', audit_type='ONESHOT',
            state='SUCCEEDED', goal_id=self.strategy.goal_id,
            strategy_id=self.strategy.id, auto_trigger=False, force=True,
            parameters={'request': 'drain'})
        self.audit.create()
        self.history = AuditHistory(CONF)
        self.seen: set[learning.Observed] = set()
        self.failed: collections.Counter[str] = collections.Counter()

    def hosts(self) -> dict[str, str]:
        """Return the host of each secondary."""
        return {server.id: server.compute_host for server
                in self.cloud.compute.servers(all_projects=True)
                if server.id in self.servers}

    def carry_out(self, kind: str, members: list[str]) -> None:
        """Carry out one plan and wait for its end.

        :raises BoxError: if that takes too long.
        """
        hosts, began = self.hosts(), time.time()
        last: dict[str, str] = {}
        plan = objects.ActionPlan(
            self.context, uuid=str(uuid.uuid4()), audit_id=self.audit.id,
            strategy_id=self.strategy.id, state='PENDING',
            global_efficacy=[])
        plan.create()
        for member in members:
            own, source = str(uuid.uuid4()), hosts[member]
            parameters = {'resource_id': member, 'action': own,
                          'request': 'drain'}
            if kind == 'migrate':
                held = collections.Counter(hosts.values())
                target = min((host for host in layout.host_names(
                    layout.load_settings()) if host != source),
                    key=lambda host: (held[host], host))
                if held[target] >= SLOTS:
                    continue
                hosts[member] = parameters['target'] = target
            if source:
                parameters['source'] = source
            places = {source, hosts[member]} - {None}
            objects.Action(
                self.context, uuid=own, action_plan_id=plan.id,
                action_type=ACTION_PREFIX + kind,
                parents=sorted({last[at] for at in places & last.keys()}),
                input_parameters=parameters, state='PENDING').create()
            last.update(dict.fromkeys(places, own))
        rpcapi.ApplierAPI().launch_action_plan(self.context, plan.uuid)
        while plan.state in ('PENDING', 'ONGOING'):
            time.sleep(0.5)
            plan.refresh()
            if time.time() > began + TIMEOUT_S:
                raise BoxError(f'a plan of {kind} takes too long; read '
                               '"python3 tools/box logs watcher-applier"')
        self.failed[kind] += sum(
            action.state != 'SUCCEEDED' for action in objects.Action.list(
                self.context, filters={'action_plan_id': plan.id}))
        self.seen.update(one for one in self.history.observed()
                         if one.end >= began)
        time.sleep(SETTLE_S)

    def repeat(self, kinds: tuple[str, ...], wanted: int,
               rng: random.Random) -> None:
        """Carry out plans of some kinds until there are enough of each.

        :raises BoxError: if most of them fail.
        """
        while min(map(self.count, kinds)) < wanted:
            if sum(self.failed[kind] for kind in kinds) > wanted:
                raise BoxError(f'too many have failed: {dict(self.failed)}; '
                               'read "python3 tools/box logs nova-compute"')
            members = rng.sample(self.servers, rng.choice(CROWDS))
            for kind in kinds:
                self.carry_out(kind, members)
        say(', '.join(f'{self.count(kind)} x {kind}' for kind in kinds))

    def count(self, kind: str) -> int:
        """Return how many of a kind have been seen."""
        return sum(one.job.kind == kind for one in self.seen)


@contextlib.contextmanager
def paused(cloud) -> Iterator[None]:
    """Pause what would bring the instances back itself.

    :raises BoxError: if Watcher does not let us.
    """
    api = seed.watcher(cloud)

    def become(switch: str, state: str) -> None:
        answer = api.patch(f'/audits/{switch}', json=[
            {'op': 'replace', 'path': '/state', 'value': state}])
        if not answer.ok:
            raise BoxError(f'cannot set the switch to {state}: {answer.text}')
    switches = [audit['uuid'] for audit in seed.listed(api, 'audits')
                if audit['goal_name'] == vocabulary.GOAL
                and audit['audit_type'] == 'CONTINUOUS'
                and audit['state'] == 'ONGOING']
    for switch in switches:
        become(switch, 'SUSPENDED')
    try:
        yield
    finally:
        for switch in switches:
            become(switch, 'ONGOING')


def bandwidth() -> float | None:
    """Return how fast migrations copied memory (MiB/s), as agents say."""
    found = [status['migration_mb_s'] for status in secondaries.agent_statuses(
        layout.host_names(layout.load_settings()))
        if status.get('migration_mb_s')]
    return statistics.median(found) if found else None


def table(seen: list[learning.Point], bandwidth_mb_s: float | None,
          ) -> tuple[str, dict]:
    """Return the scores as text and as values."""
    learned = learning.fit(seen, bandwidth_mb_s=bandwidth_mb_s)
    values = {}
    lines = [f"{'':10}{'count':>6}{'base s':>8}{'each s':>8}{'error':>8}"
             f"{'in bound':>10}{'bound':>7}"]
    for kind, score in learning.held_out(
            seen, bandwidth_mb_s=bandwidth_mb_s).items():
        line = learned.lines[kind]
        values[kind] = {**line._asdict(), 'median_error': score.error,
                        'coverage90': score.coverage}
        lines.append(f'{kind:10}{score.operations:6}{line.base:8.2f}'
                     f'{line.each:8.2f}{score.error:8.1%}'
                     f'{score.coverage:10.1%}{line.bound:7.2f}')
    return '\n'.join(lines), values


def main() -> None:
    """Measure, print a table and JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--each', type=int, default=60, metavar='N',
                        help='operations of each kind (default %(default)s)')
    parser.add_argument('--members', type=int, default=MEMBERS, metavar='N',
                        help='secondaries to operate on (default '
                        '%(default)s)')
    parser.add_argument('--seed', type=int, default=1,
                        help='of the choice of members (default %(default)s)')
    forms.add_quick(parser, each=1, members=3)
    options = parser.parse_args()
    CONF(['--config-file', str(layout.ETC / 'watcher/watcher-1.conf'),
          '--config-file',
          str(layout.ETC / 'secondary_scheduler/policies.conf')],
         project='watcher', default_config_files=[])
    objects.register_all()
    rpc.init(CONF)
    rng = random.Random(options.seed)
    cloud = openstack.connect()
    demo.remove(cloud)
    say('booting the secondaries')
    owner = openstack.connect(username='demo', project_name='demo')
    servers = {}
    for n in range(options.members):
        servers |= secondaries.boot(
            owner, [(f'durations-{n}', 'secondary', None)],
            image=IMAGES[n % len(IMAGES)])
    try:
        secondaries.wait_working(servers)
        operator = Operator(cloud, list(servers))
        # Whoever ends it early sees what it has come to.
        with seed.without_leases(cloud), paused(cloud), contextlib.suppress(
                KeyboardInterrupt):
            for kinds in ROUNDS:
                operator.repeat(kinds, options.each, rng)
    finally:
        for server in servers:
            cloud.compute.delete_server(server)
    seen, rate = learning.points(operator.seen), bandwidth()
    text, values = table(seen, rate)
    print(f'{text}\nfailed: {dict(operator.failed)}\n'
          f'migrations copied {rate or 0:.0f} MiB/s')
    print(json.dumps({'kinds': values, 'failed': operator.failed,
                      'bandwidth_mb_s': rate, 'points': seen}))


if __name__ == '__main__':
    main()
