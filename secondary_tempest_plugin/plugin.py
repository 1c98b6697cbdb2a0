# SPDX-License-Identifier: Apache-2.0

"""Entry point of Tempest."""

import pathlib
import typing

from oslo_config import cfg
from tempest import config as tempest_config
from tempest.test_discover import plugins

from secondary_tempest_plugin import config


class SecondaryTempestPlugin(plugins.TempestPlugin):
    """The tests, options and clients of this plug-in."""

    def load_tests(self) -> tuple[str, str]:
        """Return the directory of the tests and the one to import from."""
        package = pathlib.Path(__file__).resolve().parent
        return str(package / 'tests'), str(package.parent)

    def register_opts(self, conf: cfg.ConfigOpts) -> None:
        """Register the options with Tempest."""
        conf.register_opt(config.service_option, group='service_available')
        for group, options in config.GROUPS:
            tempest_config.register_opt_group(conf, group, options)

    def get_opt_lists(self) -> list[tuple[str, list[cfg.Opt]]]:
        """Return the options by the name of their group."""
        return [('service_available', [config.service_option]),
                *((group.name, options) for group, options in config.GROUPS)]

    def get_service_clients(self) -> list[dict[str, typing.Any]]:
        """Return the client of the lease service, for registration."""
        options = tempest_config.service_client_config(
            config.lease_group.name)
        return [{
            'name': 'secondary_lease',
            'service_version': 'secondary_lease.v1',
            'module_path': 'secondary_tempest_plugin.services',
            'client_names': ['LeasesClient'],
            **options}]
