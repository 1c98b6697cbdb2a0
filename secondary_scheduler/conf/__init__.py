# SPDX-License-Identifier: Apache-2.0

"""Options of the plug-in, one module per group.

A service registers only its own (``conf.policy.register_opts(CONF)``).
"""

from oslo_config import cfg


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return (group, options) of all groups, for oslo-config-generator."""
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
