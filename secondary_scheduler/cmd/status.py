# SPDX-License-Identifier: Apache-2.0

"""``secondary-scheduler-status upgrade check``: checks of an installation.

Reads nova.conf (``--config-file``) for the policies and the scheduler's
settings, and the cloud (OS_* variables or clouds.yaml) for flavors and
providers. All configuration files are searched for deprecated names of our
options; ``--config-file`` may be repeated for those of other services.
"""

from collections.abc import Callable
import sys
import typing

import openstack
from oslo_config import cfg
from oslo_upgradecheck import upgradecheck

from secondary_scheduler import conf as project_options
from secondary_scheduler.agent.profile_files import read_profiles
from secondary_scheduler.cmd import console, flavors, providers
from secondary_scheduler.conf import policy, watcher
from secondary_scheduler.policies import language
from secondary_scheduler.reading.options import load_options, read_settings
from secondary_scheduler.reading.values import InputError, shown
from secondary_scheduler.watcher.constraint_file import read_constraint_file

FILTER = 'SecondaryPolicyFilter'
FILTERS = 'secondary_scheduler.nova.filters.all_filters'
WEIGHERS = 'secondary_scheduler.nova.weights.all_weighers'

#: Workers that an applier needs; leases use none of the last two.
_LEAST_WORKERS = 3

_Result: typing.TypeAlias = upgradecheck.Result
_Code = upgradecheck.Code

#: Copies of Nova's options, so that Nova need not be installed.
_SCHEDULER_OPTS = [
    cfg.MultiStrOpt('available_filters', default=[]),
    cfg.ListOpt('enabled_filters', default=[]),
    cfg.ListOpt('weight_classes', default=[]),
    cfg.BoolOpt('track_instance_changes', default=True),
]


def _connect() -> typing.Any:
    return openstack.connect(app_name='secondary-scheduler-status')


def deprecated_names() -> dict[tuple[str, str], str]:
    """Return the new name of each deprecated option, with its group.

    :returns: {(group, deprecated name): new name}, with "_" for "-".
    """
    return {
        (old.group or group.name, _normalize(old.name or option.name)):
            f'[{group.name}] {option.name}'
        for group, options in project_options.list_opts()
        for option in options for old in option.deprecated_opts}


def _normalize(name: str) -> str:
    return name.replace('-', '_')


class Checks(upgradecheck.UpgradeCommands):
    """Checks; each returns a result, with a remedy unless it is good."""

    def __init__(self, conf: cfg.ConfigOpts,
                 connect: Callable[[], typing.Any] = _connect) -> None:
        self._conf = conf
        self._connect = connect

    def policies(self) -> _Result:
        """Check that the policies are valid, and that there is one."""
        texts = self._conf.secondary_scheduler.policy
        try:
            language.parse_all(texts)
        except language.PolicyError as exc:
            return _Result(_Code.FAILURE, str(exc))
        if not texts:
            return _Result(_Code.WARNING, (
                'There is no policy, so no host takes secondaries. Set '
                f'[secondary_scheduler] policy, e.g. '
                f'{language.EXAMPLES[language.CPU]}, in the same way for '
                'nova-scheduler, agents and Watcher.'))
        return _Result(_Code.SUCCESS)

    def constraints(self) -> _Result:
        """Check that the operator's placement constraints can be read."""
        path = self._conf.secondary_watcher.constraints_file
        try:
            if path:
                read_constraint_file(path)
        except InputError as exc:
            return _Result(_Code.FAILURE, str(exc))
        return _Result(_Code.SUCCESS)

    def filters(self) -> _Result:
        """Check that nova-scheduler uses the filter."""
        options = self._conf.filter_scheduler
        missing = []
        if FILTERS not in options.available_filters:
            missing.append(f'available_filters = {FILTERS} (one line more, '
                           'beside nova.scheduler.filters.all_filters)')
        if FILTER not in options.enabled_filters:
            missing.append(f'{FILTER} in enabled_filters')
        if missing:
            return _Result(_Code.FAILURE, (
                'Secondaries would be admitted without regard to reports of '
                'agents. Add '
                'to [filter_scheduler] of nova-scheduler: '
                + '; '.join(missing)))
        return _Result(_Code.SUCCESS)

    def weighers(self) -> _Result:
        """Check that secondaries do not influence weights of primaries.

        And that a weigher needs no query of the database for each host.
        """
        options = self._conf.filter_scheduler
        if WEIGHERS not in options.weight_classes:
            return _Result(_Code.FAILURE, (
                'Nova counts secondaries when it weighs hosts for primaries. '
                f'Set weight_classes = {WEIGHERS} in [filter_scheduler] of '
                'nova-scheduler.'))
        if not options.track_instance_changes:
            return _Result(_Code.WARNING, (
                'With [filter_scheduler] track_instance_changes = false each '
                'decision asks the database for the instances of each host. '
                'Set it to true.'))
        return _Result(_Code.SUCCESS)

    def option_names(self) -> _Result:
        """Check that the files set no option by a deprecated name."""
        renamed = deprecated_names()
        found = [
            f'{one.path}, line {one.line}: [{one.section}] {one.name} is now '
            + renamed[one.section, _normalize(one.name)]
            for one in read_settings(self._conf)
            if (one.section, _normalize(one.name)) in renamed]
        if found:
            return _Result(_Code.WARNING, (
                'Options have new names; the old ones will be removed in a '
                'later release. ' + '; '.join(found) + '.'))
        return _Result(_Code.SUCCESS)

    def flavors(self) -> _Result:
        """Check that no flavor is ill-formed."""
        def check(cloud: typing.Any) -> _Result:
            faults = flavors.flavor_faults(cloud.compute.flavors(
                details=True, is_public=None, get_extra_specs=True))
            if faults:
                return _Result(_Code.FAILURE, (
                    'Ill-formed: ' + ', '.join(sorted(faults)) + '. See '
                    '"secondary-scheduler flavor check".'))
            return _Result(_Code.SUCCESS)
        return self._ask(check)

    def providers(self) -> _Result:
        """Check that at least one host is enabled."""
        def check(cloud: typing.Any) -> _Result:
            if not any(providers.Providers(cloud.placement).children()):
                return _Result(_Code.WARNING, (
                    'No host takes secondaries. Begin with '
                    '"secondary-scheduler host enable HOST".'))
            return _Result(_Code.SUCCESS)
        return self._ask(check)

    def dedicated_cpus(self) -> _Result:
        """Check that hosts with dedicated CPUs have shared ones, too."""
        driver = self._agent_option('cpu_affinity', 'none')

        def check(cloud: typing.Any) -> _Result:
            hosts = list(providers.Providers(
                cloud.placement).without_shared_cpus())
            if hosts:
                return _Result(_Code.WARNING, (
                    '[compute] cpu_dedicated_set is set and cpu_shared_set '
                    'is not on ' + ', '.join(hosts) + '. There Nova gives '
                    'secondaries no CPU set; the agent keeps them off the '
                    'dedicated CPUs of primaries, but only from shortly after '
                    'each start. And nova-compute does not restart while a '
                    'secondary is on the host. Set both.'
                    + (f' The CPU affinity {shown(driver)} then has the '
                       'dedicated CPUs that no primary uses yet, and moves '
                       'secondaries whenever a primary takes one.'
                       if driver != 'none' else '')))
            return _Result(_Code.SUCCESS)
        return self._ask(check)

    def workload_profiles(self) -> _Result:
        """Check that the agent's profiles of workload classes can be read."""
        path = self._agent_option('cpu_affinity_profiles', '')
        try:
            if path:
                read_profiles(path)
        except InputError as exc:
            return _Result(_Code.FAILURE, (
                f'Agents do not use [secondary_agent] cpu_affinity_profiles: '
                f'{exc}. See "secondary-agent profiles check".'))
        return _Result(_Code.SUCCESS)

    def applier_workers(self) -> _Result:
        """Check that operations of leases do not delay the relief of hosts.

        Plans of leases leave two workers of an applier.  The section of
        Watcher is seen if its file is among the files.
        """
        settings = {(one.section, _normalize(one.name)): one.value
                    for one in read_settings(self._conf)}
        if not any(section == 'watcher_applier' for section, _ in settings):
            return _Result(_Code.SUCCESS, (
                'Not checked: no file has the section [watcher_applier]. Give '
                'that of Watcher with --config-file as well.'))
        workers = settings.get(('watcher_applier', 'workers'), '1')
        if not workers.isdecimal() or int(workers) < _LEAST_WORKERS:
            return _Result(_Code.FAILURE, (
                f'[watcher_applier] workers is {shown(workers)}, so '
                'operations of leases delay the relief of hosts. Set it to '
                f'{_LEAST_WORKERS} or more, e.g. 16, for each applier and '
                'decision engine.'))
        return _Result(_Code.SUCCESS)

    def _agent_option(self, name: str, default: str) -> str:
        """Return the last value of an agent's option in the files.

        The options of agents are not registered here: their defaults depend
        on the host.  They are seen if the agent's file is among the files.
        """
        return next((
            one.value for one in reversed(list(read_settings(self._conf)))
            if (one.section, _normalize(one.name)) == ('secondary_agent',
                                                       name)), default)

    def _ask(self, check: Callable[[typing.Any], _Result]) -> _Result:
        try:
            return check(self._connect())
        except Exception as exc:
            return _Result(_Code.WARNING, (
                'Not checked, since the cloud cannot be reached '
                f'({str(exc)[:200]}). Set the OS_* variables of an admin '
                'account, or OS_CLOUD.'))

    _upgrade_checks = (
        ('Policies', policies),
        ('Placement constraints', constraints),
        ('Filter', filters),
        ('Weighers', weighers),
        ('Option names', option_names),
        ('Flavors', flavors),
        ('Resource providers', providers),
        ('Dedicated CPUs', dedicated_cpus),
        ('Workload profiles', workload_profiles),
        ('Workers of the applier', applier_workers),
    )


@console.command
def main(arguments: list[str] | None = None,
         connect: Callable[[], typing.Any] = _connect) -> int:
    """Run the checks; return 0 (success), 1 (warning) or 2 (failure)."""
    conf = cfg.ConfigOpts()
    policy.register_opts(conf)
    # Defaults of others in this group refer to options of Watcher.
    conf.register_opts(
        [one for one in watcher.OPTS if one.name == 'constraints_file'],
        group=watcher.GROUP.name)   # the object holds all its options
    conf.register_opts(_SCHEDULER_OPTS, group='filter_scheduler')
    upgradecheck.register_cli_options(conf, Checks(conf, connect))
    try:
        load_options(conf, sys.argv[1:] if arguments is None else arguments,
                     project='nova')
    except InputError as exc:
        print(f'secondary-scheduler-status: {exc}', file=sys.stderr)
        return 2
    # oslo.upgradecheck looks for --json in its global variable.
    upgradecheck.CONF = conf
    return int(upgradecheck.run(conf))


if __name__ == '__main__':
    sys.exit(main())
