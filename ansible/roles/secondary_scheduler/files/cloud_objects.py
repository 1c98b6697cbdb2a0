# SPDX-License-Identifier: Apache-2.0

"""Make or delete the accounts, the service and the aggregate of the role.

Reads a JSON object from standard input, so that no list of processes shows a
password, and prints one with the list "changes". Keys: "check" (only tell),
"present" (make or delete), "domain", "project", "role", "users" (name,
password, role), "service" (kind, region, url; may be null), "aggregate" and
"hosts". An absent key is left alone. The cloud is that of OS_CLOUD.
"""

import json
import sys

from keystoneauth1 import exceptions
import openstack


class Objects:
    """Objects of a cloud; each method makes one or deletes it."""

    def __init__(self, cloud, wanted):
        self._cloud = cloud
        self._wanted = wanted
        self._check = wanted['check']
        self._present = wanted['present']
        self.changes = []

    def _change(self, what, action):
        self.changes.append(what)
        if not self._check:
            return action()
        return None

    def role(self, name):
        """Make a role; or delete it if no user has it, in no region."""
        api = self._cloud.identity
        found = api.find_role(name)
        if self._present and found is None:
            self._change(f'role {name}', lambda: api.create_role(name=name))
        elif (found is not None and not self._present
              and not any(api.role_assignments(role_id=found.id))):
            self._change(f'role {name}', lambda: api.delete_role(found))

    def user(self, name, password, role):
        """Make a user with a role in the project, or delete the user."""
        api = self._cloud.identity
        domain = api.find_domain(self._wanted['domain'], ignore_missing=False)
        found = api.find_user(name, domain_id=domain.id)
        if not self._present:
            if found is not None:
                self._change(f'user {name}', lambda: api.delete_user(found))
            return
        project = api.find_project(self._wanted['project'],
                                   domain_id=domain.id, ignore_missing=False)
        granted = api.find_role(role)
        if granted is None and role != self._wanted.get('role'):
            sys.exit(f'Keystone has no role "{role}", which the user {name} '
                     f'needs: "openstack role create {role}" makes it')
        if found is None:
            found = self._change(f'user {name}', lambda: api.create_user(
                name=name, domain_id=domain.id, password=password,
                default_project_id=project.id))
        if found is None or granted is None:    # only to be made
            return
        if not api.validate_user_has_project_role(project, found, granted):
            self._change(
                f'role {role} of {name}', lambda:
                api.assign_project_role_to_user(project, found, granted))
        if not self._accepts(name, password, domain, project):
            self._change(f'password of {name}', lambda: api.update_user(
                found, password=password))

    def _accepts(self, name, password, domain, project):
        given = self._cloud.config.config['auth']['auth_url']
        try:
            openstack.connect(
                auth_url=given, username=name, password=password,
                user_domain_id=domain.id, project_id=project.id,
                load_yaml_config=False, load_envvars=False,
                verify=self._cloud.session.verify).authorize()
        except exceptions.Unauthorized:
            return False
        except openstack.exceptions.SDKException as exc:
            if 'Unauthorized' in str(exc) or '401' in str(exc):
                return False
            raise
        return True

    def service(self, kind, region, url):
        """Make a service with its endpoints; or delete the endpoints of the
        region, and the service if it has none in another region.
        """
        api = self._cloud.identity
        found = next((one for one in api.services() if one.type == kind),
                     None)
        if not self._present:
            if found is None:
                return
            points = [one for one in api.endpoints()
                      if one.service_id == found.id]
            own = [one for one in points if one.region_id == region]
            for point in own:
                self._change(f'endpoint {point.interface}', lambda one=point:
                             api.delete_endpoint(one))
            if len(own) == len(points):
                self._change(f'service {kind}',
                             lambda: api.delete_service(found))
            return
        if found is None:
            found = self._change(
                f'service {kind}',
                lambda: api.create_service(name=kind, type=kind))
        points = {} if found is None else {
            (one.interface, one.region_id): one for one in api.endpoints()
            if one.service_id == found.id}
        for interface in ('public', 'internal'):
            point = points.get((interface, region))
            if point is None:
                self._change(f'endpoint {interface}', lambda one=interface:
                             api.create_endpoint(
                                 service_id=found.id, interface=one,
                                 region_id=region, url=url))
            elif point.url != url:
                self._change(f'endpoint {interface}', lambda one=point:
                             api.update_endpoint(one, url=url))

    def aggregate(self, name, hosts):
        """Make an aggregate with hosts; or take them out, and delete it if
        it is empty then.
        """
        api = self._cloud.compute
        found = next((one for one in api.aggregates() if one.name == name),
                     None)
        if not self._present:
            if found is None:
                return
            left = set(found.hosts or ()) - set(hosts)
            for host in set(hosts) & set(found.hosts or ()):
                self._change(
                    f'{host} in {name}', lambda one=host:
                    api.remove_host_from_aggregate(found, one))
            if not left:
                self._change(f'aggregate {name}',
                             lambda: api.delete_aggregate(found))
            return
        if found is None:
            found = self._change(f'aggregate {name}',
                                 lambda: api.create_aggregate(name=name))
        for host in set(hosts) - set(getattr(found, 'hosts', None) or ()):
            self._change(f'{host} in {name}', lambda one=host:
                         api.add_host_to_aggregate(found, one))


def main():
    """Do what standard input says."""
    wanted = json.load(sys.stdin)
    objects = Objects(openstack.connect(), wanted)
    steps = []
    if wanted.get('role'):
        steps.append(lambda: objects.role(wanted['role']))
    steps += [lambda one=user: objects.user(**one)
              for user in wanted.get('users', ())]
    if wanted.get('service'):
        steps.append(lambda: objects.service(**wanted['service']))
    if wanted.get('aggregate'):
        steps.append(lambda: objects.aggregate(wanted['aggregate'],
                                               wanted['hosts']))
    for step in steps if wanted['present'] else reversed(steps):
        step()
    print(json.dumps({'changes': objects.changes}))


if __name__ == '__main__':
    main()
