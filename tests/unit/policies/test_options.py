# SPDX-License-Identifier: Apache-2.0

import unittest

from oslo_config import cfg

from secondary_scheduler import conf as all_options
from secondary_scheduler.conf import policy as options
from secondary_scheduler.estimation.room import LoadLimits
from secondary_scheduler.policies import triggers


class TestPolicyOptions(unittest.TestCase):

    def setUp(self):
        self.conf = cfg.ConfigOpts()
        options.register_opts(self.conf)
        self.conf([])
        self.group = self.conf.secondary_scheduler

    def test_defaults_equal_those_of_the_core(self):
        self.assertEqual(LoadLimits(), LoadLimits(
            self.group.minimum_share, self.group.useful_share,
            self.group.set_point_margin))
        self.assertEqual([], self.group.policy)

    def test_default_table_can_be_read(self):
        self.assertEqual(4, triggers.sensitivity_for(
            10, self.group.trigger_sensitivity))

    def test_every_option_is_explained(self):
        for _group, opts in options.list_opts():
            for opt in opts:
                self.assertGreater(len(opt.help), 150, opt.name)

    def test_reports_are_sent_before_the_last_one_is_stale(self):
        self.assertLess(2 * self.group.report_interval,
                        self.group.report_stale_after)

    def test_all_options_register_in_one_object(self):
        conf = cfg.ConfigOpts()
        for group, opts in all_options.list_opts():
            conf.register_opts(opts, group)
            for opt in opts:
                self.assertIn(opt.dest, conf[group.name])
