# SPDX-License-Identifier: Apache-2.0

"""Agent on each compute host: sensors, control, inventory and reports."""
