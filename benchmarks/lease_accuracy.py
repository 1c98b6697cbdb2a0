# SPDX-License-Identifier: Apache-2.0

"""Accuracy of predicted suspensions and resumptions of leases.

See Sotomayor 2010, section 7.4.

As in the thesis's first experiment, leases of some guests on each host are
suspended and resumed through Nova, one guest after the other: on each host,
the hosts side by side, or on the whole site where their memory is kept in one
place.  Haizea's model, a time for each command and a rate (eq. 7.2), is fitted
to the odd rounds and predicts the even ones.  Accuracy is observed divided by
predicted: above 1 something reserved would have begun late, below 1 hosts were
idle.

Guests have written noise to all of their memory, and idle.  As many as the
largest lease has are booted once for each memory size; smaller leases are some
of them.

What a host of the box calls its disk is the page cache of the machine: it
saves 256 MB in less than half a second, and what a command takes beside that
varies by as much.  Here saved memory is on disks of a known rate (``--disk``,
kept by bindfs), as in the model, and is most of what takes time.

A host of the box is a third of a CPU.  The default of the agents'
``operation_share``, 15 %, leaves emulators a twentieth of one there, too
little to read as fast as such a disk.  On hosts of many CPUs it limits
nothing, and so it is 100 % here.  To an engine the box would be overloaded
then: it is stopped meanwhile.

Run it on a box that is up:

    python3 tools/box script benchmarks/lease_accuracy.py [--guests 1 2]
"""

import argparse
from collections.abc import Iterator, Sequence
from concurrent import futures
import contextlib
import itertools
import json
import pathlib
import statistics
import sys
import time
import typing

import numpy as np
import openstack

from benchmarks import forms
import cgroups
import control
import demo
import guest
import hosts as box_hosts
import layout
from secondary_scheduler.leases.scheduling.durations import OperationTimes
from secondary_scheduler.model import vocabulary
from shell import BoxError, run, say, start, stop, wait_for

#: Guests on each host, and MB of each of them.
CROWDS, MEMORIES = (1, 2, 4), (128, 256)
KINDS = {'suspend': ('suspend_server', 'SUSPENDED'),
         'resume': ('resume_server', 'ACTIVE')}
SAVED = '/var/lib/libvirt/qemu/save'
POLL_S, TIMEOUT_S, BOOT_S = 0.1, 120.0, 600.0
ENGINE = 'watcher-engine-1'
#: After which an agent has let secondaries in.
AGENT_S = 45.0
#: What is called accurate.
ACCURATE = (0.7, 1.3)


class Observed(typing.NamedTuple):
    """One lease: each of its operations, and all of them, in seconds.

    ``crowd`` guests of ``memory_mb`` on each of some hosts; ``where`` their
    memory is kept.
    """

    kind: str
    where: str
    crowd: int
    memory_mb: int
    each: tuple[float, ...]
    whole: float


def flavor(cloud, memory_mb: int) -> str:
    """Return the name of a secondary flavor, made if it is not there."""
    name = f'accuracy-{memory_mb}'
    if not cloud.compute.find_flavor(name):
        made = cloud.compute.create_flavor(name=name, vcpus=1, ram=memory_mb,
                                           disk=1)
        cloud.compute.create_flavor_extra_specs(
            made, vocabulary.secondary_extra_specs(
                1, memory_mb, 1, vocabulary.SecondaryMark(priority=5)))
    return name


@contextlib.contextmanager
def quiet(share: float, hosts: Sequence[str]) -> Iterator[None]:
    """Keep the engine out, and set what operations may use of their hosts."""
    mine = layout.STATE / 'accuracy-agent.conf'
    mine.write_text(f'[secondary_agent]\noperation_share = {share:g}\n')

    def start_agents(*more: pathlib.Path) -> None:
        for host in hosts:
            stop(f'secondary-agent-{host}')
            box_hosts.start_agent(host, configs=(
                layout.ETC / 'secondary_scheduler/policies.conf',
                layout.ETC / f'hosts/{host}/agent.conf', *more))

    try:
        stop(ENGINE)
        start_agents(mine)
        time.sleep(AGENT_S)
        yield
    finally:
        start_agents()
        mine.unlink()
        control.start_service(ENGINE)


@contextlib.contextmanager
def kept(where: str, hosts: Sequence[str], rate: int) -> Iterator[None]:
    """Have hosts keep saved memory on disks, their own or one for all.

    ``rate`` is what a host writes to its disk and reads from it, in MB/s.  One
    for all has one user at a time: it has the whole rate for each of them.
    """
    shared = layout.SHARED / 'save'
    shared.mkdir(exist_ok=True)
    try:
        for host in hosts:
            # A disk's work is nothing that the host's CPU does.
            start(f'disk-{host}', cgroups.inside('control', [
                *box_hosts.enter(host), 'bindfs', '-f', '-o',
                'nonempty,big_writes', f'--read-rate={rate}M',
                f'--write-rate={rate}M', shared if where == 'shared'
                else SAVED, SAVED]))
        for host in hosts:
            wait_for(f'the disk of {host}', lambda host=host: run(
                [*box_hosts.enter(host), 'mountpoint', '-q', SAVED],
                check=False).returncode == 0, service=f'disk-{host}')
        yield
    finally:
        for host in hosts:
            run([*box_hosts.enter(host), 'umount', SAVED], check=False)
            stop(f'disk-{host}')


@contextlib.contextmanager
def booted(cloud, hosts: Sequence[str], crowd: int, memory_mb: int
           ) -> Iterator[dict[str, list[str]]]:
    """Boot guests on each host; yield them by host, all memory touched."""
    image = cloud.image.find_image('worker-noise').id
    made = {host: [cloud.compute.create_server(
        name=f'accuracy-{host}-{n}', networks='none', image_id=image,
        flavor_id=cloud.compute.find_flavor(flavor(cloud, memory_mb)).id,
        availability_zone=f'nova:{host}').id for n in range(crowd)]
        for host in hosts}
    try:
        for server in itertools.chain(*made.values()):
            wait(cloud, server, 'ACTIVE')
            deadline = time.monotonic() + BOOT_S
            while b'TOUCHED ' not in guest.said(server):
                if time.monotonic() > deadline:
                    raise BoxError(
                        f'{server} has not touched its memory in {BOOT_S:g} '
                        f's; read {guest.console(server)}')
                time.sleep(1)
        yield made
    finally:
        for server in itertools.chain(*made.values()):
            cloud.compute.delete_server(server)
        for server in itertools.chain(*made.values()):
            while cloud.compute.find_server(server):
                time.sleep(POLL_S)


def wait(cloud, server: str, status: str) -> None:
    """Wait until Nova says so of a server.

    :raises BoxError: if it says something else for too long.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        seen = cloud.compute.get_server(server)
        if seen.status == status and seen.task_state is None:
            return
        if seen.status == 'ERROR' or time.monotonic() > deadline:
            raise BoxError(f'{seen.name} is {seen.status} '
                           f'({seen.task_state}), not {status}; read '
                           '"python3 tools/box logs nova"')
        time.sleep(POLL_S)


def in_turn(cloud, kind: str, servers: Sequence[str]) -> list[float]:
    """Suspend or resume servers, one after the other; return the seconds."""
    method, status = KINDS[kind]
    found = []
    for server in servers:
        began = time.monotonic()
        getattr(cloud.compute, method)(server)
        wait(cloud, server, status)
        found.append(time.monotonic() - began)
    return found


def observe(cloud, where: str, made: dict[str, list[str]], memory_mb: int,
            rounds: int) -> Iterator[Observed]:
    """Suspend and resume a lease some times; yield what was seen."""
    groups = (list(made.values()) if where == 'local'
              else [list(itertools.chain(*made.values()))])
    crowd = len(next(iter(made.values())))
    with futures.ThreadPoolExecutor(len(groups)) as pool:
        for _, kind in itertools.product(range(rounds), KINDS):
            began = time.monotonic()
            each = list(pool.map(lambda one, kind=kind: in_turn(
                cloud, kind, one), groups))
            yield Observed(kind, where, crowd, memory_mb,
                           tuple(itertools.chain(*each)),
                           time.monotonic() - began)


def fit(seen: Sequence[Observed]) -> tuple[float, float]:
    """Return seconds for a command and MB/s that fit operations best."""
    points = [(one.memory_mb, seconds) for one in seen
              for seconds in one.each]
    memory, seconds = np.array(points).T
    # Errors count relative to what is predicted, as accuracy does.
    rows = np.stack((1 / seconds, memory / seconds), axis=1)
    (command, slope), *_ = np.linalg.lstsq(rows, np.ones(len(points)),
                                           rcond=None)
    return max(0.0, float(command)), 1 / max(float(slope), 1e-6)


def accuracy(one: Observed, command: float, rate: float, hosts: int
             ) -> tuple[list[float], float]:
    """Return observed / predicted of each operation, and of the lease."""
    model = OperationTimes(command=command, suspend_rate=rate, shared=(
        one.where == 'shared'))
    memory = [one.memory_mb]
    alone = model.transfer_time([np.array([1])], memory, rate)
    # Commands to hosts side by side are given side by side here.
    vms = np.full(hosts if one.where == 'shared' else 1, one.crowd)
    return ([seconds / alone for seconds in one.each],
            one.whole / model.transfer_time([vms], memory, rate))


def table(seen: Sequence[Observed], hosts: int
          ) -> tuple[str, list[dict], bool]:
    """Return accuracies as text and as values, and whether all are good."""
    lines = [f"{'kind':8} {'kept':7}{'guests':>7}{'MB':>5}{'count':>7}"
             f"{'seconds':>9}{'command s':>11}{'MB/s':>7}{'median':>8}"
             f"{'accurate':>10}{'lease':>7}"]
    values, ratios = [], []
    low, high = ACCURATE
    for kind, where in itertools.product(KINDS, ('local', 'shared')):
        mine = [one for one in seen if (one.kind, one.where) == (kind, where)]
        if not mine:
            continue
        command, rate = fit(mine[::2])
        cells: dict[tuple[int, int], list[Observed]] = {}
        for one in mine[1::2]:
            cells.setdefault((one.crowd, one.memory_mb), []).append(one)
        for (crowd, memory), some in cells.items():
            found = [accuracy(one, command, rate, hosts) for one in some]
            each = [ratio for single, _ in found for ratio in single]
            ratios += each
            value = {
                'kind': kind, 'kept': where, 'guests': crowd, 'mb': memory,
                'count': len(each), 'seconds': statistics.median(
                    second for one in some for second in one.each),
                'command_s': command, 'mb_s': rate,
                'median': statistics.median(each),
                'accurate': statistics.fmean(
                    low <= ratio <= high for ratio in each),
                'lease': statistics.median(whole for _, whole in found)}
            values.append(value)
            lines.append(
                f"{kind:8} {where:7}{crowd:7}{memory:5}{value['count']:7}"
                f"{value['seconds']:9.2f}{command:11.2f}{rate:7.0f}"
                f"{value['median']:8.2f}{value['accurate']:10.0%}"
                f"{value['lease']:7.2f}")
    accurate = sum(low <= ratio <= high for ratio in ratios)
    if ratios:
        lines.append(
            f'{accurate} of {len(ratios)} operations took {low:g} to {high:g} '
            f'times what was predicted, all of them {min(ratios):.2f} to '
            f'{max(ratios):.2f}.')
    return '\n'.join(lines), values, 0 < len(ratios) == accurate


def main() -> None:
    """Measure, print a table and JSON; end with 1 if one was told badly."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--rounds', type=int, default=4, metavar='N',
                        help='suspensions of each lease (default %(default)s;'
                        ' an even number)')
    parser.add_argument('--guests', type=int, nargs='+', default=CROWDS,
                        metavar='N', help='guests of a lease on each host '
                        '(default 1 2 4)')
    parser.add_argument('--memory', type=int, nargs='+', default=MEMORIES,
                        metavar='MB', help='of a guest (default 128 256)')
    parser.add_argument('--disk', type=int, default=64, metavar='MB/S',
                        help='that a disk with saved memory writes and reads '
                        '(default %(default)s)')
    parser.add_argument('--share', type=float, default=100.0,
                        metavar='PERCENT', help="the agents' operation_share "
                        '(default %(default)g)')
    forms.add_quick(parser, rounds=2, guests=[1], memory=[128])
    options = parser.parse_args()
    cloud = openstack.connect()
    demo.remove(cloud)
    hosts = layout.host_names(layout.load_settings())
    seen: list[Observed] = []
    # Whoever ends it early sees what it has come to.
    with contextlib.suppress(KeyboardInterrupt), quiet(
            options.share, hosts):
        for memory in options.memory:
            with booted(cloud, hosts, max(options.guests), memory) as made:
                for where, crowd in itertools.product(('local', 'shared'),
                                                      options.guests):
                    lease = {host: servers[:crowd]
                             for host, servers in made.items()}
                    with kept(where, hosts, options.disk):
                        for one in observe(cloud, where, lease, memory,
                                           options.rounds):
                            seen.append(one)
                            say(f'{where}, {crowd} guests of {memory} MB on '
                                f'each host: {one.kind} {one.whole:.1f} s')
    text, values, good = table(seen, len(hosts))
    print(text)
    print(json.dumps({'accuracy': values, 'observed': [
        one._asdict() for one in seen]}))
    sys.exit(not good)


if __name__ == '__main__':
    main()
