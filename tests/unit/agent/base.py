# SPDX-License-Identifier: Apache-2.0

"""Base class for tests of a whole agent."""

import contextlib
import unittest
from unittest import mock

from oslo_config import cfg

from secondary_scheduler.agent import primary_use, service, wiring
from secondary_scheduler.agent.sensors import cpu
from secondary_scheduler.conf import agent as agent_conf
from secondary_scheduler.conf import policy as policy_conf
from tests.unit.agent import fakes


class AgentTestCase(unittest.TestCase):
    """A whole agent on a host of files.

    ``version`` is the version of its control groups.
    """

    version = 1

    def setUp(self):
        self.host = fakes.Host(self, self.version)
        self.conf = cfg.ConfigOpts()
        agent_conf.register_opts(self.conf)
        policy_conf.register_opts(self.conf)
        self.file = self.host.path('agent.conf')
        self.configure('cpu <= 90% for 10s')
        self.conf(['--config-file', self.file])
        self.now = 100.0
        self.used = {}

    def configure(self, policy):
        self.host.write('agent.conf', f"""
[secondary_scheduler]
policy = {policy}
[secondary_agent]
host = node1
state_path = {self.host.state}
save_dir = {self.host.root}/save
libvirt_run_dir = {self.host.run_dir}
""")

    def make(self, **kwargs):
        with contextlib.ExitStack() as clocks:
            for one in (cpu.CpuMeter, primary_use.RecentPrimaryUse):
                clocks.enter_context(mock.patch.object(
                    one.__init__, '__defaults__', (lambda: self.now,)))
            clocks.enter_context(mock.patch.object(
                cpu.CpuMeter.__init__, '__kwdefaults__',
                {'own_time': lambda: 0.0}))
            agent = service.Agent(
                self.conf, wiring.open_store(self.conf),
                self.host.hierarchy(), self.host.libvirt.connect, **kwargs)
        with contextlib.suppress(OSError):
            agent.parts.domains.refresh()
        return agent

    def spend(self, percent, **guests):
        """Let 0.5 s pass in which host and guests used so many percent."""
        self.now += 0.5
        self.host.write('proc/uptime', f'{self.now:.2f} 0.00')
        for name, value in {'host': percent, **guests}.items():
            self.used[name] = self.used.get(name, 0.0) + (
                value / 100 * 4 * 0.5)
            self.host.spend(None if name == 'host' else int(name[1:]),
                            self.used[name])

    def steps(self, agent, count, percent, **guests):
        for _ in range(count):
            self.spend(percent, **guests)
            agent.step()
