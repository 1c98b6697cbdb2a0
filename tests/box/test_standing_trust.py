# SPDX-License-Identifier: Apache-2.0

"""Leases of application credentials, by the standing trust of their user.

Keystone 30 refuses trusts to application credentials of any kind.
"""

import concurrent.futures
import os
import subprocess
import time

import openstack
import pytest

import layout
from secondary_scheduler.leases.client import client
from tests.box import services
from tests.box.services import wait_until
from tests.box.tenants import FINAL, Tenant

CREATE = 'openstack secondary lease trust create'
#: Seconds for which a lease runs whose end is awaited.
RUNS_S = 60


@pytest.fixture(autouse=True)
def nothing_raises():
    """Watcher logs failed actions by itself, of which there are some here.
    """


class Owner(Tenant):
    """A user with a password, and with application credentials."""

    def __init__(self, cloud, name='demo'):
        super().__init__(cloud, name)
        self.name = name
        self.credentials = []
        self.programs = []

    @property
    def identity(self):
        return self.own.identity

    def trusts(self):
        """Return the user's trusts in Keystone, by id."""
        return {one.id: one for one in self.identity.trusts(
            trustor_user_id=self.own.current_user_id)}

    def run(self, words):
        """Run a command with the user's password; return what it prints."""
        done = subprocess.run(
            [layout.BIN / 'openstack', *words.split()[1:]],
            env={**os.environ, **layout.credentials(self.name, self.name)},
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def forget_trust(self):
        """Revoke the standing trust, if there is one."""
        try:
            self.leases.delete_trust()
        except client.LeaseError as exc:
            assert exc.status_code == 404, exc

    def program(self, *roles, unrestricted=True):
        """Return a tenant that has only an application credential."""
        made = self.identity.create_application_credential(
            self.own.current_user_id, f'test-{time.time()}',
            unrestricted=unrestricted, **(
                {'roles': [{'name': role} for role in roles]} if roles
                else {}))
        self.credentials.append(made)
        found = Tenant(self.cloud, own=openstack.connect(
            load_envvars=False, load_yaml_config=False,
            auth_type='v3applicationcredential', region_name='RegionOne',
            auth={'auth_url': layout.AUTH_URL,
                  'application_credential_id': made.id,
                  'application_credential_secret': made.secret}))
        self.programs.append(found)
        return found

    def delete_credentials(self):
        for one in self.credentials:
            self.identity.delete_application_credential(
                self.own.current_user_id, one)
        self.credentials.clear()

    def end(self):
        """Cancel all leases, also those of deleted credentials."""
        for one in self.programs:
            self.made |= one.made
        super().end()
        self.delete_credentials()
        self.forget_trust()


@pytest.fixture
def user(cloud, leases_run, no_fleet):
    found = Owner(cloud)
    found.forget_trust()
    yield found
    services.start_missing()
    found.end()


def assert_refused(tenant, *words):
    with pytest.raises(client.LeaseError) as caught:
        tenant.ask()
    print(caught.value)
    assert caught.value.status_code == 403
    for word in words:
        assert word in str(caught.value)


def wait_for_reason(user, lease, state, *words):
    """Wait until a lease that waits names the command to run."""
    def told():
        found = user.show(lease)
        return found['state'] == state and all(
            word in found['reason'] for word in (CREATE, *words))
    wait_until(told, 60, lambda: f'{state}, {words}: {user.show(lease)}\n'
               + user.story(lease))
    print(user.show(lease)['reason'])
    assert 'right-lost' in [one['kind'] for one in user.leases.events(lease)]


@pytest.mark.soak
def test_application_credential_runs_a_lease_by_the_standing_trust(user):
    """Refused with the command to run; after that its lease runs."""
    unrestricted, restricted = user.program(), user.program(
        unrestricted=False)
    for program in (unrestricted, restricted):
        assert_refused(program, CREATE, 'password')
    assert user.trusts() == {}
    print(user.run(CREATE))
    (made,) = user.trusts().values()
    assert [one['name'] for one in made.roles or user.identity.get_trust(
        made.id).roles] == ['member']
    assert made.expires_at and made.is_impersonation
    for program in (unrestricted, restricted):
        lease = program.ask()
        program.wait(lease, ('active',), 120)
        (server,) = user.servers(lease)
        assert server.user_id == user.own.current_user_id
        assert server.project_id == user.own.current_project_id
        program.leases.act(lease, 'cancel')
    # The trust stays usable after the deletion of a credential.
    later = unrestricted.ahead(45)
    user.delete_credentials()
    user.wait(later, ('active',), 150)
    assert set(user.trusts()) == {made.id}


@pytest.mark.soak
def test_revoked_trust_ends_running_leases_at_their_time_only(user):
    user.run(CREATE)
    program = user.program()
    runs = program.ask(duration=RUNS_S)
    ahead, lost = program.ahead(180), program.ahead(75)
    program.wait(runs, ('active',), 120)
    paused = program.ask()
    program.leases.act(paused, 'pause')
    program.wait(paused, ('queued', 'suspended-pending'), 60)
    with pytest.raises(client.LeaseError) as caught:
        program.leases.delete_trust()
    assert 'password' in str(caught.value)
    user.run('openstack secondary lease trust delete')
    assert user.trusts() == {}
    assert_refused(program, CREATE)
    wait_for_reason(user, ahead, 'scheduled', 'no standing trust')
    wait_for_reason(user, lost, 'scheduled', 'no standing trust')
    if user.show(paused)['state'] == 'queued':
        program.leases.act(paused, 'unpause')
        wait_for_reason(user, paused, 'queued', 'no standing trust')
    assert user.show(runs)['state'] == 'active'
    assert user.show(runs)['reason'] == ''
    found = program.assert_over(runs, 'done', timeout=180)
    assert found['served'] == RUNS_S
    program.assert_over(lost, 'failed', 'right to act', CREATE)
    # The owner makes a new trust, and what waits goes on.
    user.run(CREATE)
    user.wait(paused, ('active',), 120)
    wait_until(lambda: user.show(ahead)['reason'] == '', 60,
               lambda: str(user.show(ahead)))
    assert user.show(ahead)['state'] not in FINAL
    user.wait(ahead, ('active',), 300)


@pytest.mark.soak
def test_trust_that_was_deleted_in_keystone_is_told(user):
    """Behind the back of the service, while its token is still in use."""
    program = user.program()
    first = user.ask()      # by password: makes the trust
    (trust,) = user.trusts()
    user.wait(first, ('active',), 120)
    ahead = program.ahead(60)
    program.wait(ahead, ('scheduled', 'ready'), 30)
    user.identity.delete_trust(trust)
    assert user.leases.trust()['state'] == 'lost'
    assert_refused(program, 'does not exist any more', CREATE)
    program.assert_over(ahead, 'failed', 'right to act', CREATE)
    # On a small box the reservation has preempted it: its return needs none.
    user.wait(first, ('active',), 180)
    assert user.show(first)['reason'] == ''
    # The next request by password makes another one.
    again = user.ask()
    user.wait(again, ('active',), 120)
    assert len(user.trusts()) == 1
    assert user.leases.trust()['state'] == 'valid'


def test_role_reader_is_refused(user):
    user.run(CREATE)
    reader = user.program('reader')
    assert_refused(reader, 'roles')
    with pytest.raises(client.LeaseError) as caught:
        reader.leases.create_trust()
    assert caught.value.status_code == 403
    assert reader.leases.trust()['roles'] == ['member']
    assert reader.made == {}


@pytest.mark.soak
def test_renewal_leaves_one_trust_and_so_do_first_leases_at_once(cloud, user):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        tenants = [Tenant(cloud) for _ in range(4)]
        made = list(pool.map(lambda one: one.ask(), tenants))
    for one in tenants:
        user.made |= one.made
    assert len(set(made)) == 4
    (first,) = user.trusts()
    assert user.leases.trust()['id'] == first
    renewed = user.leases.create_trust()
    assert set(user.trusts()) == {renewed['id']} != {first}
    for lease in made[:1]:
        user.wait(lease, ('active',), 180)
