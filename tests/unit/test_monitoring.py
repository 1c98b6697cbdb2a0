# SPDX-License-Identifier: Apache-2.0

"""Metrics, their page, alerts and dashboards agree."""

from collections.abc import Iterator
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import typing
import unittest

from prometheus_client import core
import yaml

from secondary_scheduler.agent import metrics as agent_metrics
from secondary_scheduler.leases.api import app, metrics
from tests.unit.agent.test_metrics import STATUS
from tests.unit.leases.api import services

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / 'doc/source/admin/monitoring.rst'
RULES = ROOT / 'monitoring/prometheus/secondary.rules.yaml'
CASES = RULES.with_name('secondary.tests.yaml')
DASHBOARDS = sorted((ROOT / 'monitoring/grafana').glob('*.json'))
RUNBOOK = ('https://docs.openstack.org/secondary-scheduler/latest/admin/'
           'monitoring.html#')

_NAME = re.compile(r'\bsecondary_(?:agent|decision|lease)_[a-z_]+\b')
_PARTS = ('_bucket', '_sum', '_count')


def documented_name(family: core.Metric) -> str:
    """Return the name under which the page lists a family."""
    return family.name + ('_total' if family.type == 'counter' else '')


def documented_metrics() -> set[str]:
    """Return the metrics in the tables of the page."""
    return set(re.findall(r'^``(secondary_\w+)``', PAGE.read_text(), re.M))


def alerts() -> list[dict[str, typing.Any]]:
    """Return all alerts."""
    return [rule for group in yaml.safe_load(RULES.read_text())['groups']
            for rule in group['rules']]


def queries() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each query."""
    for rule in alerts():
        yield rule['alert'], rule['expr']
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())['panels']:
            for target in panel['targets']:
                yield f'{path.name}: {panel["title"]}', target['expr']


def without_part(name: str, known: set[str]) -> str:
    """Return the name of a histogram for the name of one of its series."""
    for part in _PARTS:
        if name not in known and name.removesuffix(part) in known:
            return name.removesuffix(part)
    return name


class MonitoringTest(unittest.TestCase):

    def test_metrics_of_agents_and_of_the_service_are_documented(self) -> None:
        service = services.on(self)
        requests = metrics.MeasuredRequests(app.application(service))
        found = {documented_name(one) for one in (
            *agent_metrics.metric_families(STATUS),
            *metrics.metric_families(service, requests))}
        self.assertEqual(found, {
            one for one in documented_metrics()
            if one.startswith(('secondary_agent_', 'secondary_lease_api_'))})

    def test_queries_use_documented_metrics(self) -> None:
        known = documented_metrics()
        for where, query in queries():
            labels = set(re.findall(r'[{,]\s*(\w+)\s*(?:=|!)', query))
            used = {without_part(one, known) for one in
                    set(_NAME.findall(query)) - labels}
            with self.subTest(where):
                self.assertLessEqual(used, known)

    def test_alerts_have_cases_and_runbooks(self) -> None:
        sections = {one.lower() for one in re.findall(
            r'^(Secondary\w+)\n-+$', PAGE.read_text(), re.M)}
        names = [one['alert'] for one in alerts()]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual({one.lower() for one in names}, sections)
        cases = [one['name'] for one in yaml.safe_load(CASES.read_text())[
            'tests']]
        self.assertEqual(cases, [
            f'{name} {word}' for name in names
            for word in ('fires', 'does not fire')])
        for one in alerts():
            with self.subTest(one['alert']):
                self.assertIn(one['labels']['severity'],
                              ('warning', 'critical'))
                self.assertEqual(RUNBOOK + one['alert'].lower(),
                                 one['annotations']['runbook_url'])

    def test_dashboards_can_be_provisioned(self) -> None:
        self.assertEqual(3, len(DASHBOARDS))
        for path in DASHBOARDS:
            found = json.loads(path.read_text())
            with self.subTest(path.name):
                self.assertEqual(path.stem, found['uid'])
                self.assertEqual('datasource',
                                 found['templating']['list'][0]['type'])
                self.assertEqual({'${datasource}'}, {
                    one['datasource']['uid'] for one in found['panels']})
                ids = [one['id'] for one in found['panels']]
                self.assertEqual(len(ids), len(set(ids)))

    @unittest.skipUnless(shutil.which('promtool'), 'promtool is missing: '
                         'install the Debian package "prometheus"')
    def test_promtool_accepts_the_rules_and_their_cases(self) -> None:
        for words in (('check', 'rules', RULES.name),
                      ('test', 'rules', CASES.name)):
            done = subprocess.run(
                ['promtool', *words], cwd=RULES.parent, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertEqual(0, done.returncode, done.stdout)

    @unittest.skipUnless(shutil.which('promtool'), 'promtool is missing: '
                         'install the Debian package "prometheus"')
    def test_cases_fail_if_an_alert_does_not_fire(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            place = pathlib.Path(directory)
            cases = yaml.safe_load(CASES.read_text())
            cases['tests'] = [one for one in cases['tests'] if one[
                'name'].startswith('SecondaryLibvirtSilent')]
            self.assertTrue(cases['tests'])
            (place / CASES.name).write_text(yaml.safe_dump(cases))
            (place / RULES.name).write_text(RULES.read_text().replace(
                'secondary_agent_libvirt_answers == 0',
                'secondary_agent_libvirt_answers == 2'))
            done = subprocess.run(
                ['promtool', 'test', 'rules', CASES.name], cwd=place,
                text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertNotEqual(0, done.returncode)
        self.assertIn('SecondaryLibvirtSilent', done.stdout)
