# SPDX-License-Identifier: Apache-2.0

"""Records of hosts, operations and accounts."""

from collections.abc import Callable, Iterator
import typing

from tempest.lib import decorators, exceptions

from secondary_tempest_plugin.tests import base

#: A reservation far ahead: no server is booted for it.
AHEAD_S = 2 * 86400


def read_pages(ask: Callable[..., base.Json], key: str, name: str,
               **query: typing.Any) -> Iterator[base.Json]:
    """Yield the items of all pages, two to a page.

    :param key: name of the list in an answer.
    :param name: field of an item that is the marker.
    """
    while True:
        page = ask(limit=2, **query)
        yield from page[key]
        if not page[f'{key}_links']:
            return
        query['marker'] = page[key][-1][name]


class RecordsTest(base.LeaseTestCase):
    """Administrators see hosts and operations, projects their accounts."""

    min_microversion = '1.5'
    credentials = ['primary', 'admin']

    @classmethod
    def setup_clients(cls) -> None:
        """Make the client of an administrator."""
        super().setup_clients()
        cls.admin = cls.client_of(cls.os_admin)

    @decorators.attr(type='negative')
    @decorators.idempotent_id('d6d21cdd-95a0-45f6-867e-b8c3d8f2df4e')
    def test_members_see_no_hosts_and_no_operations(self) -> None:
        for ask in (self.client.show_capacity, self.client.list_operations):
            self.assert_refused(exceptions.Forbidden, 'forbidden', ask)
        self.assert_refused(exceptions.Forbidden, 'forbidden',
                            self.client.show_accounting, all_projects=True)

    @decorators.attr(type='negative')
    @decorators.idempotent_id('58105b59-4fd1-4dd0-a65e-63dbf2fb236f')
    def test_records_do_not_exist_in_older_versions(self) -> None:
        client = self.client_of(self.os_admin)
        client.microversion = '1.4'
        for ask in (client.show_capacity, client.list_operations,
                    client.show_accounting):
            self.assert_refused(exceptions.NotFound, 'no-such-path', ask)

    @decorators.idempotent_id('f7976aa9-2367-4d54-8492-87a2db5d5c2c')
    def test_hosts_in_pages(self) -> None:
        hosts = [one['host'] for one in read_pages(
            self.admin.show_capacity, 'hosts', 'host')]
        self.assertEqual(sorted(set(hosts)), hosts)
        for host in hosts[:2]:
            found, = self.admin.show_capacity(host=host)['hosts']
            self.assertEqual(host, found['host'])
            if not found['known']:
                self.assertEqual('unknown', found['admission'])

    @decorators.idempotent_id('1eaa044f-ea60-42ac-b2dd-3fac6d515551')
    def test_plans_in_pages(self) -> None:
        since = base.moment(-3600)
        plans = list(read_pages(self.admin.list_operations, 'plans', 'id',
                                since=since))
        made = [one['created_at'] for one in plans]
        self.assertEqual(sorted(made, reverse=True), made)
        self.assertEqual(len(plans), len({one['id'] for one in plans}))
        self.assertLessEqual(since, min(made, default=since))

    @decorators.idempotent_id('4ea4f4e2-ed73-4e9c-b23f-eb9fdf4ad1fd')
    def test_project_sees_its_own_account_only(self) -> None:
        found = self.client.show_accounting()
        self.assertLess(found['begin'], found['end'])
        self.assertLessEqual({one['project_id'] for one in found['projects']},
                             {self.client.project_id})

    @decorators.attr(type='negative')
    @decorators.idempotent_id('6ec3e45f-9a00-4b39-9566-f4672fd8336e')
    def test_wrong_intervals_are_refused(self) -> None:
        for query in ({'begin': '2026-02-30'}, {'end': 'tomorrow'},
                      {'begin': '2026-11-02', 'end': '2026-11-02'}):
            self.assert_refused(exceptions.BadRequest, 'invalid',
                                self.client.show_accounting, **query)

    @decorators.idempotent_id('f16c701b-e3be-419d-92be-c8dc8c593674')
    def test_list_in_a_chosen_order(self) -> None:
        for name in ('b', 'c', 'a', 'd', 'a'):
            self.create_lease(start=base.moment(AHEAD_S), duration=60,
                              name=name)
        for direction in ('asc', 'desc'):
            names = [one['name'] for one in read_pages(
                self.client.list_leases, 'leases', 'id', sort_key='name',
                sort_dir=direction)]
            self.assertEqual(
                sorted('aabcd', reverse=direction == 'desc'), names)


class HostRecordsTest(base.LeaseTestCase):
    """An engine records the hosts."""

    min_microversion = '1.5'
    needs_engine = True
    credentials = ['primary', 'admin']

    @decorators.idempotent_id('7317954f-7fdd-452f-bdf5-8cf7ea2393b3')
    def test_hosts_of_secondaries_are_recorded(self) -> None:
        answer = self.client_of(self.os_admin).show_capacity()
        self.assertFalse(answer['engine']['stale'], answer['engine'])
        self.assertTrue(answer['hosts'], 'no host is enabled')
        for host in answer['hosts']:
            self.assertIn('CUSTOM_SECONDARY_SLOT', [
                one['resource_class'] for one in host['inventory']])
            self.assertEqual('cpu', host['use'][0]['resource'])
