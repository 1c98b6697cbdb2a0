# SPDX-License-Identifier: Apache-2.0

"""Test cases on oslo.messaging's in-memory driver."""

import time
import unittest

from oslo_config import cfg
from oslo_config import fixture as config_fixture

from secondary_scheduler.conf import policy
from secondary_scheduler.reports import agent_rpc, report_messages


def make_conf(case, url='fake://'):
    fixture = config_fixture.Config(cfg.CONF)
    fixture.setUp()
    case.addCleanup(fixture.cleanUp)
    policy.register_opts(cfg.CONF)
    cfg.CONF([], default_config_files=[])
    fixture.config(transport_url=url, group='secondary_scheduler')
    return cfg.CONF


def wait_for(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError('nothing happened')
        time.sleep(0.01)


class BrokerCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = make_conf(self)

    def listen(self, **kwargs):
        got = []
        # The in-memory driver has one fanout queue for each server's name.
        listener = report_messages.ReportListener(
            self.conf, got.append, str(id(got)), **kwargs)
        listener.start()
        self.addCleanup(listener.stop)
        wait_for(lambda: listener.listening)
        return listener, got

    def sender(self, host='node1'):
        sender = report_messages.ReportSender(self.conf, host)
        self.addCleanup(sender.stop)
        return sender

    def serve(self, endpoint, host='node1'):
        server = agent_rpc.AgentServer(self.conf, host, endpoint)
        server.start()
        self.addCleanup(server.stop)
        wait_for(lambda: server.listening)
        return server
