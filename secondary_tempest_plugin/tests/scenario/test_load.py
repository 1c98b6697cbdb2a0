# SPDX-License-Identifier: Apache-2.0

"""Secondaries on hosts whose primaries get busy."""

import typing

from tempest import config
from tempest.lib import decorators

from secondary_tempest_plugin.tests import base as lease_base
from secondary_tempest_plugin.tests.scenario import base

CONF = config.CONF


class LoadTest(base.ScenarioTestCase):
    """A secondary leaves a busy host and continues its work."""

    needs_load = True

    @decorators.attr(type='slow')
    @decorators.idempotent_id('379ee698-755e-4f1e-87e6-90c0057aca22')
    def test_secondary_leaves_a_busy_host_and_continues(self) -> None:
        secondary = self.boot_secondary()
        host = self.host_of(secondary)
        before = self.wait_for_work(secondary)
        load = self.load_host(host)
        self.wait_until_left(secondary, host)
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


class ReportTest(base.ScenarioTestCase):
    """The lease service reports throttles, violations and operations."""

    min_microversion = '1.5'
    needs_engine = True
    needs_load = True

    @classmethod
    def setup_clients(cls) -> None:
        """Make the client of an administrator."""
        super().setup_clients()
        cls.admin = cls.client_of(cls.os_admin)

    def report_of(self, server: str, host: str) -> dict[str, typing.Any]:
        """Return a server as its host reports it, empty if it does not."""
        found, = self.admin.show_capacity(host=host)['hosts']
        return next((one for one in found['secondaries']
                     if one['server_id'] == server), {})

    @decorators.attr(type='slow')
    @decorators.idempotent_id('e126e126-f82c-447e-a0e6-a008f50931fb')
    def test_throttle_and_operation_are_reported(self) -> None:
        options = CONF.secondary_scenario
        secondary = self.boot_secondary()
        host = self.host_of(secondary)
        free = lease_base.wait_until(
            lambda: self.report_of(secondary, host).get('cpu'),
            options.boot_timeout,
            lambda: f'{host} does not report {secondary}')
        load = self.load_host(host)
        seen: list[dict[str, typing.Any]] = []

        def throttled() -> bool:
            seen.append(self.report_of(secondary, host))
            limit = seen[-1].get('limit')
            return limit is not None and limit < free
        lease_base.wait_until(
            throttled, options.preemption_timeout,
            lambda: f'{secondary} used {free} %, and is not limited to '
            f'less: {seen[-5:]}')
        self.wait_until_left(secondary, host)
        for primary in load:
            self.delete_server(primary)
        self.wait_until_running(secondary)

        def kinds() -> list[str]:
            return [one['kind'] for plan in self.admin.list_operations(
                server=secondary)['plans'] for one in plan['operations']
                if (one['server_id'], one['state'], one['source'])
                == (secondary, 'SUCCEEDED', host)]
        lease_base.wait_until(
            kinds, options.preemption_timeout,
            lambda: f'no operation is reported by which {secondary} left '
            f'{host}')
