# SPDX-License-Identifier: Apache-2.0

"""Messages between agents, schedulers and Watcher over oslo.messaging."""
