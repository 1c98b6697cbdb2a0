# SPDX-License-Identifier: Apache-2.0

"""Options of the group [secondary_agent] for the CPUs of secondaries."""

from oslo_config import cfg

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        'cpu_affinity',
        default='none',
        help="""
Driver that chooses the CPUs on which secondaries run, by the name of an entry
point in ``secondary_scheduler.cpu_affinity``:

* ``none``: secondaries run on all CPUs that Nova gives them, without the
  dedicated CPUs of primaries
* ``pool``: all secondaries share the fewest whole cores that hold their share
  and what primaries use there. Primaries find the other cores free, so that
  they wait less for a CPU
* ``round-robin``, ``resource``, ``interference``: each vCPU has one CPU. Two
  busy secondaries on a CPU then leave other CPUs idle, so that they lose work

The agent writes ``cpuset.cpus`` of the secondaries' cgroups, always a part of
their first values, and never those of a primary. It restores them with
``none``, and with ``secondary-agent release``. An unknown driver stops the
agent.
"""),
    cfg.BoolOpt(
        'cpu_affinity_advice',
        default=False,
        help="""
Whether the driver ``cpu_affinity`` only advises. ``secondary-agent status``
then shows the CPUs that each secondary would get, beside the slow-down that it
has now. Nothing is written, and sets that were written before are restored.
"""),
    cfg.StrOpt(
        'cpu_affinity_profiles',
        help="""
File of JSON with the profiles of workload classes: what a guest of
each class uses alone, and how much it slows down beside each other class.
``secondary-agent characterise`` measures them. A file that cannot be read or
is not valid is not used; the log and ``secondary-agent status`` name the
reason. Without profiles, all secondaries count as busy and alike.
"""),
    cfg.FloatOpt(
        'cpu_affinity_period',
        default=10.0,
        min=1.0,
        max=3600.0,
        help="""
Seconds between two decisions of the driver ``cpu_affinity``. A secondary that
starts, ends or wakes, or a change of the CPUs that may be used, is followed by
a decision within a second.
"""),
    cfg.FloatOpt(
        'cpu_affinity_idle_below',
        default=2.5,
        min=0.0,
        max=100.0,
        help="""
Use of CPU below which a secondary is idle, in percent of one CPU for each of
its vCPUs; time in which it waits for a CPU counts as use. Idle secondaries do
not count when CPUs are chosen. A low value keeps the CPUs of secondaries
through short pauses.
"""),
    cfg.FloatOpt(
        'cpu_affinity_residence',
        default=60.0,
        min=0.0,
        max=86400.0,
        help="""
Seconds for which ``pool`` leaves a secondary on its CPUs. One that wakes, or
whose CPUs are taken away, does not wait. Each move costs the content of its
caches.
"""),
    cfg.IntOpt(
        'cpu_affinity_moves',
        default=4,
        min=0,
        max=10000,
        help="""
Secondaries that ``pool`` moves at most in one decision for the sake of speed.
Those that must move do not count.
"""),
    cfg.FloatOpt(
        'cpu_affinity_gain',
        default=0.02,
        min=0.0,
        max=1.0,
        help="""
Predicted gain in mean performance, as a part of it, below which ``pool`` moves
nothing. Predictions err by some percent, and a move for less than their error
is a move for nothing.
"""),
]
