# SPDX-License-Identifier: Apache-2.0

"""The least number of moves that repairs a cluster, by OR-Tools' CP-SAT.

The rules are those of a plan: an instance moves at most once, nothing moves
to a violated host, and in the end each host holds what it may and peers of an
anti-affinity group are apart.  That the moves can be put in an order is not
asked for, so it may find fewer than there are: a bound for any planner.
"""

from collections import defaultdict

from ortools.sat.python import cp_model

from secondary_scheduler.model.cluster import Cluster

#: Deterministic seconds of the solver; the same everywhere.
LIMIT = 60.0


def least_moves(cluster: Cluster) -> int | None:
    """Return the optimum; None if it was not proved within the limit."""
    model = cp_model.CpModel()
    open_hosts = [name for name, host in cluster.hosts.items()
                  if not host.violated]
    on: dict[str, list[tuple[str, cp_model.IntVar]]] = defaultdict(list)
    stays = []
    for uuid, one in cluster.instances.items():
        places = {name: model.new_bool_var('')
                  for name in {*open_hosts, str(one.host)}}
        model.add_exactly_one(places.values())
        stays.append(places[str(one.host)])
        for name, place in places.items():
            on[name].append((uuid, place))
    for name, host in cluster.hosts.items():
        there = [(cluster.instances[uuid], place) for uuid, place in on[name]]
        most = {policy.resource: policy.threshold for policy in host.policies}
        model.add(sum(one.vcpus * place for one, place in there)
                  <= int(most['cores']))
        model.add(sum(one.memory_mb * place for one, place in there)
                  <= int(most['memory']))
        groups = defaultdict(list)
        for one, place in there:
            if one.anti_affinity is not None:
                groups[one.anti_affinity].append(place)
        for places_of_peers in groups.values():
            model.add_at_most_one(places_of_peers)
    model.maximize(sum(stays))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = LIMIT
    if solver.solve(model) != cp_model.OPTIMAL:
        return None
    return len(stays) - round(solver.objective_value)
