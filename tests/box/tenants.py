# SPDX-License-Identifier: Apache-2.0

"""Users of the box with leases."""

import contextlib
import datetime
import time

import openstack

from secondary_scheduler.leases.client import client
from secondary_scheduler.model import vocabulary
import seed
from tests.box import fleet as fleets
from tests.box.services import wait_until

FINAL = ('done', 'cancelled', 'rejected', 'failed')
#: Action plans that a failing lease may lead to, deletions included.
PLANS = 12


class Tenant:
    """A user of the box with some leases."""

    def __init__(self, cloud, name='demo', own=None):
        """Use the user's password, or a connection of the user."""
        self.cloud = cloud
        self.own = own or openstack.connect(username=name, project_name=name)
        self.leases = client.Client.of(self.own)
        self.made = {}

    def ask(self, nodes=None, duration=600, **terms):
        lease = self.leases.create([{
            'number': 1, 'flavor': 'secondary', 'image': 'worker-idle',
            'networks': 'none', **(nodes or {})}], duration, **terms)['id']
        self.made[lease] = time.time()
        return lease

    def ahead(self, seconds, **more):
        """Ask for a lease that begins in so many seconds."""
        start = datetime.datetime.fromtimestamp(
            int(time.time()) + seconds, datetime.UTC)
        return self.ask(start=start.strftime('%Y-%m-%dT%H:%M:%SZ'), **more)

    def show(self, lease):
        try:
            return self.leases.get(lease)
        except (*fleets.AWAY, client.LeaseError):
            return {'state': 'unknown', 'reason': ''}

    def story(self, lease):
        return '\n'.join(f"{one['time']} {one['kind']}: {one['text']}"
                         for one in self.leases.events(lease))

    def wait(self, lease, states, timeout=180):
        return wait_until(
            lambda: (found := self.show(lease))['state'] in states and found,
            timeout, lambda: f'{states}: {self.show(lease)}\n'
            + self.story(lease))

    def servers(self, lease):
        """Return the servers that say to belong to a lease."""
        return [one for one in self.own.compute.servers(details=True)
                # Nova shows no metadata of a server whose cell is away.
                if (one.metadata or {}).get(
                    vocabulary.LEASE_METADATA) == lease]

    def plans(self, lease):
        """Return the action plans that had an operation on a lease's server.
        """
        found = set()
        for action in seed.listed(seed.watcher(self.cloud), 'actions'):
            created = datetime.datetime.fromisoformat(
                action['created_at']).replace(tzinfo=datetime.UTC).timestamp()
            if created < self.made[lease] - 5:
                break
            parameters = action['input_parameters']
            if parameters.get('place', '').startswith(f'{lease}:'):
                found.add(parameters['batch'])
        return found

    def assert_over(self, lease, state, *words, timeout=180):
        """Assert how a lease ends, with which reason, and what it leaves."""
        found = self.wait(lease, FINAL, timeout)
        story = self.story(lease)
        print(f"\n{found['state']}: {found['reason']}\n{story}")
        assert found['state'] == state, story
        for word in words:
            assert word.lower() in found['reason'].lower(), found['reason']
        times = [one['time'] for one in self.leases.events(lease)]
        assert times == sorted(times), story
        assert self.servers(lease) == []
        plans = self.plans(lease)
        print(f'{len(plans)} action plans')
        assert len(plans) <= PLANS
        if state == 'failed':
            assert not found['charge']
            assert 'failed' in [one['kind']
                                for one in self.leases.events(lease)]
        return found

    def end(self):
        for lease in self.made:
            with contextlib.suppress(client.LeaseError):
                self.leases.act(lease, 'cancel')
        for lease in self.made:
            self.wait(lease, FINAL)
