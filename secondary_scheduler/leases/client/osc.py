# SPDX-License-Identifier: Apache-2.0

"""Plug-in of the ``openstack`` command (osc-lib)."""

import argparse
import typing

from osc_lib import utils

from secondary_scheduler.leases.client import client

API_NAME = 'secondary_lease'
API_VERSION_OPTION = 'os_secondary_lease_api_version'
API_VERSIONS = ('1',)
DEFAULT_API_VERSION = '1'


def make_client(instance: typing.Any) -> client.Client:
    """Return the client of the lease service for ``client_manager``."""
    return client.Client.of(instance.sdk_connection)


def build_option_parser(parser: argparse.ArgumentParser
                        ) -> argparse.ArgumentParser:
    """Add the global option of the API version."""
    parser.add_argument(
        '--os-secondary-lease-api-version', metavar='<version>',
        default=utils.env('OS_SECONDARY_LEASE_API_VERSION',
                          default=DEFAULT_API_VERSION),
        help='Secondary lease API version, default='
             f'{DEFAULT_API_VERSION} (Env: OS_SECONDARY_LEASE_API_VERSION)')
    return parser
