# SPDX-License-Identifier: Apache-2.0

"""Decisions make a plan from a cluster and a request."""
