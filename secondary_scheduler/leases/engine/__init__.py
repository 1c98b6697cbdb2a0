# SPDX-License-Identifier: Apache-2.0

"""Lease engine: turns the schedule of leases into operations on servers."""
