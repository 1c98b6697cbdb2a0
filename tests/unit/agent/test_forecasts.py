# SPDX-License-Identifier: Apache-2.0

import unittest

from oslo_config import cfg, fixture

from secondary_scheduler.agent import forecasts
from secondary_scheduler.conf import agent as agent_conf


class ForecastTest(unittest.TestCase):

    def setUp(self):
        config = fixture.Config(cfg.ConfigOpts())
        config.setUp()
        self.addCleanup(config.cleanUp)
        self.conf, self.config = config.conf, config.config
        agent_conf.register_opts(self.conf)
        self.conf([])

    def test_percentile_with_margin(self):
        forecast = forecasts.Percentile(self.conf)
        self.assertEqual(60.0, forecast.window)
        self.assertIsNone(forecast([]))
        uses = [float(n) for n in range(101)]
        uses.reverse()
        self.assertEqual(95.0, forecast(uses))
        self.config(group='secondary_agent', forecast_percentile=50.0,
                    forecast_margin=7.5)
        self.assertEqual(57.5, forecast(uses))

    def test_peak_is_the_largest_use(self):
        self.config(group='secondary_agent', forecast_window=300.0)
        forecast = forecasts.Peak(self.conf)
        self.assertEqual(300.0, forecast.window)
        self.assertEqual(9.0, forecast([1.0, 9.0, 3.0]))

    def test_forecast_is_loaded_by_name(self):
        for name, kind in (('peak', forecasts.Peak),
                           ('percentile', forecasts.Percentile)):
            self.config(group='secondary_agent', forecast=name)
            self.assertIs(kind, type(forecasts.load_forecast(self.conf)))
        self.config(group='secondary_agent', forecast='crystal')
        with self.assertRaisesRegex(ValueError, 'forecast = crystal'):
            forecasts.load_forecast(self.conf)
