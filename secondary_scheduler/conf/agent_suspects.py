# SPDX-License-Identifier: Apache-2.0

"""Options of the group [secondary_agent] for suspects."""

from oslo_config import cfg

OPTS: list[cfg.Opt] = [
    cfg.BoolOpt(
        'suspects',
        default=False,
        help="""
Whether the agent looks for the secondaries that harm the primary, when a
signal fails (a policy on a probe, pressure, steal, membw or llc). Without it,
all secondaries are restrained. With it, the likeliest one is taken to the
floor for some seconds and released, again and again, until the signal has
followed it often enough. A confirmed one goes to the floor as soon as the
signal fails, and Watcher moves it first. Meanwhile the others keep their CPU.

The restraint of all secondaries waits for that at most for half of the
policy's time limit, and the last resort does not wait at all. It is off by
default because the primary is harmed for some seconds longer while the agent
looks, and because reports then have a field that older readers reject: enable
it after nova-scheduler and Watcher were upgraded.

The search begins with the secondary whose use of CPU, disks or link resembles
the signal. Use of disks is known only if ``disk_read_speed`` and
``disk_write_speed`` are set, and use of the link if its speed is known.
"""),
    cfg.IntOpt(
        'suspect_trial',
        default=4,
        min=1,
        max=60,
        help="""
Seconds in which a signal must hold after a suspect has come to the floor. It
should be at least the time that a probe takes to show a change, and at most
half of the time limit of policies. In twice this time the signal must fail
again after the suspect was released. An innocent secondary is at the floor for
about as long.
"""),
    cfg.IntOpt(
        'suspect_trials',
        default=3,
        min=1,
        max=100,
        help="""
Number of secondaries that are tried one after the other while a signal fails.
Then all are restrained. An acquitted secondary is not tried again for two
minutes, so when the signal fails the next time others are tried.
"""),
    cfg.IntOpt(
        'suspect_confirmation',
        default=600,
        min=10,
        max=86400,
        help="""
Seconds for which a confirmed suspect counts as such. Then it is treated like
the others until it is confirmed again, since its work may have changed.
"""),
]
