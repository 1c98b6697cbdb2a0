# SPDX-License-Identifier: Apache-2.0

"""Options of filter and weighers in group [secondary_scheduler]."""

from oslo_config import cfg

from secondary_scheduler.conf import policy

GROUP = policy.GROUP

OPTS: list[cfg.Opt] = [
    cfg.FloatOpt(
        'headroom_weight_multiplier',
        default=1.0,
        mutable=True,
        help="""
How much ``SecondaryHeadroomWeigher`` counts when nova-scheduler chooses a host
for a secondary. The weigher prefers the host on which one more secondary would
get the largest share of CPU below the strictest policy, as the agents reported
it last. A larger number makes it outweigh Nova's other weighers, a negative
one packs secondaries onto few hosts, and 0 switches it off. It has no effect
on primaries. It may be set for an aggregate by metadata of the same name.
"""),
    cfg.FloatOpt(
        'interference_weight_multiplier',
        default=0.0,
        mutable=True,
        help="""
How much ``SecondaryInterferenceWeigher`` counts when nova-scheduler chooses a
host for a secondary. The weigher prefers the host where the instance and its
neighbours together lose the least performance, as the agents predicted it last
for the workload class of the instance: the one that its flavor names in the
extra spec ``lifecycle:workload_class``, else that of its image and flavor. The
weight of a host is the predicted part of performance that is left, from 0 to
1, and is not stretched: with a multiplier of 10, a host with 0.1 more weighs 1
more, as much as the whole range of another weigher with the multiplier 1. A
host of which nothing is predicted has the mean weight of the others. 0, the
default, switches the weigher off, and so do agents without CPU affinity. A
negative number makes no sense. It has no effect on primaries. It may be set
for an aggregate by metadata of the same name.
"""),
    cfg.FloatOpt(
        'highest_predicted_slowdown',
        min=1.0,
        mutable=True,
        help="""
The highest slow-down at which ``SecondaryPolicyFilter`` admits a new secondary
to a host, as the host's agent predicted it last for the workload class of the
instance on the best CPUs for it. 2 admits an instance where it is expected to
take twice the time that it would take alone on its CPUs. With a lower value
hosts stay emptier, and instances without a host on which they would be fast
enough fail with "No valid host". Moves are exempt, since they relieve
primaries, and so are servers of leases, for which the lease service has chosen
the host, and instances and hosts without a prediction. By default there is no
limit.
"""),
    cfg.FloatOpt(
        'lookup_budget',
        default=1.0,
        min=0.0,
        max=30.0,
        mutable=True,
        help="""
Seconds that one scheduling decision may spend on asking Nova's database which
instances are secondaries, so that Nova's CPU, RAM, disk, I/O, instance and
build-failure weighers do not count them. Normally no query is needed: the
scheduler knows the instances of each host and remembers which ones are
secondaries. It queries all such hosts at once when an instance is new to it or
a host is building one. When the time is used up, or the database fails, the
remaining hosts are weighed with Nova's own numbers and queried in the next
decision. 0 disables queries.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return (group, options), for oslo-config-generator."""
    return [(GROUP, OPTS)]
