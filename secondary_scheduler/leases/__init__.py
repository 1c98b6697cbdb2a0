# SPDX-License-Identifier: Apache-2.0

"""Leases: scheduler, engine, service and client."""
