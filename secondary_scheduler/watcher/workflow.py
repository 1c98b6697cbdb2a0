# SPDX-License-Identifier: Apache-2.0

"""Workflow engine: Watcher's own, with a session of Nova kept open.

The first call to Nova in a process needs a token from Keystone and the
discovery of Nova's API.  That takes more than a second on a small control
plane, and would delay the first plan that must relieve a host.  The CONTINUOUS
audit sends a plan each interval, mostly an empty one.  Each plan opens the
session first, or renews its token.
"""

from typing import Any

from oslo_log import log
from watcher.applier.workflow_engine import default

from secondary_scheduler.watcher import cloud_connections
from secondary_scheduler.watcher.cloud_errors import CloudError

LOG = log.getLogger(__name__)


class SecondaryEngine(default.DefaultWorkFlowEngine):
    """Runs plans with taskflow; an empty plan only opens the session."""

    def execute(self, actions: list[Any]) -> Any:
        """Run the actions of a plan in the order of its graph."""
        try:
            cloud_connections.shared().open_session()
        except CloudError as exc:
            LOG.warning('The session of Nova cannot be opened: %s', exc)
        return super().execute(actions) if actions else None
