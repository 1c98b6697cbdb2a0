# SPDX-License-Identifier: Apache-2.0

"""Decisions on the CPUs that secondaries of a host may use."""
