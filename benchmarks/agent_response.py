# SPDX-License-Identifier: Apache-2.0

"""Response of the controller to a primary, on a host and in the simulator.

On one bare host of one CPU a primary service asks for a square and for a
triangle between 20 % and 60 % of the host, while secondaries take all they
may.  The same demand goes through the simulator's controllers and its rule
for who gets what.  Both are means over all waves, by the time since a wave
began, in bins of a tenth of the control period.

    python3 tools/box bare benchmarks/agent_response.py [--waves 12] [--plot F]

``over`` is what the host was used above its set point in the half of a wave in
which the primary asks for more, ``under`` what was left below it in the other,
in percent of the host times seconds; what is noise cancels.
"""

import argparse
import json
import time

import agent_reaction
import numpy as np
import rig as rigs

from benchmarks import forms
from secondary_scheduler.agent import controller
from secondary_scheduler.simulation import control, sharing
from shell import say

LOW, HIGH = 20.0, 60.0
WAVE_S = 20.0
PERIOD_S = agent_reaction.PERIOD_S
BIN_S = PERIOD_S / 10
SECONDARIES = agent_reaction.SECONDARIES
SET_POINT = float(agent_reaction.THRESHOLD - agent_reaction.MARGIN)
LAW = control.Law(least=5.0, gain=1.0, slack=controller.SLACK, probe=2.0,
                  proportional=False)
#: CPU weights of primary, operations and a secondary: the latter go last.
WEIGHTS = (1.0, 1.0, 1e-3)


def wave(kind: str) -> np.ndarray:
    """Return what the primary asks for in each bin of a wave, in percent."""
    half = round(WAVE_S / BIN_S / 2)
    if kind == 'square':
        return np.repeat([HIGH, LOW], half)
    ramp = np.linspace(LOW, HIGH, half)
    return np.concatenate([ramp, ramp[::-1]])


def simulated(asked: np.ndarray, rest: float, phase: int) -> np.ndarray:
    """Return the use in each bin, (2, bins): the primary's, the host's.

    ``rest`` is what the host's other services use, the agent among them.  The
    controller acts every ten bins, the first time at ``phase``; the wave runs
    through twice, and the second one counts.
    """
    agents = control.Agents.fresh(1, SECONDARIES)
    which = np.ones(SECONDARIES, dtype=bool)
    host = np.zeros(SECONDARIES, dtype=np.int64)
    most = np.full(SECONDARIES, 100.0)
    rows = []
    since: list[np.ndarray] = []
    for number, demand in enumerate(np.tile(asked, 2)):
        if number % 10 == phase and since:
            use = np.mean(since, axis=0)
            control.control_hosts(
                agents, np.array([use.sum()]), np.array([SET_POINT]), LAW,
                use[1:].copy(), most, host, which)
            since = []
        guests = np.minimum(agents.caps, most)
        primary, others = sharing.share_host(demand, rest, guests, WEIGHTS)
        since.append(np.array([primary + others, *guests]))
        rows.append((primary, since[-1].sum()))
    return np.array(rows)[len(asked):].T


def measured(primary: rigs.Service, asked: np.ndarray, waves: int
             ) -> np.ndarray:
    """Return the use in each bin, (3, bins): primary's, host's, guests'."""
    found = []
    with rigs.watch(primary.group, f'hosts/{rigs.HOST}',
                    rigs.MACHINE) as watch:
        for number in range(waves + 1):
            # Not in step with the controller.
            began = time.monotonic() + 0.37 * PERIOD_S
            for place, demand in enumerate(asked):
                at = began + place * BIN_S
                time.sleep(max(0.0, at - time.monotonic()))
                if not place or demand != asked[place - 1]:
                    primary.ask(demand)
            if number:
                found.append((began, began + WAVE_S))
        time.sleep(2 * BIN_S)
    return np.mean([[watch.percent(at, at + BIN_S) for at in np.arange(
        begin, end - BIN_S / 2, BIN_S)] for begin, end in found], axis=0).T


def figures(use: np.ndarray) -> dict[str, float]:
    """Return what a wave cost, from the use in it."""
    more, less = np.split(use[1] - SET_POINT, 2)
    return {'over': float(more.sum() * BIN_S),
            'under': float(-less.sum() * BIN_S),
            'mean_total': float(use[1].mean())}


def plot(path: str, curves: dict[str, dict[str, np.ndarray]]) -> None:
    """Draw both waves, measured and simulated."""
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.6), sharey=True,
                                   layout='constrained')
    for axis, (kind, both) in zip(axes, curves.items(), strict=True):
        seconds = np.arange(len(both['measured'][0])) * BIN_S
        for name, style in (('simulated', '--'), ('measured', '-')):
            axis.plot(seconds, both[name][0], style, color='tab:blue',
                      label=f'primary, {name}')
            axis.plot(seconds, both[name][1], style, color='tab:orange',
                      label=f'all, {name}')
        axis.axhline(SET_POINT, color='grey', linewidth=0.8)
        axis.set(title=kind, xlabel='seconds since the wave began',
                 ylim=(0, 105))
    axes[0].set_ylabel('percent of the host')
    axes[0].legend(loc='lower right', fontsize='small')
    figure.savefig(path)


def main() -> None:
    """Measure both waves, compare, print JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--waves', type=int, default=12,
                        help='of each kind (default %(default)s)')
    parser.add_argument('--plot', metavar='FILE', help='draw the responses')
    forms.add_quick(parser, waves=1)
    options = parser.parse_args()
    curves: dict[str, dict[str, np.ndarray]] = {}
    with rigs.quiet() as rig:
        rig.boot(SECONDARIES, 'cpu')
        with rigs.service() as primary, agent_reaction.controlled(
                rig, 'priority'):
            for kind in ('square', 'triangle'):
                asked = wave(kind)
                use = measured(primary, asked, options.waves)
                rest = float((use[1] - use[0] - use[2]).mean())
                curves[kind] = {
                    'simulated': np.mean([simulated(asked, rest, phase)
                                          for phase in range(10)], axis=0),
                    'measured': use}
                say(f'{kind}: ' + '; '.join(
                    f'{name} {figures(use)}'
                    for name, use in curves[kind].items()))
    if options.plot:
        plot(options.plot, curves)
    print(json.dumps({kind: {
        **{name: {key: round(value, 2) for key, value in figures(use).items()}
           for name, use in both.items()},
        'rms': round(float(np.mean((
            both['measured'][1] - both['simulated'][1]) ** 2) ** 0.5), 2)}
        for kind, both in curves.items()}))


if __name__ == '__main__':
    main()
