# SPDX-License-Identifier: Apache-2.0

"""Hosts with their resources and attributes."""

import unittest

import numpy as np

from secondary_scheduler.leases.scheduling.lease import (
    Lease,
    NodeSet,
    Terms,
    TermsError,
)
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.model.lease_states import LeaseState
from tests.unit.leases.scheduling import builders
from tests.unit.leases.scheduling.builders import NEED, Run, lease


class SiteTest(unittest.TestCase):
    def test_resource_listed_twice_is_refused(self):
        with self.assertRaisesRegex(TermsError, 'only once: CPU, CPU'):
            builders.Site(('CPU', 'CPU'), builders.site(1).capacity)

    def test_lease_too_large_for_the_site_is_rejected(self):
        run = Run(2)
        one = run.submit(lease('a', 3, 10))
        self.assertIs(LeaseState.REJECTED, one.state)
        self.assertIn('room for 2', one.reason)

    def test_lease_is_placed_on_hosts_with_its_attributes(self):
        run = Run(
            Site(
                ('CPU', 'Memory'),
                np.array([[100, 1024], [100, 1024]]),
                ({'arch': 'arm'}, {'arch': 'x86_64'}),
            )
        )
        one = Lease('a', Terms((NodeSet(1, NEED, {'arch': 'x86_64'}),), 10), 0)
        run.submit(one)
        self.assertEqual([1], one.hosts.tolist())
        none = Lease('b', Terms((NodeSet(1, NEED, {'arch': 'ppc'}),), 10), 0)
        run.submit(none)
        self.assertIs(LeaseState.REJECTED, none.state)

    def test_site_without_attributes_rejects_required_ones(self):
        run = Run(2)
        one = Lease('a', Terms((NodeSet(1, NEED, {'arch': 'arm'}),), 10), 0)
        run.submit(one)
        self.assertIs(LeaseState.REJECTED, one.state)
        self.assertIn('room for 0', one.reason)
        with self.assertRaisesRegex(TermsError, 'attributes of 1 hosts for 2'):
            Site(('CPU', 'Memory'), np.array([NEED, NEED]), ({},))
