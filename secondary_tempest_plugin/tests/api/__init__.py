# SPDX-License-Identifier: Apache-2.0

"""Tests of the lease service's API; they start no server."""
