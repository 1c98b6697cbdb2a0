# SPDX-License-Identifier: Apache-2.0

"""Watcher's configuration, with our options registered."""

from typing import Any

from watcher import conf as watcher_conf

from secondary_scheduler.conf import lease_api, leases, policy, watcher

CONF: Any = watcher_conf.CONF
lease_api.register_opts(CONF)
leases.register_opts(CONF)
policy.register_opts(CONF)
watcher.register_opts(CONF)
