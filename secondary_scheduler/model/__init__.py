# SPDX-License-Identifier: Apache-2.0

"""Plain values that describe the cloud to every part of the plug-in.

Nothing here performs I/O, reads a clock or imports OpenStack: the scheduler,
the strategies, the agent, the simulator and the tests share these values.
"""
