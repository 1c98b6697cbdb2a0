# SPDX-License-Identifier: Apache-2.0

"""A real Prometheus scrapes the box, and each query has data."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import time
import urllib.parse
import urllib.request

import pytest
import yaml

import layout
from secondary_scheduler.leases.client import client
from tests.box.services import wait_until

MONITORING = layout.SOURCE / 'monitoring'
ADDRESS = f'{layout.CONTROL}:9090'
#: Seconds for which Prometheus scrapes, and between two scrapes.
SCRAPING_S, INTERVAL_S = 600, 5

needs_prometheus = pytest.mark.skipif(
    shutil.which('prometheus') is None,
    reason='prometheus is missing: apt install prometheus')


def ask(path, **query):
    """Return the data of an answer of Prometheus's API."""
    with urllib.request.urlopen(
            f'http://{ADDRESS}/api/v1/{path}?{urllib.parse.urlencode(query)}',
            timeout=30) as answer:
        found = json.load(answer)
    assert found['status'] == 'success', found
    return found['data']


@contextlib.contextmanager
def prometheus(place, hosts):
    """Run Prometheus inside the box, with the rules of this project."""
    configuration = place / 'prometheus.yml'
    configuration.write_text(yaml.safe_dump({
        'global': {'scrape_interval': f'{INTERVAL_S}s',
                   'evaluation_interval': f'{INTERVAL_S}s'},
        'rule_files': [str(MONITORING / 'prometheus/secondary.rules.yaml')],
        'scrape_configs': [
            {'job_name': name, 'static_configs': [{'targets': targets}]}
            for name, targets in (
                ('secondary-agent', [
                    f'{layout.host_address(host)}:9911' for host in hosts]),
                ('secondary-decision-engine', [f'{layout.CONTROL}:9920']),
                ('secondary-lease-api', [f'{layout.CONTROL}:9930']))]}))
    with (place / 'log').open('w') as log:
        running = subprocess.Popen(
            ['prometheus', f'--config.file={configuration}',
             f'--storage.tsdb.path={place / "data"}',
             f'--web.listen-address={ADDRESS}'],
            stdout=log, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            running.terminate()
            running.wait(30)


def queries():
    """Yield the title and the text of each query of the dashboards."""
    for path in sorted((MONITORING / 'grafana').glob('*.json')):
        for panel in json.loads(path.read_text())['panels']:
            for target in panel['targets']:
                yield (f'{path.stem}: {panel["title"]}',
                       target['expr'].replace('$instance', '.*'))


def missing(leases):
    """Return the targets that do not answer; all before Prometheus does."""
    next(leases.leases(limit=1), None)  # the service's port opens with it
    try:
        found = ask('targets')['activeTargets']
    except OSError:
        return ['prometheus']
    return [one['scrapeUrl'] for one in found if one['health'] != 'up']


@needs_prometheus
@pytest.mark.soak
def test_each_query_of_the_dashboards_has_data(
        cloud, hosts, leases_run, tmp_path):
    leases = client.Client.of(cloud)
    seconds = int(os.environ.get('BOX_SCRAPING_S', SCRAPING_S))
    until = time.monotonic() + seconds
    with prometheus(pathlib.Path(tmp_path), hosts):
        wait_until(lambda: not missing(leases), 120,
                   lambda: f'these are scraped: {missing(leases)}')
        while time.monotonic() < until:
            next(leases.leases(limit=1), None)
            next(leases.capacity(limit=1), None)
            time.sleep(INTERVAL_S)
        empty = [f'{title}: {query}' for title, query in queries()
                 if not ask('query', query=query)['result']]
        assert not empty, '\n'.join(empty)
        rules = [rule for group in ask('rules')['groups']
                 for rule in group['rules']]
        assert {rule['health'] for rule in rules} == {'ok'}, rules
        for job in ('secondary-agent', 'secondary-decision-engine',
                    'secondary-lease-api'):
            share, = ask('query', query=(
                f'avg(avg_over_time(up{{job="{job}"}}[{seconds}s]))'))[
                    'result']
            assert float(share['value'][1]) > 0.9, job
