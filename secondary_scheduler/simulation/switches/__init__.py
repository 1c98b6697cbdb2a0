# SPDX-License-Identifier: Apache-2.0

"""Simulation of cluster-wide context switches, event by event."""
