# SPDX-License-Identifier: Apache-2.0

"""Forecasts of use by the primary, for admission.

Drivers are stevedore entry points in ``secondary_scheduler.forecasts``, and
are constructed with the configuration.  An admitted instance runs for long, so
a forecast predicts the largest use by the primary, not the mean.
"""

import abc
from collections.abc import Sequence

from oslo_config import cfg
import stevedore

NAMESPACE = 'secondary_scheduler.forecasts'


class Forecast(abc.ABC):
    """Predicts a use from the recent uses, in percent of the host."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf

    @property
    def window(self) -> float:
        """Number of seconds for which uses are kept."""
        return float(self.conf.secondary_agent.forecast_window)

    def __call__(self, uses: Sequence[float]) -> float | None:
        """Return the expected use with ``forecast_margin``.

        :param uses: means over some seconds within the window, the oldest
            first.
        :returns: percent of the host, None if ``uses`` is empty.
        """
        return (self.predict(uses) + self.conf.secondary_agent.forecast_margin
                if uses else None)

    @abc.abstractmethod
    def predict(self, uses: Sequence[float]) -> float:
        """Return the expected use without margin; ``uses`` is not empty."""


class Percentile(Forecast):
    """Percentile ``forecast_percentile`` of the recent uses."""

    def predict(self, uses: Sequence[float]) -> float:
        """Return the percentile."""
        part = self.conf.secondary_agent.forecast_percentile / 100
        return sorted(uses)[int(part * (len(uses) - 1))]


class Peak(Forecast):
    """Largest of the recent uses."""

    def predict(self, uses: Sequence[float]) -> float:
        """Return the maximum."""
        return max(uses)


def load_forecast(conf: cfg.ConfigOpts) -> Forecast:
    """Load the forecast that the option ``forecast`` names.

    :raises ValueError: if there is none of that name.
    """
    name = conf.secondary_agent.forecast
    try:
        found: Forecast = stevedore.DriverManager(
            NAMESPACE, name, invoke_on_load=True, invoke_args=(conf,)).driver
    except Exception as exc:
        raise ValueError(
            f'[secondary_agent] forecast = {name}: there is no such forecast '
            f'among the entry points {NAMESPACE}, or it cannot be loaded: '
            f'{exc}') from exc
    return found
