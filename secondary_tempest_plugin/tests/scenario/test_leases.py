# SPDX-License-Identifier: Apache-2.0

"""Leases whose servers run."""

import datetime
import io

from tempest import config
from tempest.lib import decorators, exceptions
from tempest.lib.common.utils import data_utils

from secondary_tempest_plugin.tests import base as lease_base
from secondary_tempest_plugin.tests.scenario import base

CONF = config.CONF

#: Seconds for which servers of a lease run.
RUN_S = 60


class LeaseScenarioTest(base.ScenarioTestCase):
    """Leases from their request to their end."""

    min_microversion = '1.3'
    needs_engine = True

    def setUp(self) -> None:
        """Wait until leases can be accepted."""
        super().setUp()
        self.wait_for_room(2)

    @decorators.attr(type='slow')
    @decorators.idempotent_id('e8a8586e-6210-4cb0-8da9-1c7133fa919a')
    def test_reservation_starts_in_time_and_ends(self) -> None:
        options = CONF.secondary_scenario
        start = lease_base.moment(options.reservation_notice)
        lease = self.create_lease(start=start, duration=RUN_S)['id']
        found = self.wait_for_state(
            lease, {'active'},
            options.reservation_notice + options.boot_timeout)
        begun = datetime.datetime.fromisoformat(start)
        for server in found['servers']:
            launched = datetime.datetime.fromisoformat(self.show_server(
                server)['OS-SRV-USG:launched_at']).replace(
                    tzinfo=datetime.UTC)
            self.assertLessEqual(
                abs((launched - begun).total_seconds()),
                options.reservation_tolerance,
                f'{server} runs since {launched}, reserved is {begun}\n'
                + self.tell_events(lease))
        self.wait_for_state(lease, {'done'},
                            RUN_S + options.return_timeout)
        self.assert_deleted(found['servers'])

    @decorators.attr(type='slow')
    @decorators.idempotent_id('ccb12ccf-2d7f-41b8-a83a-0523cc96f420')
    def test_paused_lease_continues_its_work(self) -> None:
        options = CONF.secondary_scenario
        lease = self.create_lease(nodes=[self.node_set(2)],
                                  duration=10 * RUN_S)['id']
        servers = self.wait_for_state(lease, {'active'},
                                      options.boot_timeout)['servers']
        self.assertEqual(2, len(servers))
        before = {one: self.wait_for_work(one) for one in servers}
        self.client.act_on_lease(lease, 'pause')
        for server in servers:
            self.wait_for_server(server, lambda one: (
                one['status'] == 'SUSPENDED'), options.preemption_timeout)
        self.client.act_on_lease(lease, 'unpause')
        for server in servers:
            self.wait_until_running(server)
            self.wait_for_work(server, before[server])
        self.client.act_on_lease(lease, 'cancel')
        self.wait_for_state(lease, {'cancelled'}, options.return_timeout)
        self.assert_deleted(servers)

    @decorators.attr(type=['negative', 'slow'])
    @decorators.idempotent_id('a7e9671c-eb90-4aa2-a709-75eea671f2c3')
    def test_failing_lease_reports_its_reason(self) -> None:
        options = CONF.secondary_scenario
        image = self.create_image()
        lease = self.create_lease(
            nodes=[self.node_set(image=image)], duration=RUN_S,
            start=lease_base.moment(options.reservation_notice))['id']
        self.os_primary.image_client_v2.delete_image(image)
        found = self.wait_for_state(
            lease, {'failed'},
            options.reservation_notice + options.boot_timeout)
        self.assertIn('image', found['reason'].lower())
        self.assertEqual('failed', self.client.list_events(lease)[-1]['state'])
        self.assert_deleted(found['servers'])

    def create_image(self) -> str:
        """Create an image that no server can boot; return its id."""
        images = self.os_primary.image_client_v2
        image = str(images.create_image(
            name=data_utils.rand_name('image',
                                      prefix=CONF.resource_name_prefix),
            container_format='bare', disk_format='raw',
            visibility='private')['id'])
        self.addCleanup(self.delete_image, image)
        images.store_image_file(image, io.BytesIO(bytes(1024 ** 2)))
        return image

    def delete_image(self, image: str) -> None:
        """Delete an image that may not exist any more."""
        try:
            self.os_primary.image_client_v2.delete_image(image)
        except exceptions.NotFound:
            pass

    def assert_deleted(self, servers: list[str]) -> None:
        """Assert that servers do not exist any more."""
        for server in servers:
            self.assertRaises(exceptions.NotFound, self.show_server, server)
