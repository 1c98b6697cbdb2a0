# SPDX-License-Identifier: Apache-2.0

"""Access rules of the service (oslo.policy), with their defaults."""

from collections.abc import Iterator
import logging
import pathlib
import typing

from oslo_config import cfg
from oslo_policy import policy
import yaml

from secondary_scheduler.reading import yaml_files

_READER = 'role:reader and project_id:%(project_id)s'
_MEMBER = 'role:member and project_id:%(project_id)s'
_ADMIN = 'role:admin'

PREFIX = 'secondary_lease'
LIST = f'{PREFIX}:list'
SHOW = f'{PREFIX}:show'
CREATE = f'{PREFIX}:create'
UPDATE = f'{PREFIX}:update'
DELETE = f'{PREFIX}:delete'
ACTION = f'{PREFIX}:action'
TIMELINE = f'{PREFIX}:timeline'
EVENTS = f'{PREFIX}:events'
QUOTA = f'{PREFIX}:quota'
CREATE_QUOTE = f'{PREFIX}:create_quote'
SHOW_QUOTE = f'{PREFIX}:show_quote'
CAPACITY = f'{PREFIX}:capacity'
OPERATIONS = f'{PREFIX}:operations'
ACCOUNTING = f'{PREFIX}:accounting'
SHOW_TRUST = f'{PREFIX}:show_trust'
RENEW_TRUST = f'{PREFIX}:renew_trust'
REVOKE_TRUST = f'{PREFIX}:revoke_trust'
ALL_PROJECTS = f'{PREFIX}:all_projects'


def _rule(name: str, check: str, description: str, *operations: str
          ) -> policy.DocumentedRuleDefault:
    return policy.DocumentedRuleDefault(
        name, f'({check}) or {_ADMIN}' if check != _ADMIN else check,
        description, [{'method': method, 'path': path} for method, path in (
            one.split() for one in operations)], scope_types=['project'])


RULES = [
    _rule(LIST, _READER, 'List the leases of the project.',
          'GET /leases'),
    _rule(SHOW, _READER, 'Show a lease.', 'GET /leases/{id}'),
    _rule(CREATE, _MEMBER, 'Request a lease.', 'POST /leases'),
    _rule(UPDATE, _MEMBER, 'Change a lease.', 'PATCH /leases/{id}'),
    _rule(DELETE, _MEMBER, 'Delete a lease that is over or new.',
          'DELETE /leases/{id}'),
    _rule(ACTION, _MEMBER, 'Pause, unpause or cancel a lease.',
          'POST /leases/{id}/action'),
    _rule(TIMELINE, _READER, 'Show the planned slots of leases.',
          'GET /timeline', 'GET /leases/{id}/timeline'),
    _rule(EVENTS, _READER, 'List the events of a lease.',
          'GET /leases/{id}/events'),
    _rule(QUOTA, _READER, 'Show quota and usage of the project.',
          'GET /quota'),
    _rule(CREATE_QUOTE, _MEMBER, (
        'Request a quote: price and start of a possible lease.'),
        'POST /quotes'),
    _rule(SHOW_QUOTE, _READER, 'Show a quote.', 'GET /quotes/{id}'),
    _rule(CAPACITY, _ADMIN, (
        'Show the hosts that take secondaries, their policies and the '
        'secondaries of all projects there.'), 'GET /capacity'),
    _rule(OPERATIONS, _ADMIN, (
        'List the action plans of Watcher for secondaries of all projects.'),
        'GET /operations'),
    _rule(ACCOUNTING, _READER, (
        'Show served time and charge of the leases of the project.'),
        'GET /accounting'),
    _rule(SHOW_TRUST, _READER, (
        'Show the standing trust of the user in the project.'), 'GET /trust'),
    _rule(RENEW_TRUST, _MEMBER, (
        'Make or renew the standing trust of the user in the project. '
        'Keystone decides on it, too.'), 'PUT /trust'),
    _rule(REVOKE_TRUST, _READER, (
        'Revoke the standing trust of the user in the project. Keystone '
        'decides on it, too.'), 'DELETE /trust'),
    _rule(ALL_PROJECTS, _ADMIN, (
        'See the leases and accounts of all projects, and the names of hosts '
        'in the timeline. Users with this permission can also use the ids of '
        'other projects\' leases in all other requests that their rules '
        'allow.'),
        'GET /leases?all_projects=true', 'GET /timeline?all_projects=true',
        'GET /accounting?all_projects=true'),
]


def list_rules() -> list[policy.DocumentedRuleDefault]:
    """Return the rules, for oslopolicy-sample-generator."""
    return RULES


def make_enforcer(conf: cfg.ConfigOpts) -> policy.Enforcer:
    """Return an enforcer of these rules and of the operator's files.

    :raises InputError: naming the line of a file that is no rule.
    """
    found = policy.Enforcer(conf)
    found.register_defaults(RULES)
    for path in _files(conf):
        _check_file(path)
    found.load_rules()
    return found


def _files(conf: cfg.ConfigOpts) -> Iterator[pathlib.Path]:
    """Yield the existing policy files of the operator."""
    for name in (conf.oslo_policy.policy_file, *conf.oslo_policy.policy_dirs):
        path = pathlib.Path(conf.find_file(name) or name)
        if path.is_dir():
            yield from (one for one in sorted(path.iterdir())
                        if one.is_file() and not one.name.startswith('.'))
        elif path.exists():
            yield path


def _check_file(path: pathlib.Path) -> None:
    root = yaml_files.read_yaml(path)
    if root is None:
        return
    for name, rule in yaml_files.Mapping(path, root).items():
        if isinstance(rule, yaml.SequenceNode) or (
                isinstance(rule, yaml.ScalarNode) and _can_be_parsed(rule)):
            continue
        raise yaml_files.wrong(path, rule, f'{name}: expected a rule, like '
                               '"role:member and project_id:%(project_id)s"')


def _can_be_parsed(rule: yaml.ScalarNode) -> bool:
    if rule.tag.endswith(':null'):
        return True
    if not rule.tag.endswith(':str'):
        return False
    parser = logging.getLogger('oslo_policy._parser')
    before, parser.disabled = parser.disabled, True
    try:
        # oslo.policy turns an invalid rule into "!", which rejects all users.
        return rule.value.strip() == '!' or str(
            policy.RuleDefault('any', rule.value).check) != '!'
    finally:
        parser.disabled = before


def get_enforcer() -> policy.Enforcer:
    """Return an enforcer, for the tools of oslo.policy."""
    conf = cfg.ConfigOpts()
    conf([], project='secondary_scheduler')
    return make_enforcer(conf)


def allows(enforcer: policy.Enforcer, rule: str, context: typing.Any
           ) -> bool:
    """Return whether a rule allows an operation in the user's project."""
    return bool(enforcer.authorize(
        rule, {'project_id': context.project_id,
               'user_id': context.user_id}, context))
