# SPDX-License-Identifier: Apache-2.0

"""The main job: secondaries on the idle capacity of three busy-or-idle hosts.

Runs inside the box, after ``up``.  The same schedule of the primary (calm, a
burst on one host, calm) runs alone, twice (to know the noise), beside guests
of no host, and with secondaries; then a table, a report and figures as JSON.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import openstack

import control
import layout
import pauses
import report
import secondaries
import seed as seeding
from shell import BoxError, say
import workload

#: The secondaries: (name, flavor, lease label or None), booted through Nova.
#: The hosts have places for twelve, four each: the burst's host holds three or
#: four of these, and the others have places for all of those but two.
FLEET = (('render-1', 'secondary.low', 'render'),
         ('render-2', 'secondary.low', 'render'),
         ('fold-1', 'secondary', None), ('fold-2', 'secondary', None),
         ('fold-3', 'secondary', None), ('fold-4', 'secondary', None),
         ('mine-1', 'secondary', None), ('mine-2', 'secondary', None),
         ('train-1', 'secondary.high', None),
         ('train-2', 'secondary.high', None))
#: A burst that is none shows nothing: how often it is tried.
ATTEMPTS = 3
RUN = layout.STATE / 'demo'


def one_run(name: str, hosts, burst_host, phases, seed, rates) -> dict:
    """Run the schedule once; return what was measured of the primary."""
    say(f'{name}: {sum(p.seconds for p in phases)} s')
    clients = workload.Clients(RUN / name.replace(' ', '-'), phases, hosts,
                               burst_host, seed, rates)
    sampler, watch = workload.Sampler(hosts), pauses.Pauses()
    sampler.start()
    began = clients.run(lambda phase: say(
        f'  ({phase.name}) ' + (f'burst on {burst_host}' if phase.burst
                                else 'calm')))
    return {'began': began, 'rows': sampler.stop(), 'clients': clients,
            'pauses': watch.stop()}


def primary_share(run, host: str) -> float:
    """Return what a primary took of its host in the burst, in percent."""
    return statistics.fmean(
        row[host][0] for row in run['rows']
        if run['began']['c'] <= row['t'] < run['began']['d'])


def fleet_hosts(cloud, servers) -> dict[str, list[str]]:
    """Return the servers on each host."""
    found: dict[str, list[str]] = {}
    for server in cloud.compute.servers(all_projects=True):
        if server.id in servers:
            found.setdefault(server.compute_host, []).append(server.id)
    return found


def remove(cloud) -> None:
    """Delete what an earlier, interrupted demo may have left."""
    names = {name for name, _, _ in FLEET}
    left = [s for s in cloud.compute.servers(all_projects=True)
            if s.name in names]
    for server in left:
        cloud.compute.delete_server(server.id)
    for server in left:
        cloud.compute.wait_for_delete(server, wait=240)


def main() -> None:
    """Run the demo; exit 0 if every line that it promises holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--report', default='box-demo.html')
    parser.add_argument('--json')
    parser.add_argument('--quick', action='store_true')
    options = parser.parse_args()
    cloud = openstack.connect()
    # Its secondaries have no lease.
    with seeding.without_leases(cloud):
        promises = show(cloud, options)
    sys.exit(any(line['holds'] is False for line in promises))


def show(cloud, options: argparse.Namespace) -> list[dict]:
    """Show the main job; return the lines that it promises."""
    hosts = layout.host_names(layout.load_settings())
    phases = workload.schedule(options.quick)
    user = openstack.connect(username='demo', project_name='demo')
    remove(cloud)
    control.forget_orphans()
    seeding.demo_objects(cloud)
    workload.prepare(hosts)

    burst_host = hosts[0]
    rates = workload.calibrate(RUN / 'calibration', burst_host)
    say(f'the primaries do {rates.calm} transactions a second when calm, '
        f'{rates.burst} in a burst')
    runs = {}
    if not options.quick:
        runs['again'] = one_run('primary alone, to compare with', hosts,
                                burst_host, phases[:2], options.seed, rates)
    # What it does to a primary that hosts share one machine.
    with workload.neighbours(hosts):
        runs['machine'] = one_run('primary beside guests of no host',
                                  hosts, burst_host, phases[:2],
                                  options.seed, rates)
    # Last, since it ends calm: a host is closed for a while after a burst.
    runs['alone'] = one_run('primary alone', hosts, burst_host, phases,
                            options.seed, rates)
    say('booting the secondaries through the Nova API')
    servers = secondaries.boot(user, FLEET)
    secondaries.wait_working(servers)
    placed = fleet_hosts(cloud, servers)
    say('  ' + ', '.join(f'{host}: {len(found)}'
                         for host, found in sorted(placed.items())))
    # Whatever is lost or broken counts, in a run that shows nothing too.
    before = secondaries.agent_counters(hosts)
    watch = secondaries.Watch(cloud, servers, period=4.0)
    watch.poll()
    watch.start()
    started_running = watch.running()
    for left in reversed(range(ATTEMPTS)):
        since = time.time()
        runs['with'] = one_run('with secondaries', hosts, burst_host, phases,
                               options.seed, rates)
        # The last returns may still be under way; they are given some time.  A
        # server runs before Watcher notes that its operation has succeeded.
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and (
                watch.running() < started_running
                or secondaries.are_operated(cloud, since)):
            time.sleep(1)
        after = secondaries.agent_counters(hosts)
        counted = {k: after[k] - before.get(k, 0) for k in after}
        if not left or counted.get('violations'):
            break
        say('no secondary was preempted: the burst took '
            f'{primary_share(runs["with"], burst_host):.0f} % of {burst_host},'
            f' and {workload.BURST_PERCENT} when it was measured. Transactions'
            ' take less now; once more')
    watch.stop()
    figures = report.figures(
        hosts, burst_host, runs, watch, started_running, counted,
        secondaries.operations(cloud, since), secondaries.stages(since))
    figures['seed'] = options.seed
    path = pathlib.Path(options.report)
    report.write_html(path, figures, hosts, burst_host, runs, watch, servers)
    if options.json:
        pathlib.Path(options.json).write_text(
            json.dumps(figures, indent=1) + '\n')
    print(report.table(figures))
    say(f'report: {path}' + (f', figures: {options.json}'
                             if options.json else ''))
    remove(cloud)
    return figures['promises']


if __name__ == '__main__':
    try:
        main()
    except BoxError as exc:
        sys.exit(f'demo: {exc}')
