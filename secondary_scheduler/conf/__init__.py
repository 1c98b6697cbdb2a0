"""Every option of the plug-in, one module per group.

A service registers just its own (``conf.policy.register_opts(CONF)``).
"""

import typing

from oslo_config import cfg


def list_opts() -> list[tuple[typing.Any, list[cfg.Opt]]]:
    """Return all (group, options), for oslo-config-generator."""
    from secondary_scheduler.conf import (
        agent,
        lease_api,
        leases,
        nova,
        policy,
        watcher,
    )
    return [*policy.list_opts(), *agent.list_opts(), *nova.list_opts(),
            *watcher.list_opts(), *leases.list_opts(),
            *lease_api.list_opts()]
