# SPDX-License-Identifier: Apache-2.0

"""Metrics for Prometheus: families, and their HTTP server.

Values are in Prometheus's base units: ratios (0 to 1), seconds and bytes.  The
requirement ``prometheus_client`` comes with the extra ``metrics``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import errno

import prometheus_client
from prometheus_client import core, registry

from secondary_scheduler.model.measures import BUCKETS, Histogram


def make_gauge(name: str, text: str, value: float | None) -> core.Metric:
    """Return a gauge; without a sample if the value is unknown."""
    family = core.GaugeMetricFamily(name, text)
    if value is not None:
        family.add_metric([], float(value))
    return family


def make_gauges(name: str, text: str, label: str,
                values: Mapping[str, float | None]) -> core.Metric:
    """Return a gauge with one label; unknown values are left out."""
    family = core.GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        if value is not None:
            family.add_metric([key], float(value))
    return family


def make_counter(name: str, text: str, labels: Sequence[str],
                 values: Mapping[tuple[str, ...], float]) -> core.Metric:
    """Return a counter.

    :param values: values by the values of the labels.
    """
    family = core.CounterMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def make_histogram(name: str, text: str, labels: Sequence[str],
                   values: Mapping[tuple[str, ...], Histogram]
                   ) -> core.Metric:
    """Return a histogram of seconds."""
    family = core.HistogramMetricFamily(name, text, labels=labels)
    for key, one in values.items():
        family.add_metric(
            key, [*((f'{bound:g}', count) for bound, count in zip(
                BUCKETS, one.cumulated(), strict=True)),
                ('+Inf', one.count)], one.total)
    return family


class FunctionCollector(registry.Collector):
    """Collects the families that a function yields at each request."""

    def __init__(self, collect: Callable[[], Iterable[core.Metric]]) -> None:
        self._collect = collect

    def describe(self) -> list[core.Metric]:
        """Return no metrics, since values may not be known yet."""
        return []

    def collect(self) -> Iterator[core.Metric]:
        """Yield the current metrics."""
        yield from self._collect()


def serve_metrics(address: str, port: int,
                  collect: Callable[[], Iterable[core.Metric]],
                  ports: int = 1) -> int:
    """Serve metrics on a thread of its own.

    :param ports: number of ports, from ``port`` on, of which the first free
        one is used.
    :returns: the port.
    :raises OSError: if the address, or each of the ports, is not available.
    """
    metrics = prometheus_client.CollectorRegistry(auto_describe=False)
    metrics.register(FunctionCollector(collect))
    for candidate in range(port, port + ports):
        try:
            prometheus_client.start_http_server(candidate, address, metrics)
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE or candidate == port + ports - 1:
                raise
        else:
            return candidate
    raise ValueError('no port to try')
