# SPDX-License-Identifier: Apache-2.0

"""Tempest plug-in: tests of secondaries and leases on any cloud."""
