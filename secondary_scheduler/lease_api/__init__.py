# SPDX-License-Identifier: Apache-2.0

"""Deprecated path of ``secondary_scheduler.leases.api``."""
