# SPDX-License-Identifier: Apache-2.0

"""Base class for tests of sensors."""

import unittest

from oslo_config import cfg, fixture

from secondary_scheduler.agent import cgroups
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.sensors import base
from secondary_scheduler.conf import agent as agent_conf
from tests.unit.agent import fakes


def secondary(number, taps=()):
    """Return a secondary with the process 100 + ``number``."""
    return Secondary(f'u{number}', f'i{number}', 5, 1, number, 100 + number,
                     7, taps=taps)


class SensorTestCase(unittest.TestCase):
    """A sensor on a host of files."""

    version = 1

    def setUp(self):
        self.host = fakes.Host(self, self.version)
        self.fixture = fixture.Config(cfg.ConfigOpts())
        self.fixture.setUp()
        self.addCleanup(self.fixture.cleanUp)
        agent_conf.register_opts(self.fixture.conf)
        self.fixture.conf([])
        self.now = 0.0

    def config(self, **options):
        self.fixture.config(group='secondary_agent', **options)

    def make(self, driver, *root):
        return driver(self.fixture.conf, cgroups.Hierarchy(self.host.proc),
                      *(self.host.path(one) for one in root))

    def clocked(self, sensor):
        sensor._rates = base.CounterRates(lambda: self.now)
        return sensor
