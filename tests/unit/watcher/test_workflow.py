# SPDX-License-Identifier: Apache-2.0

"""The workflow engine: a session first, then Watcher's own engine."""

from unittest import mock

from secondary_scheduler.watcher import (
    cloud_connections,
    cloud_errors,
    workflow,
)
from tests.unit.watcher import fakes


class SecondaryEngineTest(fakes.TestCase):
    """An empty plan opens the session and does nothing else."""

    def setUp(self):
        super().setUp()
        self.cloud = mock.Mock()
        self.enterContext(mock.patch.object(
            cloud_connections, 'shared', return_value=self.cloud))
        self.stock = self.enterContext(mock.patch.object(
            workflow.default.DefaultWorkFlowEngine, 'execute',
            return_value='flow'))
        self.engine = workflow.SecondaryEngine(
            mock.Mock(), mock.Mock(), mock.Mock())

    def test_empty_plan_only_opens_the_session(self):
        self.assertIsNone(self.engine.execute([]))
        self.cloud.open_session.assert_called_once_with()
        self.stock.assert_not_called()

    def test_plan_is_run_by_watchers_engine(self):
        self.assertEqual('flow', self.engine.execute(['action']))
        self.stock.assert_called_once_with(['action'])

    def test_plan_is_run_if_the_session_cannot_be_opened(self):
        self.cloud.open_session.side_effect = cloud_errors.CloudError('down')
        self.assertEqual('flow', self.engine.execute(['action']))
