"""The workflow engine: Watcher's own, with the way to Nova kept open.

A process's first call to Nova costs a password check by Keystone and the
discovery of Nova's API, more than a second on a small control plane, and it
would fall into the first plan that has to clear a busy host.  The CONTINUOUS
audit sends a plan each interval, empty in calm times: that is when the
session is opened, and its token renewed.
"""

from typing import Any

from oslo_log import log
from watcher.applier.workflow_engine import default

from secondary_scheduler.watcher import cloud as clouds

LOG = log.getLogger(__name__)


class SecondaryEngine(default.DefaultWorkFlowEngine):
    """Runs plans with taskflow; an empty one only opens the session."""

    def execute(self, actions: list[Any]) -> Any:
        """Run the actions of a plan in the order of its graph."""
        try:
            clouds.shared().open_session()
        except clouds.CloudError as exc:
            LOG.warning('Nova cannot be asked at the moment: %s', exc)
        return super().execute(actions) if actions else None
