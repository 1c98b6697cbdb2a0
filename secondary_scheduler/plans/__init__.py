# SPDX-License-Identifier: Apache-2.0

"""Plans: dependency graphs of operations, and an independent checker."""
