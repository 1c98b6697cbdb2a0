# SPDX-License-Identifier: Apache-2.0

"""Lease engine in Watcher: runner, cloud and actions."""
