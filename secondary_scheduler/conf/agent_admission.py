# SPDX-License-Identifier: Apache-2.0

"""Options of the group [secondary_agent] for admission of secondaries."""

from oslo_config import cfg

OPTS: list[cfg.Opt] = [
    cfg.BoolOpt(
        'manage_inventory',
        default=True,
        help="""
Whether the agent updates the ``reserved`` amounts of this host's secondary
provider in Placement to match the policies. If not, the inventory stays as
``secondary-scheduler host enable`` made it, closed.
"""),
    cfg.StrOpt(
        'forecast',
        default='percentile',
        help="""
Forecast of the CPU and memory that the primary is going to use. Placement
does not offer them. The value is the name of an entry point in
``secondary_scheduler.forecasts``. ``percentile`` is the use that was not
exceeded in ``forecast_percentile`` of the last ``forecast_window`` seconds,
``peak`` is the largest use in them. Both use means over three seconds.
"""),
    cfg.FloatOpt(
        'forecast_window',
        default=60.0,
        min=3.0,
        max=3600.0,
        help="""
Seconds of the primary's use that ``forecast`` takes into account. With a
larger value a burst keeps the host closed for longer. Then fewer secondaries
are on the host when a primary with rare bursts needs it.
"""),
    cfg.FloatOpt(
        'forecast_percentile',
        default=95.0,
        min=0.0,
        max=100.0,
        help="""
Percentile of the primary's use for the forecast ``percentile``: 95 is the use
that was exceeded one time in twenty.
"""),
    cfg.FloatOpt(
        'forecast_margin',
        default=0.0,
        min=0.0,
        max=100.0,
        help="""
Margin that is added to the forecast, in percent of the host.
"""),
    cfg.FloatOpt(
        'admission_delay',
        deprecated_name='open_after',
        default=10.0,
        min=0.0,
        max=3600.0,
        help="""
Seconds for which there must have been room before the agent offers it in
Placement. A decrease is applied at the next update (``inventory_interval``).
With a larger value fewer instances are admitted in a short lull of the
primary.
"""),
    cfg.FloatOpt(
        'inventory_interval',
        default=2.0,
        min=1.0,
        max=60.0,
        help="""
Seconds between two updates of the inventory in Placement,
which limits the load of many hosts on it.
"""),
]
