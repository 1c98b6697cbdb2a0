# SPDX-License-Identifier: Apache-2.0

"""Plug-ins of nova-scheduler and nova-api.

No exception of this package may reach Nova.  Its only effect on a primary is
that the secondaries of a host are not counted (see reference/decisions, 4).
"""
