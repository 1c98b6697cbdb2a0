# SPDX-License-Identifier: Apache-2.0

"""Database of leases, shared by service and scheduler."""
