# SPDX-License-Identifier: Apache-2.0

"""Operations that lead to the desired state of servers."""

import unittest

from secondary_scheduler.leases.engine import adoption, reconcile
from secondary_scheduler.leases.engine.values import CloudState, LeaseOperation
from secondary_scheduler.model import lease_states
from secondary_scheduler.model.lease_states import LeaseState
from tests.unit.leases.api.services import NOW
from tests.unit.leases.engine import fakes


class DueOperationsTest(unittest.TestCase):

    def test_engine_deletes_an_adopted_server_only_when_cancelled(self):
        world = fakes.World(self)
        server = world.nova.servers[world.nova.stray()]
        record = adoption.make_record(server, NOW)
        cloud_state = CloudState({server.uuid: server})
        expected = dict.fromkeys(LeaseOperation, 1.0)
        for state in lease_states.FINAL:
            record.lease.state = state
            self.assertEqual(
                [LeaseOperation.DELETE]
                if state is LeaseState.CANCELLED
                else [],
                [
                    one.kind
                    for one in reconcile.due_operations(
                        record, cloud_state, ['h1'], NOW, 4.0, expected
                    )
                ],
                state,
            )


if __name__ == '__main__':
    unittest.main()
