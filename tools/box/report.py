# SPDX-License-Identifier: Apache-2.0

"""Figures, table and HTML report of the demo."""

import base64
from collections import defaultdict
import html
import io
import math
import random

import layout
import pauses
import workload

#: How often a run's seconds are drawn anew to know how sure its p99 is.
RESAMPLES = 400
#: What is told of each run and phase, by its name in the figures.
FIGURES = {'primary_p50_ms': 'p50_ms', 'primary_p95_ms': 'p95_ms',
           'primary_p99_ms': 'p99_ms', 'other_p99_ms': 'other_p99_ms',
           'primary_tps': 'tps', 'machine_held_up': 'held_up'}
HOLDS = {True: 'yes', False: 'NO', None: 'n/a'}
EXPLANATION = '''\
<p>On each of {hosts} real compute hosts a PostgreSQL server (the
<b>primary</b>) does work that Nova does not know of. The same clients' load
runs alone and then with <b>secondary</b> instances booted through the Nova
API. In phase (c) the primary of {burst} needs most of its host.</p>
<p><b>What to look for.</b> The dashed line is the policy
(<code>cpu &lt;= {threshold}% for {timelimit}s</code>).
Before the burst the secondaries (light)
fill each host up to just under the line. When the burst begins, the agent on
that host throttles them within a control period; as that does not suffice,
Watcher moves one away and suspends the others. When calm has returned they
come back, with their memory: no unit of their work is lost.</p>'''


def percentile(values: list[float], q: float) -> float:
    """Return the q-quantile of values, 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] \
        if ordered else 0.0


def _resampled_p99(rows: list[tuple[float, float]],
                   draw: random.Random) -> list[float]:
    """Return the p99 of latencies, (time, ms), had their seconds been others.

    Whole seconds are drawn (a block bootstrap): what delays one transaction
    delays its neighbours too.
    """
    seconds = defaultdict(list)
    for t, latency in rows:
        seconds[int(t)].append(latency)
    blocks = list(seconds.values())
    return [percentile([latency for block in draw.choices(
        blocks, k=len(blocks)) for latency in block], .99)
        for _ in range(RESAMPLES)] if blocks else [0.0] * RESAMPLES


def _interval(over: list[float], under: list[float]) -> list[float]:
    """Return where the ratio of two resampled figures is in 95 % of cases."""
    ratios = [a / b for a, b in zip(over, under, strict=True) if b]
    return [percentile(ratios, .025), percentile(ratios, .975)]


def _primary(run: dict, hosts: list[str], burst_host: str,
             draw: random.Random) -> dict:
    """Return throughput of all primaries and latency of one in each phase.

    The latency is that of the burst's host, which has a core of the machine
    for itself.  That of the others, which are on each other's cores as no
    real hosts are, is told beside it (``other_p99_ms``).  Phase c counts from
    the policy's timelimit on, in every run alike.
    """
    found = {}
    began = run['began']
    names = [name for name in began if name != 'end']
    for name, following in zip(names, [*names[1:], 'end'], strict=True):
        since = began[name] + (layout.TIMELIMIT if name == 'c' else 0)
        by_host = {host: run['clients'].latencies(name, host, since)
                   for host in hosts}
        rows = by_host.pop(burst_host)
        others = [latency for of_host in by_host.values()
                  for _, latency in of_host]
        latencies = [latency for _, latency in rows]
        found[name] = {
            'p50_ms': percentile(latencies, .50),
            'p95_ms': percentile(latencies, .95),
            'p99_ms': percentile(latencies, .99),
            'p99_resampled': _resampled_p99(rows, draw),
            'other_p99_ms': percentile(others, .99),
            'tps': (len(rows) + len(others)) / (began[following] - since),
            'held_up': (
                None if run['pauses'] is None else
                pauses.held_up(run['pauses'], began[name], began[following])
                / (began[following] - began[name]))}
    return found


def figures(hosts, burst_host, runs, watch, started_running, counters,
            operations, stages) -> dict:
    """Return every figure of the demo, and whether each promise holds."""
    result: dict = {'hosts': hosts, 'burst_host': burst_host}
    draw = random.Random(1)
    primary = {name: _primary(run, hosts, burst_host, draw)
               for name, run in runs.items()}
    for name, key in (('alone', 'usage_alone'), ('with', 'usage_with')):
        began = runs[name]['began']
        result[key] = workload.mean_usage(
            runs[name]['rows'], hosts, began['b'], began['end'])
    for key, figure in FIGURES.items():
        result[key] = {
            phase: {run: primary[run][phase][figure] for run in primary
                    if phase in primary[run]}
            for phase in primary['alone']}
    result['primary_p99_with_to'] = {
        phase: {run: _interval(primary['with'][phase]['p99_resampled'],
                               primary[run][phase]['p99_resampled'])
                for run in primary if run != 'with' and phase in primary[run]}
        for phase in primary['alone']}
    done = {}
    for operation in operations:
        if operation['state'] == 'SUCCEEDED':
            done[operation['kind']] = done.get(operation['kind'], 0) + 1
    result.update(
        secondary_work_units=watch.units.done,
        work_units_lost=watch.units.lost, operations=done,
        operations_failed=sum(o['state'] == 'FAILED' for o in operations),
        carried_out=_carried_out(operations, watch.servers),
        violations=counters.get('violations', 0),
        invalidations=counters.get('invalidations', 0),
        floored_s=counters.get('floored_s', 0.0), counters=counters,
        stages=[{stage: round(t - min(batch.values()), 3)
                 for stage, t in sorted(batch.items(), key=lambda i: i[1])}
                for batch in stages],
        returned=(watch.running() / started_running if started_running
                  else 0.0),
        servers={watch.servers[uuid]: state
                 for uuid, state in watch.states().items()},
        history=[{'t': round(t - runs['with']['began']['b'], 1),
                  'server': watch.servers[uuid], 'status': status,
                  'host': host} for t, uuid, status, host in watch.history])
    (result['seconds_window_to_first_api_call'],
     result['windows_without_call']) = first_call(stages)
    result['promises'] = _promises(result)
    return result


def first_call(stages: list[dict]) -> tuple[float | None, int]:
    """Return the seconds from the first window to the first API call.

    The call may be another batch's: a round of the CONTINUOUS audit that
    begins as the report arrives decides on the violation as well.  A window
    without any call before the next one does not count, since the policy may
    hold again when it is decided on: the second number says how many passed.
    """
    asked = [one for one in stages if 'window' in one]
    rounds = [one['first_api_call'] for one in stages
              if 'window' not in one and 'first_api_call' in one]
    for passed, batch in enumerate(asked):
        until = min((one['report'] for one in asked[passed + 1:]),
                    default=math.inf)
        calls = [call for call in rounds if batch['report'] <= call < until]
        if 'first_api_call' in batch:
            calls.append(batch['first_api_call'])
        if calls:
            return round(min(calls) - batch['window'], 3), passed
    return None, len(asked)


def _carried_out(operations: list[dict], servers: dict[str, str]
                 ) -> list[dict]:
    """Return what Watcher did, and what each operation waited for."""
    names = {one['parameters'].get('action'): (
        one['kind'], servers.get(uuid, uuid)) for one in operations
        for uuid in [one['parameters']['resource_id']]}
    return [{'operation': one['kind'],
             'server': names[one['parameters'].get('action')][1],
             'from': one['parameters'].get('source'),
             'to': one['parameters'].get('target'), 'state': one['state'],
             'after': [' '.join(names[parent]) for parent in
                       one['parameters'].get('parents') or ()]}
            for one in operations]


def _promises(f: dict) -> list[dict]:
    """Return what is promised, and whether it holds.

    ``holds`` is None where this machine cannot show it: a p99 is above its
    limit, but the 95 % interval of its ratio to some run without secondaries
    begins below: to the primary alone, to that once more, or to the primary
    beside guests of no host, on the machine's other CPUs as those of the
    other hosts are: no real host has them.  Or the machine was held up: for
    the hundredth part of a phase, which alone decides its p99 (and that of a
    run to compare with, next to which all looks well), or for as much of it
    as its throughput falls short.
    """
    def ratio(figure, phase, run='with'):
        values = f[f'primary_{figure}'][phase]
        return values[run] / values['alone'] if values['alone'] else 0.0

    def noise(figure, phase):
        values = f[f'primary_{figure}'][phase]
        return ', '.join(f'{name} {ratio(figure, phase, run):.3f}'
                         for name, run in (('A/A', 'again'),
                                           ('machine', 'machine'))
                         if run in values)

    def p99_holds(phase, limit):
        if ratio('p99_ms', phase) <= limit:
            return None if held_up(phase, 'alone') >= .01 else True
        least = min(low for low, _ in f['primary_p99_with_to'][phase].values())
        return None if least <= limit or held_up(phase) >= .01 else False

    def tps_holds(phase, limit):
        value = ratio('tps', phase)
        if value >= limit:
            return True
        return None if value + held_up(phase) >= limit else False

    def held_up(phase, run='with'):
        return f['machine_held_up'][phase][run] or 0.0  # None: not seen

    def sure(phase):
        low, high = f['primary_p99_with_to'][phase]['alone']
        text = f'95 %: {low:.2f} to {high:.2f}, {noise("p99_ms", phase)}'
        if None in f['machine_held_up'][phase].values():
            return text
        return text + (f'; held up {100 * held_up(phase):.1f} % '
                       f'(alone {100 * held_up(phase, "alone"):.1f} %)')

    gain = f['usage_with'] - f['usage_alone']
    span = f['seconds_window_to_first_api_call']
    kinds = f['operations']
    lines = [
        ('usage_with - usage_alone >= 25 points', gain, gain >= 25, ''),
        ('invalidations == 0', f['invalidations'],
         f['invalidations'] == 0, ''),
        ('work_units_lost == 0', f['work_units_lost'],
         f['work_units_lost'] == 0, ''),
        ('returned == 1.0', f['returned'], f['returned'] == 1.0, ''),
        ('live migrations >= 1', kinds.get('migrate', 0),
         kinds.get('migrate', 0) >= 1, ''),
        ('suspends >= 1', kinds.get('suspend', 0),
         kinds.get('suspend', 0) >= 1, ''),
        ('resumes >= 1', kinds.get('resume', 0),
         kinds.get('resume', 0) >= 1, ''),
        ('seconds_window_to_first_api_call <= 2', span,
         span is not None and span <= 2,
         f'windows without a call: {f["windows_without_call"]}')]
    for phase, p99, tps in (('b', 1.15, 0.98), ('c', 1.25, 0.95)):
        lines += [
            (f'p99 in ({phase}) <= {p99} x alone', ratio('p99_ms', phase),
             p99_holds(phase, p99), sure(phase)),
            (f'tps in ({phase}) >= {tps} x alone', ratio('tps', phase),
             tps_holds(phase, tps), noise('tps', phase))]
    return [{'promise': text, 'value': value, 'holds': holds,
             'noise': spread} for text, value, holds, spread in lines]


def _number(value) -> str:
    if value is None:
        return '-'
    return f'{value:.3f}' if isinstance(value, float) else str(value)


def table(f: dict) -> str:
    """Return the figures as text."""
    lines = ['', f"{'promise':42} {'measured':>10}  holds  noise"]
    for line in f['promises']:
        lines.append(f"{line['promise']:42} {_number(line['value']):>10}  "
                     f"{HOLDS[line['holds']]:5}  "
                     f"{line['noise']}")
    if any(line['holds'] is None for line in f['promises']):
        lines += ['', 'n/a: this machine cannot show it. The p99 is above its '
                  'limit, but the 95 % interval is not:',
                  'not that of its ratio to the primary alone, or to that '
                  'once more ("A/A"), or to the primary',
                  'beside guests of no host, which are on this machine as '
                  'those of the other hosts are, and as',
                  'no guest of another real host is ("machine"). Or the '
                  'machine itself did not run ("held up")',
                  'for 1 % of the phase, in this run or in the one alone, or '
                  'for as much of it as tps falls short.']
    runs = list(f['primary_tps']['b'])
    lines += ['', f"{'':24}" + ''.join(f'{run:>12}' for run in runs)]
    for phase in f['primary_tps']:
        for figure in FIGURES:
            values = f[figure][phase]
            lines.append(f'({phase}) {figure:20}' + ''.join(
                f"{'-':>12}" if values.get(run) is None
                else f'{values[run]:12.4g}' for run in runs))
    lines += [
        '', f"mean CPU of all hosts: {f['usage_alone']:.1f} % alone, "
        f"{f['usage_with']:.1f} % with secondaries",
        f"secondary work units: {f['secondary_work_units']}, lost: "
        f"{f['work_units_lost']}",
        f"operations: {f['operations']}, failed: {f['operations_failed']}, "
        'begun when others had ended: '
        f"{sum(bool(one['after']) for one in f['carried_out'])}",
        f"violations: {_number(f['violations'])}, at the floor for "
        f"{f['floored_s']:.1f} instance-seconds", '']
    return '\n'.join(lines)


def _plots(hosts, burst_host, runs, watch) -> str:
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot

    rows, began = runs['with']['rows'], runs['with']['began']
    zero = began['b']
    figure, axes = pyplot.subplots(
        len(hosts) + 1, 1, figsize=(11, 2.3 * (len(hosts) + 1)),
        sharex=True, constrained_layout=True)
    times = [row['t'] - zero for row in rows]
    for axis, host in zip(axes, hosts, strict=False):
        primary = [row[host][0] for row in rows]
        guests = [row[host][1] for row in rows]
        axis.stackplot(times, primary, guests, labels=('primary',
                       'secondaries'), colors=('#1f4e79', '#9cc3e6'))
        axis.axhline(layout.THRESHOLD, color='#c00000', ls='--', lw=1,
                     label='policy')
        axis.set_ylim(0, 110)
        axis.set_ylabel(f'{host}\nCPU %')
        seen = [(t - zero, f'{watch.servers[uuid]} {status.lower()}')
                for t, uuid, status, where in watch.history
                if where == host and t > zero + 1]
        for number, (t, text) in enumerate(seen):
            axis.axvline(t, color='#555555', lw=.6)
            axis.text(t, 101 - 11 * (number % 4), text, fontsize=6,
                      bbox={'fc': 'white', 'ec': 'none', 'pad': .5,
                            'alpha': .8})
        for phase in ('c', 'd'):
            axis.axvline(began[phase] - zero, color='black', lw=1, ls=':')
    axes[0].legend(loc='lower right', fontsize=7, ncol=3)
    last = axes[-1]
    for name, colour in (('alone', '#7f7f7f'), ('with', '#c55a11')):
        if name not in runs:
            continue
        run, origin = runs[name], runs[name]['began']['b']
        buckets: dict[int, list[float]] = {}
        for phase in ('b', 'c', 'd'):
            for t, latency in run['clients'].latencies(phase, burst_host):
                buckets.setdefault(int((t - origin) // 5) * 5,
                                   []).append(latency)
        points = sorted(buckets)
        last.plot(points, [percentile(buckets[p], .95) for p in points],
                  color=colour, label=f'p95, {name}')
        last.plot(points, [percentile(buckets[p], .5) for p in points],
                  color=colour, ls=':', label=f'p50, {name}')
    last.set_yscale('log')
    last.set_ylabel(f'{burst_host}: primary\nlatency ms')
    last.set_xlabel('seconds since the secondaries\' run began')
    last.legend(fontsize=7, ncol=4)
    out = io.BytesIO()
    figure.savefig(out, format='png', dpi=110)
    pyplot.close(figure)
    return base64.b64encode(out.getvalue()).decode()


def write_html(path, f, hosts, burst_host, runs, watch, servers) -> None:
    """Write the report, one file with its pictures in it."""
    explanation = EXPLANATION.format(
        hosts=len(hosts), burst=burst_host, threshold=layout.THRESHOLD,
        timelimit=layout.TIMELIMIT)
    promises = ''.join(
        f"<tr><td>{html.escape(line['promise'])}</td>"
        f"<td>{_number(line['value'])}</td>"
        f"<td>{HOLDS[line['holds']]}</td>"
        f"<td>{line['noise']}</td></tr>" for line in f['promises'])
    history = ''.join(
        f"<tr><td>{row['t']}</td><td>{row['server']}</td>"
        f"<td>{row['status']}</td><td>{row['host']}</td></tr>"
        for row in f['history'])
    carried_out = ''.join(
        f"<tr><td>{row['operation']}</td><td>{row['server']}</td>"
        f"<td>{row['from'] or ''}</td><td>{row['to'] or ''}</td>"
        f"<td>{', '.join(row['after'])}</td><td>{row['state'].lower()}</td>"
        '</tr>' for row in f['carried_out'])
    sizes = ', '.join(f'{host} has {size:g} CPUs' for host, size in
                      layout.host_sizes(layout.load_settings()).items())
    path.write_text(f'''<!doctype html><meta charset="utf-8">
<title>secondary_scheduler: the main job</title>
<style>body{{font:15px sans-serif;max-width:70em;margin:2em auto}}
td,th{{padding:.15em .8em;text-align:left;border-bottom:1px solid #ddd}}
img{{max-width:100%}}</style>
<h1>Secondaries on idle capacity, out of the way in time</h1>
{explanation}
<img src="data:image/png;base64,{_plots(hosts, burst_host, runs, watch)}">
<h2>What is promised, and what was measured</h2>
<table><tr><th>promise</th><th>measured</th><th>holds</th><th>noise</th></tr>
{promises}</table>
<h2>All figures</h2><pre>{html.escape(table(f))}</pre>
<h2>What Watcher did</h2>
<table><tr><th>operation</th><th>server</th><th>from</th><th>to</th>
<th>begun after</th><th>state</th></tr>
{carried_out}</table>
<h2>States of the servers, as Nova told them</h2>
<table><tr><th>s</th><th>server</th><th>state</th><th>host</th></tr>
{history}</table>
<p>{sizes}. Source: <code>python3 tools/box
demo --seed {f.get('seed', 1)}</code>.</p>
''')
