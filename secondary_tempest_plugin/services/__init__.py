# SPDX-License-Identifier: Apache-2.0

"""Clients of the tested services."""

from secondary_tempest_plugin.services.leases_client import LeasesClient

__all__ = ['LeasesClient']
