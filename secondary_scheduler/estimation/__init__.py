# SPDX-License-Identifier: Apache-2.0

"""Estimates of a host's free capacity and of operations' durations."""
