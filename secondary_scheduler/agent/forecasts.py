"""What the primary is going to use, for admission.

Drivers are stevedore entry points in ``secondary_scheduler.forecasts``; they
are constructed with the configuration.  Who is admitted stays for long, so a
forecast is of what the primary will want most, not of its mean.
"""

import abc
from collections.abc import Sequence

from oslo_config import cfg
import stevedore

NAMESPACE = 'secondary_scheduler.forecasts'


class Forecast(abc.ABC):
    """Foretells a use from the recent one, in percent of the host."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf

    @property
    def window(self) -> float:
        """For how many seconds use is remembered."""
        return float(self.conf.secondary_agent.forecast_window)

    def __call__(self, uses: Sequence[float]) -> float | None:
        """Return what is to be expected, None if nothing is known.

        ``uses`` are means over some seconds within the window, the oldest
        first.
        """
        return (self.predict(uses) + self.conf.secondary_agent.forecast_margin
                if uses else None)

    @abc.abstractmethod
    def predict(self, uses: Sequence[float]) -> float:
        """Return what is to be expected, without a margin, of some uses."""


class Percentile(Forecast):
    """What ``forecast_percentile`` of the recent uses did not exceed."""

    def predict(self, uses: Sequence[float]) -> float:
        """Return the percentile."""
        part = self.conf.secondary_agent.forecast_percentile / 100
        return sorted(uses)[int(part * (len(uses) - 1))]


class Peak(Forecast):
    """The largest of the recent uses."""

    def predict(self, uses: Sequence[float]) -> float:
        """Return the maximum."""
        return max(uses)


def load_forecast(conf: cfg.ConfigOpts) -> Forecast:
    """Return the forecast that the configuration names.

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
