# SPDX-License-Identifier: Apache-2.0

"""Scenarios: servers run, and load acts on their hosts."""
