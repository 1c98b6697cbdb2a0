# SPDX-License-Identifier: Apache-2.0

"""Throughput of the lease service, and cost of a POST.

A server of the service runs beside this program, on a database of its own;
whatever the clients were promised is looked for afterwards.  See README.md
for what is in the figures.
"""

import argparse
from collections.abc import Callable
import concurrent.futures
import http.client
import json
import os
import pathlib
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
import typing
import uuid

from oslo_config import cfg
import psutil
import webob

from benchmarks import forms
from secondary_scheduler.conf import lease_api as options
from secondary_scheduler.leases.api import app
from secondary_scheduler.leases.api.db import migration

#: Each project's leases; a quota is counted with each POST.
PROJECTS = 50
#: One request in so many is sent twice, as after a lost answer.
TWICE = 10


def body(number: int) -> dict[str, typing.Any]:
    """Return a request like users' ones."""
    return {'name': f'lease {number}', 'duration': 3600,
            'client_token': f'{number}-{uuid.uuid4()}',
            'nodes': [{'number': 1 + number % 4,
                       'flavor': 'secondary.small', 'image': 'debian'}]}


def headers(number: int) -> dict[str, str]:
    """Return what says who asks."""
    return {'X-Auth-Token': f'user:project{number % PROJECTS}',
            'Content-Type': 'application/json'}


class Server:
    """The service in processes of its own, without Keystone."""

    def __init__(self, url: str, directory: str, processes: int) -> None:
        self.file = pathlib.Path(directory, 'lease.conf')
        self.file.write_text(
            '[secondary_lease_api]\nauth_strategy = noauth\n'
            f'quota_leases = 100000\nquota_nodes = -1\n'
            f'database_url = {url}\n')
        with socket.create_server(('127.0.0.1', 0)) as one:
            self.port = one.getsockname()[1]
        uwsgi = shutil.which('uwsgi', path=os.pathsep.join(
            [str(pathlib.Path(sys.executable).parent), os.environ['PATH']]))
        self.name = 'uwsgi' if uwsgi else 'wsgiref'
        command = [
            uwsgi, '--http-socket', f'127.0.0.1:{self.port}', '--listen',
            '100', '--master', '--processes', str(processes), '--threads',
            '8', '--enable-threads', '--die-on-term', '--disable-logging',
            '--module', 'secondary_scheduler.leases.api.wsgi',
            '--virtualenv', sys.prefix,
        ] if uwsgi else [
            sys.executable, '-m', 'secondary_scheduler.cmd.lease_api',
            '--port', str(self.port), '--config-file', str(self.file)]
        self._log = pathlib.Path(directory, 'server.log').open('w')
        self._process = psutil.Popen(
            command, stdout=self._log, stderr=self._log,
            env={**os.environ, 'OS_SECONDARY_LEASE_CONFIG': str(self.file),
                 'PYTHONPATH': os.pathsep.join(filter(None, sys.path))})

    def __enter__(self) -> 'Server':
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                # Each worker makes its service at its first request.
                for number in range(40):
                    self.ask('GET', '/leases', number)
                return self
            except OSError:
                time.sleep(0.2)
        raise SystemExit('The server does not start: '
                         + pathlib.Path(self._log.name).read_text()[-2000:])

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._log.close()

    def cpu_s(self) -> float:
        """Return the seconds of CPU that its processes have used."""
        used = [one.cpu_times() for one in (
            self._process, *self._process.children(recursive=True))]
        return sum(one.user + one.system for one in used)

    def ask(self, method: str, path: str, number: int,
            content: object = None) -> tuple[int, typing.Any]:
        """Return (status, JSON)."""
        connection = http.client.HTTPConnection('127.0.0.1', self.port,
                                                timeout=120)
        try:
            connection.request(method, path, None if content is None
                               else json.dumps(content), headers(number))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


class Clients:
    """Sends POSTs, and keeps what was promised and how long it took."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = threading.Lock()
        self.promised: list[str] = []
        self.seconds: list[float] = []
        self.failed: list[str] = []

    def post(self, number: int, since: float | None = None) -> None:
        """Ask for a lease, some of them twice; time counts from ``since``."""
        asked = body(number)
        for _ in range(2 if number % TWICE == 0 else 1):
            began = time.perf_counter() if since is None else since
            try:
                status, answer = self._server.ask('POST', '/leases', number,
                                                  asked)
                fault = '' if status == 202 else f'{status}: {answer}'
            except (OSError, http.client.HTTPException, ValueError) as exc:
                fault = repr(exc)
            took, since = time.perf_counter() - began, None
            with self._lock:
                self.seconds.append(took)
                if fault:
                    self.failed.append(fault)
                else:
                    self.promised.append(answer['lease']['id'])

    def figures(self, requests: int) -> dict[str, typing.Any]:
        """Return latencies, and what of the promises is kept."""
        there: list[str] = []
        for project in range(PROJECTS):
            path = '/leases'
            while path:
                _, page = self._server.ask('GET', path, project)
                there += [one['id'] for one in page['leases']]
                links = [one['href'] for one in page['leases_links']]
                path = '/' + links[0].split('/', 3)[3] if links else ''
        cuts = statistics.quantiles(self.seconds, n=100)
        return {'posts': len(self.seconds), 'failed': len(self.failed),
                'first_failures': self.failed[:3],
                'lost': len(set(self.promised) - set(there)),
                'double': len(there) - requests + len(self.failed),
                'p50_ms': round(1000 * cuts[49], 1),
                'p99_ms': round(1000 * cuts[98], 1),
                'max_ms': round(1000 * max(self.seconds), 1)}


def measured(server: Server, requests: int,
             send: Callable[[Clients], None]) -> dict[str, typing.Any]:
    """Return the figures of what a function sends."""
    clients = Clients(server)
    before, began = server.cpu_s(), time.perf_counter()
    send(clients)
    took, cpu = time.perf_counter() - began, server.cpu_s() - before
    return {**clients.figures(requests),
            'posts_per_s': round(len(clients.seconds) / took, 1),
            'server_cpu_ms_per_post': round(
                1000 * cpu / len(clients.seconds), 2)}


def closed_loop(clients: Clients, number: int, requests: int) -> None:
    """Let clients send one request after the other."""
    with concurrent.futures.ThreadPoolExecutor(number) as pool:
        list(pool.map(clients.post, range(requests)))


def open_loop(clients: Clients, rate: float, requests: int) -> None:
    """Send so many requests in a second, however long the answers take."""
    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(200) as pool:
        for number in range(requests):
            due = began + number / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            pool.submit(clients.post, number, due)


def cost(url: str, repeat: int) -> dict[str, typing.Any]:
    """Return the CPU of a POST in this process: all but HTTP and Keystone."""
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    for name, value in (('database_url', url), ('auth_strategy', 'noauth'),
                        ('quota_leases', -1), ('quota_nodes', -1)):
        conf.set_override(name, value, group='secondary_lease_api')
    service = app.service(conf)
    application = app.application(service)
    taken = []
    for number in range(repeat + 50):
        request = webob.Request.blank(
            '/leases', method='POST', headers=headers(number),
            body=json.dumps(body(number)).encode())
        began = time.thread_time()
        answer = request.get_response(application)
        taken.append(time.thread_time() - began)
        assert answer.status_int == 202, answer
    service.database.engine.dispose()
    taken = taken[50:]
    return {'posts': repeat,
            'cpu_ms_median': round(1000 * statistics.median(taken), 2),
            'cpu_ms_p99': round(
                1000 * statistics.quantiles(taken, n=100)[98], 2)}


def tables(url: str) -> None:
    """Make the tables in an empty database."""
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override('database_url', url, group='secondary_lease_api')
    engine = app.Database(conf).engine
    if migration.version(engine) is not None:
        raise SystemExit('Give the URL of an empty database.')
    migration.sync(engine)
    engine.dispose()


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--database', metavar='URL', help=(
        'of an empty database (default: a SQLite file)'))
    parser.add_argument('--clients', type=int, default=50)
    parser.add_argument('--requests', type=int, default=5000)
    parser.add_argument('--rate', type=float, default=40.0, metavar='PER_S')
    parser.add_argument('--seconds', type=float, default=60.0)
    parser.add_argument('--processes', type=int, default=2)
    parser.add_argument('--repeat', type=int, default=500)
    forms.add_quick(parser, clients=4, requests=40, rate=10.0, seconds=2.0,
                    processes=1, repeat=20)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        url = chosen.database or f'sqlite:///{directory}/leases.sqlite'
        tables(url)
        found: dict[str, typing.Any] = {
            'database': url.split(':')[0], 'cost': cost(url, chosen.repeat)}
        opened = round(chosen.rate * chosen.seconds)
        already = chosen.repeat + 50
        with Server(url, directory, chosen.processes) as server:
            found['server'] = server.name
            found['closed_loop'] = measured(
                server, already + chosen.requests, lambda clients:
                closed_loop(clients, chosen.clients, chosen.requests))
            found['open_loop'] = measured(
                server, already + chosen.requests + opened, lambda clients:
                open_loop(clients, chosen.rate, opened))
    print(json.dumps(found, indent=1))


if __name__ == '__main__':
    main()
