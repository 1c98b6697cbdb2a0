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
