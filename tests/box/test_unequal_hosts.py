# SPDX-License-Identifier: Apache-2.0

"""Hosts of different size: a guest moves to a larger one, and to a smaller.
"""

import contextlib
import time

import pytest

import cgroups
import layout
import secondaries
from secondary_scheduler.cmd import providers
from secondary_scheduler.model import vocabulary
import shell
from tests.box import primaries
from tests.box.services import agent_status, wait_until

NAME = 'test-unequal'
#: How much larger the larger host is, at least.
TIMES = 1.5
OPENS_S, MOVES_S = 120, 240


def tell(command: str, host: str) -> str:
    """Run one of ``secondary-scheduler host ...``."""
    return shell.run([layout.BIN / 'secondary-scheduler', 'host', command,
                      host], env=layout.credentials()).stdout


@pytest.fixture
def pair(hosts):
    """A smaller and a larger host, which alone take secondaries.

    Where ``up --sizes`` has made all alike the first host, which has a CPU
    of the machine for itself, has twice as much meanwhile.
    """
    sizes = {host: cgroups.host_cpus(host) for host in hosts}
    small = min(hosts, key=sizes.__getitem__)
    large = max(hosts, key=sizes.__getitem__)
    with contextlib.ExitStack() as stack:
        if sizes[large] < TIMES * sizes[small]:
            small, large = hosts[-1], hosts[0]
            stack.callback(cgroups.resize_host, large, sizes[large])
            cgroups.resize_host(large, 2 * sizes[large])
        for host in hosts:
            stack.callback(tell, 'enable', host)
            tell('disable', host)
        yield small, large


@pytest.fixture
def moved(cloud, owner, no_fleet, switch, pair):
    """Move a guest to the larger host and back; return what became of it."""
    small, large = pair
    began = time.time()
    placement = providers.Providers(cloud.placement)

    def allow(host):
        """Let a host take secondaries, and wait until its agent does."""
        tell('enable', host)
        wait_until(
            lambda: placement.child(host).allowed[vocabulary.SLOT]
            and agent_status(host).get('admission'), OPENS_S,
            lambda: f'{host} is open: {agent_status(host)}')

    def where():
        server = cloud.compute.get_server(uuid)
        return server.status, server.task_state, server.compute_host

    before = {host: agent_status(host)['counters']['invalidations']
              for host in pair}
    allow(small)
    (uuid,) = secondaries.boot(owner, [(NAME, 'secondary', None)])
    try:
        units = secondaries.Units([uuid])
        secondaries.wait_working({uuid: NAME})
        places = [where()[2]]
        for source, target in ((small, large), (large, small)):
            allow(target)
            units.update()
            tell('drain', source)
            wait_until(lambda target=target: where() == (
                'ACTIVE', None, target), MOVES_S,
                lambda target=target: f'it runs on {target}: {where()}')
            places.append(target)
            # The agent has seen it for some seconds, and it has worked.
            done = units.done
            wait_until(
                lambda target=target, done=done: units.update()
                or units.done > done and uuid in {
                    one['uuid'] for one in
                    agent_status(target)['instances']}, 60,
                lambda: f'it works: {units.count}')

        def operations():
            return [one for one in secondaries.operations(cloud, began)
                    if one['parameters'].get('resource_id') == uuid]

        # Nova is done before the applier has noted it.
        wait_until(lambda: all(one['state'] not in ('PENDING', 'ONGOING')
                               for one in operations()), 30,
                   lambda: f'operations have ended: {operations()}')
        yield {
            'places': places, 'lost': units.lost,
            'operations': operations(),
            'invalidations': {
                host: agent_status(host)['counters']['invalidations']
                - before[host] for host in pair}}
    finally:
        primaries.delete(cloud, uuid)


@pytest.mark.soak
def test_a_guest_moves_to_a_larger_host_and_to_a_smaller_one(pair, moved):
    small, large = pair
    assert moved['places'] == [small, large, small]
    moves = [(one['parameters']['source'], one['parameters']['target'])
             for one in moved['operations']
             if one['kind'] == 'migrate' and one['state'] == 'SUCCEEDED']
    assert moves == [(small, large), (large, small)]
    assert moved['lost'] == 0
    assert not any(moved['invalidations'].values())
