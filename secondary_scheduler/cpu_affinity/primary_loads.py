# SPDX-License-Identifier: Apache-2.0

"""Primaries of a host as loads beside secondaries."""

from secondary_scheduler.cpu_affinity.assignment import FixedLoad
from secondary_scheduler.cpu_affinity.base import AffinityView, PrimaryUse
from secondary_scheduler.cpu_affinity.pool_cores import fixed_part
from secondary_scheduler.cpu_affinity.prediction import SlowdownModel


def primary_loads(view: AffinityView, model: SlowdownModel, weight: float
                  ) -> tuple[dict[int, FixedLoad], list[FixedLoad]]:
    """Return primaries on a CPU, and primaries that may run on all.

    :param weight: weight of a CPU of primaries beside a vCPU of secondaries
    """
    def load(one: PrimaryUse, cpus: float) -> FixedLoad:
        return FixedLoad(model.class_name(one.workload_class), cpus * weight)

    # Where floating primaries ran is where they found room so far.
    part = fixed_part(view)
    return ({cpu: load(one, one.cpus * part)
             for cpu, one in view.primaries.items()
             if cpu in view.topology.cpus and one.cpus * part > 1e-9},
            [load(one, one.cpus) for one in view.floating if one.cpus > 0])
