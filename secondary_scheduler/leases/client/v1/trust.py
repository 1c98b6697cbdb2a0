# SPDX-License-Identifier: Apache-2.0

"""``openstack secondary lease trust ...``."""

import typing

from osc_lib.command import command

from secondary_scheduler.leases.client import client
from secondary_scheduler.leases.client.v1 import base


class CreateLeaseTrust(base.LeaseCommand, command.ShowOne):
    """Make or renew your standing trust in the project.

    Servers of leases are made with it, in your name:

      openstack secondary lease trust create

    Run it with your password. From then on you can request leases in the
    project with any credential, also with an application credential that has
    the roles of the trust. The trust lasts until "expires_at". The command
    replaces an existing trust by a new one, and leases that wait use that.
    """

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Make the trust; return its fields."""
        return _fields(self.leases.create_trust())


class ShowLeaseTrust(base.LeaseCommand, command.ShowOne):
    """Show your standing trust in the project.

      openstack secondary lease trust show

    "state" is valid, or unverified (Keystone does not answer, or not to an
    application credential). Servers cannot be made with a trust that is
    expired, lost (deleted in Keystone) or outdated (the operator has changed
    its roles): renew it with "create".
    """

    def take_action(self, arguments: typing.Any) -> typing.Any:
        """Return the fields of the trust."""
        return _fields(self.leases.trust())


class DeleteLeaseTrust(base.LeaseCommand, command.Command):
    """Revoke your standing trust in the project.

      openstack secondary lease trust delete

    Run it with your password. Servers that run go on until their leases end.
    Leases that have no servers yet wait until there is a trust again; those
    with a guaranteed start fail at their start.
    """

    def take_action(self, arguments: typing.Any) -> None:
        """Revoke the trust."""
        self.leases.delete_trust()


def _fields(trust: client.Json) -> typing.Any:
    """Return names and values of all fields of a trust, as text."""
    flat = {**trust, 'roles': ', '.join(trust['roles'])}
    return zip(*sorted(flat.items()), strict=True)
