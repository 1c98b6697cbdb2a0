# SPDX-License-Identifier: Apache-2.0

"""Leases are visible to their project and to administrators only."""

from tempest.lib import decorators, exceptions

from secondary_tempest_plugin.tests import base

#: A reservation far ahead: no server is booted for it.
AHEAD_S = 2 * 86400


class IsolationTest(base.LeaseTestCase):
    """Two projects and an administrator."""

    credentials = ['primary', 'alt', 'admin']

    @classmethod
    def setup_clients(cls) -> None:
        """Make the clients of another project and of an administrator."""
        super().setup_clients()
        cls.other = cls.client_of(cls.os_alt)
        cls.admin = cls.client_of(cls.os_admin)

    def setUp(self) -> None:
        """Request a lease of the first project."""
        super().setUp()
        self.lease = self.create_lease(start=base.moment(AHEAD_S),
                                       duration=60)['id']

    @decorators.attr(type=['negative', 'smoke'])
    @decorators.idempotent_id('4b998bed-3d1c-4e75-9ebd-42cba5c5187b')
    def test_lease_of_another_project_does_not_exist(self) -> None:
        before = self.client.show_lease(self.lease)
        for ask, more in (
                (self.other.show_lease, {}),
                (self.other.list_events, {}),
                (self.other.show_lease_timeline, {}),
                (self.other.delete_lease, {}),
                (self.other.act_on_lease, {'action': 'cancel'}),
                (self.other.update_lease, {'name': 'mine'})):
            self.assert_refused(exceptions.NotFound, 'not-found', ask,
                                self.lease, **more)
        after = self.client.show_lease(self.lease)
        for name in ('name', 'paused', 'cancelling'):
            self.assertEqual(before[name], after[name])

    @decorators.idempotent_id('4efce1b3-3064-4f65-94d2-098299be805d')
    def test_lists_have_leases_of_the_own_project_only(self) -> None:
        own = self.create_lease(self.other, start=base.moment(AHEAD_S),
                                duration=60)['id']
        found = [one['id'] for one in self.other.list_leases()['leases']]
        self.assertEqual([own], found)
        slots = {one['lease_id'] for one in self.other.show_timeline()}
        self.assertNotIn(self.lease, slots)

    @decorators.attr(type='negative')
    @decorators.idempotent_id('cfb25477-4370-43d9-a50e-113b3bcf230d')
    def test_members_do_not_list_all_projects(self) -> None:
        for ask in (self.other.list_leases, self.other.show_timeline):
            self.assert_refused(exceptions.Forbidden, 'forbidden', ask,
                                all_projects=True)

    @decorators.attr(type='negative')
    @decorators.idempotent_id('e5742e86-2e63-4a08-b25d-4614fc4a9a6d')
    def test_lease_of_another_project_is_no_marker(self) -> None:
        self.assert_refused(exceptions.BadRequest, 'invalid',
                            self.other.list_leases, marker=self.lease)

    @decorators.idempotent_id('189f89f3-1757-404b-9ebd-dfa9aa40f3b0')
    def test_administrators_see_all_projects(self) -> None:
        self.assertEqual(self.lease,
                         self.admin.show_lease(self.lease)['id'])
        name = self.client.show_lease(self.lease)['name']
        self.assertEqual([self.lease], [
            one['id'] for one in self.admin.list_leases(
                all_projects=True, name=name)['leases']])
        self.assertNotIn(self.lease, [
            one['id'] for one in self.admin.list_leases()['leases']])


class ReaderTest(base.LeaseTestCase):
    """A user with the role "reader" in the project of a member."""

    credentials = ['project_member', 'project_reader']
    owner = 'project_member'

    @classmethod
    def setup_clients(cls) -> None:
        """Make the client of the reader."""
        super().setup_clients()
        cls.reader = cls.client_of(cls.os_project_reader)

    @decorators.idempotent_id('cb8447be-cd31-4309-bb8c-40ae57ddd469')
    def test_readers_read(self) -> None:
        lease = self.create_lease(start=base.moment(AHEAD_S),
                                  duration=60)['id']
        self.assertEqual(lease, self.reader.show_lease(lease)['id'])
        self.assertEqual([lease], [
            one['id'] for one in self.reader.list_leases()['leases']])
        self.reader.list_events(lease)
        self.reader.show_lease_timeline(lease)
        self.reader.show_quota()
        self.reader.show_timeline()

    @decorators.attr(type='negative')
    @decorators.idempotent_id('642b19b3-5c3b-4526-a484-3b8a1858be1b')
    def test_readers_change_nothing(self) -> None:
        lease = self.create_lease(start=base.moment(AHEAD_S),
                                  duration=60)['id']
        for ask, more in ((self.reader.act_on_lease, {'action': 'cancel'}),
                          (self.reader.update_lease, {'name': 'mine'}),
                          (self.reader.delete_lease, {})):
            self.assert_refused(exceptions.Forbidden, 'forbidden', ask, lease,
                                **more)
        terms = {'nodes': [self.node_set()], 'duration': 60,
                 'start': base.moment(AHEAD_S)}
        for ask in (self.reader.create_lease, self.reader.create_quote):
            self.assert_refused(exceptions.Forbidden, 'forbidden', ask,
                                **terms)
