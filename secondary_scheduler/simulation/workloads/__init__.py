# SPDX-License-Identifier: Apache-2.0

"""Workloads of leases: trace formats, and annotations of traces."""
