"""Watcher's configuration with our options registered."""

from typing import Any

from watcher import conf as watcher_conf

from secondary_scheduler.conf import policy, watcher

CONF: Any = watcher_conf.CONF
policy.register_opts(CONF)
watcher.register_opts(CONF)
