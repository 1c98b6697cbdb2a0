# SPDX-License-Identifier: Apache-2.0

"""Choice of a host for a secondary by the predictions of agents.

Two hosts are alike but for their secondaries: one has a noisy one, the other
has two quiet ones.  Without predictions a new one goes to the first, where it
gets more CPU.  The agents predict that a sensitive one would be slow there.
"""

from collections import deque
from collections.abc import Collection, Iterator
import contextlib
import json
import time
from typing import Any

import pytest

from secondary_scheduler.cmd import providers
from secondary_scheduler.model import vocabulary
import seed
from tests.box import fleet as fleets
from tests.box import services
from tests.box.boots import boot_secondaries
from tests.box.primaries import boot_primary, delete, wait_active
from tests.box.services import agent_status, wait_until

pytestmark = pytest.mark.soak

#: Rows of the matrix are victims.
PROFILES = {
    'classes': ['noisy', 'quiet', 'sensitive'],
    'uses': {'noisy': {'cpu': 100}, 'quiet': {'cpu': 1},
             'sensitive': {'cpu': 50}},
    'time_sharing': [[2.0, 1.0, 1.5], [1.0, 1.0, 1.0], [5.0, 1.0, 1.2]]}
#: A class of secondaries that has no profile.
UNKNOWN = 'unknown'
#: Predicted slow-down that only a sensitive secondary beside a noisy one has.
SLOW = 3.0

MULTIPLIER = 'interference_weight_multiplier'
#: Headroom decides without the weigher of predictions.  Two of Nova's weighers
#: are off: hosts of the box share a disk, whose free space each measures at a
#: time of its own, and a finished build counts for some seconds.
SCHEDULER = ('[secondary_scheduler]', f'{MULTIPLIER} = 10',
             'headroom_weight_multiplier = 3', '[filter_scheduler]',
             'disk_weight_multiplier = 0', 'io_ops_weight_multiplier = 0')
#: No secondary is idle for the driver, so that guests without work count, and
#: the hosts are calm.
AGENT = ('cpu_affinity = pool', 'cpu_affinity_idle_below = 0')
NO_DRIVER = 'cpu_affinity = none'
#: A primary that takes no CPU from secondaries, and names a class.
PRIMARY_SPECS = {'quota:cpu_period': '100000', 'quota:cpu_quota': '2000',
                 vocabulary.WORKLOAD_CLASS: 'sensitive'}

#: Boots of a class that is predicted, boots of another one, and primaries,
#: which are more than the hosts.
BOOTS, FEW, PRIMARIES = 20, 3, 4
#: Seconds for which hosts are ready before each boot: longer than the longest
#: pause between two reports, and than it takes schedulers to forget a server.
READY_S, LOOK_S = 10.0, 0.5
#: Seconds after which what an agent says of itself is old.
FRESH_S = 5.0
#: Seconds after which a report counts no more, and in which Nova measures the
#: resources of a host again, with a margin.
STALE_S, MEASURED_S = 20.0, 15.0


class Pair:
    """A host with a noisy secondary, and one with two quiet ones."""

    def __init__(self, cloud: Any, owner: Any, noisy: str, quiet: str
                 ) -> None:
        self.cloud, self.owner = cloud, owner
        self.noisy, self.quiet = noisy, quiet
        #: UUIDs of the secondaries that stay on each host.
        self.guests: dict[str, set[str]] = {noisy: set(), quiet: set()}

    def add(self, host: str, workload_class: str) -> None:
        """Boot a secondary that stays on a host."""
        wait_until(lambda: agent_status(host).get('admission'), 120,
                   lambda: f'{host} is open: {agent_status(host)}')
        uuid = boot_primary(self.cloud, f'test-stays-{workload_class}', host,
                            flavor=f'test-{workload_class}')
        self.guests[host].add(uuid)
        wait_active(self.cloud, uuid)

    def is_ready(self, host: str, predicts: bool) -> bool:
        """Return whether a host is open for one more, with its guests only.

        :param predicts: whether its agent predicts a sensitive secondary
        """
        status = agent_status(host)
        if not (status.get('admission')
                and time.time() - status['time'] < FRESH_S
                and {one['uuid'] for one in status['instances']}
                == self.guests[host]):
            return False
        found = status['arrivals'].get('sensitive')
        if found is None:
            return not predicts
        return predicts and (found[0] > SLOW) == (host == self.noisy)

    def wait_ready(self, silent: Collection[str] = (),
                   away: Collection[str] = ()) -> None:
        """Wait until the hosts have been ready for some seconds.

        A burst of a primary, as its start is, may close a host for a minute.

        :param silent: hosts that predict nothing
        :param away: hosts without an agent
        """
        hosts = self.guests.keys() - set(away)
        seen: deque[bool] = deque(maxlen=round(READY_S / LOOK_S))

        def ready() -> bool:
            seen.append(all(self.is_ready(host, host not in silent)
                            for host in hosts))
            return len(seen) == seen.maxlen and all(seen)

        wait_until(ready, 300, lambda: 'hosts are ready: ' + str({
            host: {name: agent_status(host).get(name) for name in (
                'admission', 'reason', 'arrivals', 'instances', 'affinity')}
            for host in hosts}), LOOK_S)

    def place(self, workload_class: str, number: int = FEW,
              silent: Collection[str] = (), away: Collection[str] = ()
              ) -> list[str]:
        """Boot secondaries one after the other; return their hosts.

        Each is deleted before the next one.
        """
        found = []
        for _ in range(number):
            self.wait_ready(silent, away)
            uuid, = boot_secondaries(self.owner, 1, f'test-{workload_class}')
            try:
                found.append(wait_active(self.cloud, uuid).compute_host)
            finally:
                delete(self.cloud, uuid)
        return found

    def place_primaries(self) -> list[str]:
        """Boot primaries one after the other; return their hosts.

        They are deleted together.
        """
        self.wait_ready()
        uuids: list[str] = []
        try:
            for number in range(PRIMARIES):
                uuids.append(boot_primary(
                    self.cloud, f'test-primary-{number}',
                    flavor='test-primary'))
                wait_active(self.cloud, uuids[-1])
            return [self.cloud.compute.get_server(uuid).compute_host
                    for uuid in uuids]
        finally:
            delete(self.cloud, *uuids)
            time.sleep(MEASURED_S)

    @contextlib.contextmanager
    def without_weigher(self) -> Iterator[None]:
        """Switch the weigher off, by metadata of the hosts' aggregate."""
        compute = self.cloud.compute
        aggregate = compute.find_aggregate('secondary')
        compute.set_aggregate_metadata(aggregate, **{MULTIPLIER: '0'})
        try:
            yield
        finally:
            compute.set_aggregate_metadata(aggregate, **{MULTIPLIER: None})


def make_flavor(cloud, name, specs):
    """Make a flavor, also if an interrupted run has left one; return it."""
    if left := cloud.compute.find_flavor(name):
        cloud.compute.delete_flavor(left)
    flavor = cloud.compute.create_flavor(
        name=name, vcpus=1, ram=seed.MEMORY_MB, disk=seed.DISK_GB)
    cloud.compute.create_flavor_extra_specs(flavor, specs)
    return flavor


@pytest.fixture(scope='module')
def flavors(cloud):
    """A flavor for each class of secondaries, and one for primaries."""
    secondary = vocabulary.secondary_extra_specs(
        1, seed.MEMORY_MB, seed.DISK_GB, vocabulary.SecondaryMark())
    specs = {name: {**secondary, vocabulary.WORKLOAD_CLASS: name}
             for name in (*PROFILES['classes'], UNKNOWN)}
    with contextlib.ExitStack() as stack:
        for name, some in (*specs.items(), ('primary', PRIMARY_SPECS)):
            stack.callback(cloud.compute.delete_flavor,
                           make_flavor(cloud, f'test-{name}', some))
        yield


@pytest.fixture(scope='module')
def pair(cloud, owner, hosts, empty_cloud, switch, flavors,
         tmp_path_factory):
    """Two like hosts, which alone take secondaries."""
    if len(hosts) < 2:
        pytest.skip('this takes two hosts')
    # The first host of the box has a CPU for itself.
    noisy, quiet = hosts[-2:]
    profiles = tmp_path_factory.mktemp('profiles') / 'profiles.json'
    profiles.write_text(json.dumps(PROFILES))
    known = providers.Providers(cloud.placement)
    fleets.remove_leftovers(cloud)
    with contextlib.ExitStack() as stack:
        for child in list(known.children()):
            if child.host not in (noisy, quiet):
                stack.callback(known.enable, child.host, child.total)
                known.close(child.host)
        stack.enter_context(services.scheduler_options(*SCHEDULER))
        for host in (noisy, quiet):
            stack.enter_context(services.agent_options(
                host, *AGENT, f'cpu_affinity_profiles = {profiles}'))
        stack.callback(fleets.remove_leftovers, cloud)
        made = Pair(cloud, owner, noisy, quiet)
        made.add(noisy, 'noisy')
        made.add(quiet, 'quiet')
        made.add(quiet, 'quiet')
        yield made


def test_host_with_the_better_prediction_gets_every_boot(pair):
    assert pair.place('sensitive', BOOTS) == BOOTS * [pair.quiet]


def test_order_is_that_of_headroom_without_the_weigher(pair):
    """Agents that predict close no host to a scheduler that does not ask."""
    with pair.without_weigher():
        assert pair.place('sensitive') == FEW * [pair.noisy]


def test_order_is_that_of_headroom_for_an_unknown_class(pair):
    assert pair.place(UNKNOWN) == FEW * [pair.noisy]


@pytest.mark.parametrize('silent', [('quiet',), ('noisy', 'quiet')],
                         ids='-'.join)
def test_order_is_that_of_headroom_without_a_prediction(pair, silent):
    """A scheduler that asks admits to hosts whose agents predict nothing."""
    hosts = [getattr(pair, name) for name in silent]
    with contextlib.ExitStack() as stack:
        for host in hosts:
            stack.enter_context(services.agent_options(host, NO_DRIVER))
        assert pair.place('sensitive', silent=hosts) == FEW * [pair.noisy]


def test_stale_prediction_does_not_count(pair):
    """The host is closed then, as without the weigher."""
    with services.without(f'secondary-agent-{pair.quiet}', how=services.stop):
        time.sleep(STALE_S)
        found = pair.place('sensitive', away=[pair.quiet])
        with pair.without_weigher():
            assert found == pair.place('sensitive', away=[pair.quiet])
    assert found == FEW * [pair.noisy]


def test_primaries_go_where_they_go_without_the_weigher(pair):
    with pair.without_weigher():
        found = pair.place_primaries()
    # Secondaries of their class do not go there with the weigher.
    assert pair.noisy in found
    assert pair.place_primaries() == found


def test_older_scheduler_admits_while_agents_predict_nothing(pair):
    with (services.scheduler_options(
              '[filter_scheduler]',
              'available_filters = tests.box.old_reports.all_filters'),
          services.agent_options(pair.quiet, NO_DRIVER)):
        # Headroom prefers the other host, but its reports are rejected.
        assert pair.place('sensitive', silent=[pair.quiet]
                          ) == FEW * [pair.quiet]
        with services.agent_options(pair.noisy, NO_DRIVER):
            assert pair.place('sensitive', silent=[pair.noisy, pair.quiet]
                              ) == FEW * [pair.noisy]
