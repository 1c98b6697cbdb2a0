# SPDX-License-Identifier: Apache-2.0

"""Plug-ins of Watcher, the only part that changes the cloud.

1. The *collector* keeps the agents' reports and a snapshot of the cloud.
2. The leader merges violations in a *window* and creates audits for them.
3. The *strategy* asks a decision driver for a plan.
4. The *planner* stores it as a graph of *actions*, which call Nova.

See reference/decisions, 8.
"""
