# SPDX-License-Identifier: Apache-2.0

"""Secondaries on hosts whose primaries get busy."""

from tempest import config
from tempest.lib import decorators

from secondary_tempest_plugin.tests.scenario import base

CONF = config.CONF

#: Suffix of the names of child providers with the capacity for secondaries.
_CHILD = '_secondary'


class LoadTest(base.ScenarioTestCase):
    """A secondary leaves a busy host and continues its work."""

    @classmethod
    def skip_checks(cls) -> None:
        """Skip the scenarios where no load is wanted."""
        super().skip_checks()
        if not CONF.secondary_scenario.load:
            raise cls.skipException('[secondary_scenario] load is false')

    def hosts(self) -> list[str]:
        """Return the hosts that may run secondaries, from Placement."""
        found = self.os_admin.placement.ResourceProvidersClient(
            ).list_resource_providers()['resource_providers']
        roots = {one['name'].removesuffix(_CHILD) for one in found
                 if one['name'].endswith(_CHILD)}
        return [one['name'] for one in found if one['uuid'] in roots]

    @decorators.attr(type='slow')
    @decorators.idempotent_id('379ee698-755e-4f1e-87e6-90c0057aca22')
    def test_secondary_leaves_a_busy_host_and_continues(self) -> None:
        secondary = self.boot_secondary()
        host = self.host_of(secondary)
        before = self.wait_for_work(secondary)
        load = self.load_host(host)
        self.wait_for_server(
            secondary, lambda one: one['status'] in base.PREEMPTED
            or one['OS-EXT-SRV-ATTR:host'] != host,
            CONF.secondary_scenario.preemption_timeout)
        for primary in load:
            self.assertEqual((host, 'ACTIVE'), self.place_of(primary))
            self.delete_server(primary)
        self.wait_until_running(secondary)
        self.wait_for_work(secondary, before)

    @decorators.attr(type='slow')
    @decorators.idempotent_id('addeb936-95d3-4855-b3b2-f09a505bd54a')
    def test_secondary_is_preempted_and_returned(self) -> None:
        hosts = self.hosts()
        if len(hosts) > CONF.secondary_scenario.max_loaded_hosts:
            raise self.skipException(
                f'{len(hosts)} hosts run secondaries, more than '
                '[secondary_scenario] max_loaded_hosts')
        secondary = self.boot_secondary()
        before = self.wait_for_work(secondary)
        load = [primary for host in hosts for primary in self.load_host(host)]
        self.wait_for_server(
            secondary, lambda one: one['status'] in base.PREEMPTED,
            CONF.secondary_scenario.preemption_timeout)
        for primary in load:
            self.assertEqual('ACTIVE', self.place_of(primary)[1])
            self.delete_server(primary)
        self.wait_until_running(secondary)
        self.wait_for_work(secondary, before)

    def place_of(self, server: str) -> tuple[str, str]:
        """Return host and status of a server."""
        found = self.show_server(server)
        return found['OS-EXT-SRV-ATTR:host'], found['status']
