# SPDX-License-Identifier: Apache-2.0

"""Panels of the lease service for the OpenStack dashboard, Horizon."""
