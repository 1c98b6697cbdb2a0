# SPDX-License-Identifier: Apache-2.0

"""The table of resources on which policies can be.

Every set of resources in the project is derived from ``TABLE``.  A new
resource is one more entry there, beside a sensor that measures it.
"""

from collections.abc import Mapping
import dataclasses


@dataclasses.dataclass(frozen=True)
class Resource:
    """A resource, and what each part of the project can do with it.

    :param name: its name in the policy language, in reports and models
    :param example: a policy on it, '' if the policy language does not know it
    :param unit: unit of its amounts; None if only percentages exist (of a
        host, or of time) or if the operator's probe defines the unit
    :param static: its use changes only by an operation, so that the model
        knows it and nothing measures it
    :param attributable: the part of each secondary in its use is known;
        otherwise it is a signal of harm to the primary
    :param throttleable: an agent can limit each secondary's use of it
    :param counted: Watcher counts it on several hosts together
    :param modelled: a model of a cluster can have policies on it, given the
        use of each instance
    :param sensor: entry point in ``secondary_scheduler.sensors`` that
        measures it; None if it is not measured, or by the agent itself
    """

    name: str
    example: str
    unit: str | None = None
    static: bool = False
    attributable: bool = True
    throttleable: bool = False
    counted: bool = False
    modelled: bool = True
    sensor: str | None = None


def _rate(name: str, sensor: str) -> Resource:
    """Return a resource that is a rate of bytes."""
    return Resource(name, f'{name} <= 75% for 15s', 'MB/s', throttleable=True,
                    sensor=sensor)


def _signal(name: str, example: str, sensor: str,
            modelled: bool = False) -> Resource:
    """Return a signal of harm to the primary."""
    return Resource(name, example, attributable=False, modelled=modelled,
                    sensor=sensor)


#: In the order in which messages list them.  ``net_in`` and ``net_out`` are
#: traffic on the host's link, ``disk_in`` writes and ``disk_out`` reads.
#: ``pressure`` is the share of time in which a task of the primary waits for a
#: CPU, ``steal`` the CPU time that an underlying hypervisor takes.  ``membw``
#: is in percent of memory bandwidth, ``llc`` of the last-level cache.  A probe
#: is a value from the operator's own command or service.
TABLE = (
    Resource('cpu', 'cpu <= 90% for 10s on aggregate:secondary', 'CPUs',
             throttleable=True),
    Resource('mem', 'mem <= 90% for 30s', 'MiB', sensor='memory'),
    _rate('net_in', 'network'),
    _rate('net_out', 'network'),
    _rate('disk_in', 'disk'),
    _rate('disk_out', 'disk'),
    Resource('slots', 'slots <= 3 on host:node1', 'secondaries', static=True,
             counted=True),
    Resource('cores', 'cores <= 4 on host:node1', 'CPUs', static=True),
    # Memory that instances hold; models only.
    Resource('memory', '', 'MiB', static=True),
    _signal('pressure', 'pressure <= 20% for 15s', 'pressure', modelled=True),
    _signal('steal', 'steal <= 5% for 15s', 'steal'),
    _signal('membw', 'membw <= 70% for 15s', 'resctrl'),
    _signal('llc', 'llc <= 50% for 15s', 'resctrl'),
    _signal('probe', 'probe:p99_ms <= 20 for 5s on host:node1', 'probe'),
)

BY_NAME: Mapping[str, Resource] = {one.name: one for one in TABLE}

#: Resources whose use changes only by an operation (Boettger 2012, section
#: 4.3.5).
STATIC = frozenset(one.name for one in TABLE if one.static)
#: Resources of which an agent cannot limit an instance: it uses its part from
#: its first second.
UNTHROTTLED = frozenset(one.name for one in TABLE if not one.throttleable)
#: Rates of links and disks that an agent can limit.
RATES = tuple(one.name for one in TABLE
              if one.throttleable and one.unit == 'MB/s')
#: The unit of the amounts of each measured resource.
UNITS: Mapping[str, str] = {one.name: one.unit for one in TABLE
                            if one.unit and not one.static}
#: Sensors, and the resources that each measures.
SENSORS: Mapping[str, tuple[str, ...]] = {
    sensor: tuple(one.name for one in TABLE if one.sensor == sensor)
    for sensor in dict.fromkeys(one.sensor for one in TABLE) if sensor}
