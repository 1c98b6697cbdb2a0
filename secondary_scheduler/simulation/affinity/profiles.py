# SPDX-License-Identifier: Apache-2.0

"""Profiles of the experiments with CPU affinity, and their drivers.

``doc/source/contributor/simulator.rst`` lists the fields of profiles.
"""

from collections.abc import Mapping
import dataclasses

from stevedore import driver, exception, extension

from secondary_scheduler.agent import cpu_topology
from secondary_scheduler.agent.kernel_files import explain, parse_cpus
from secondary_scheduler.agent.profile_files import read_profiles
from secondary_scheduler.cpu_affinity.base import (
    NAMESPACE,
    AffinityOptions,
    CpuAffinityDriver,
)
from secondary_scheduler.cpu_affinity.prediction import SlowdownEstimates
from secondary_scheduler.cpu_affinity.workload_profiles import (
    WorkloadProfiles,
)
from secondary_scheduler.model.topology import Topology, usable_cpus
from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation.affinity import thesis_host, truths
from secondary_scheduler.simulation.affinity.annealing import OracleAffinity


@dataclasses.dataclass(frozen=True)
class AffinityProfile(AffinityOptions):
    """Parameters of a run on one host, beside the options of drivers.

    * ``truths``: names of the true models, separated by commas;
    * ``host``: ``thesis`` for its twelve cores, or a folder like
      ``/sys/devices/system/cpu`` that describes others;
    * ``dedicated``: CPUs of it that primaries have for themselves, such as
      ``0-3,8``;
    * ``workloads``: ``thesis`` for its eight classes, or a JSON file with
      profiles of others (``cpu_affinity.workload_profiles.parse_profiles``);
    * ``period_s``: seconds between two decisions of ``resource`` and
      ``interference``; 0 decides when a guest comes, goes, wakes or becomes
      idle;
    * ``driver``: name of a driver to compare with those of the thesis, which
      decides at each change; ``none`` compares none, ``oracle`` is annealing
      with the true slow-downs;
    * ``confines``: the driver may use as many CPUs as ``interference`` uses
      for the same guests, otherwise all;
    * ``rounds``: decisions after which guests that are all there are measured
      again.  Each learns from the slow-downs since the last one;
    * ``annealing_steps``: assignments that the oracle tries;
    * ``shortest_s`` and ``longest_s``: bounds of the lengths of guests alone,
      in seconds.
    """

    name: str = ''
    truths: str = 't1'
    host: str = 'thesis'
    dedicated: str = ''
    workloads: str = 'thesis'
    period_s: float = 60.0
    driver: str = 'none'
    confines: bool = True
    rounds: int = 10
    annealing_steps: int = 4000
    shortest_s: float = 1800.0
    longest_s: float = 3000.0

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = set(self.truth_names) - set(truths.NAMES)
        if unknown or not self.truth_names:
            raise InputError('--set: truths are some of '
                             f'{",".join(truths.NAMES)}, not {self.truths!r}')
        if not 1 <= self.rounds <= 1000:
            raise InputError('--set: rounds is a number from 1 to 1000')
        if not 60 <= self.shortest_s <= self.longest_s <= 1e6:
            raise InputError('--set: shortest_s and longest_s are times from '
                             '60 to 1000000, and the former is not longer')

    @property
    def truth_names(self) -> tuple[str, ...]:
        """Names of the true models."""
        return tuple(filter(None, self.truths.split(',')))

    def topology(self) -> Topology:
        """Return the topology of the CPUs that secondaries may use.

        :raises InputError: if its folder cannot be read, or if primaries have
            all CPUs
        """
        try:
            every = (thesis_host.TOPOLOGY if self.host == 'thesis'
                     else cpu_topology.read_topology(self.host))
        except (OSError, ValueError) as exc:
            # Not the cause: the command would name the folder of traces.
            raise InputError(f'--set: host: {explain(exc)}') from None
        try:
            usable = usable_cpus(every, every.cpus,
                                 parse_cpus(self.dedicated, 'dedicated'))
        except ValueError as exc:
            raise InputError(f'--set: {exc}') from None
        if not usable:
            raise InputError(f'--set: dedicated={self.dedicated} leaves no '
                             'CPU of the host for secondaries')
        return every.restrict(usable)

    def workload_profiles(self) -> WorkloadProfiles:
        """Return the profiles of workload classes.

        :raises InputError: if their file cannot be read; the text has the
            place of the first fault
        """
        if self.workloads == 'thesis':
            return thesis_host.PROFILES
        return read_profiles(self.workloads)

    @property
    def has_thesis_classes(self) -> bool:
        """Whether the classes are those of the thesis, or more."""
        return self.workload_profiles().uses.keys() >= set(
            thesis_host.CLASSES)

    def compared_driver(self, truth: SlowdownEstimates) -> CpuAffinityDriver:
        """Return the driver that is compared with those of the thesis.

        :param truth: true slow-downs, for the oracle only
        """
        if self.driver == 'oracle':
            return OracleAffinity(truth, self.annealing_steps)
        return self.load_driver(self.driver)

    def load_driver(self, name: str, workloads: WorkloadProfiles
                    | None = None) -> CpuAffinityDriver:
        """Return a driver with profiles, by default the measured ones.

        :raises InputError: if no driver has this name
        """
        try:
            make = driver.DriverManager(NAMESPACE, name).driver
        except exception.NoMatches:
            known = extension.ExtensionManager(NAMESPACE).names()
            raise InputError(
                f'there is no driver {name} in {NAMESPACE}; there are: '
                + (', '.join(sorted(known)) or 'none; install this package '
                   'again')) from None
        options = AffinityOptions(**{
            one.name: getattr(self, one.name)
            for one in dataclasses.fields(AffinityOptions)})
        found: CpuAffinityDriver = make(
            workloads or self.workload_profiles(), options)
        return found


#: Algorithms, thresholds and truth of Kaffes 2015.
THESIS = AffinityProfile(name='thesis', resource_tie_break='thesis')

#: All functions of this project, on all true models.
OURS = AffinityProfile(name='ours', truths='t1,t2,t3', driver='pool')

#: The bound.
ORACLE = dataclasses.replace(OURS, name='oracle', driver='oracle',
                             annealing_steps=1000)

PROFILES: Mapping[str, AffinityProfile] = {one.name: one for one in (
    THESIS, OURS, ORACLE)}
