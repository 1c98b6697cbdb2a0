# SPDX-License-Identifier: Apache-2.0

"""The package that the plug-in guide describes is installed and loaded."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = ROOT / 'doc/source/contributor/plugins.rst'

_BLOCK = re.compile(r'^\.\. code-block:: (\w+)\n\n((?:   .*\n|\n)+)',
                    re.MULTILINE)

#: Load the entry points of the package as each service does.  Options of Nova
#: and of Watcher cannot be in one process.
SERVICES = ("""
import json
from secondary_scheduler.nova import filters, weights

print(json.dumps({namespace: [
    one.__name__ for one in filters.load_plugins(namespace)
    if one.__module__.startswith('example_plugins')]
    for namespace in (filters.NAMESPACE, weights.NAMESPACE)}))
""", """
import json
from unittest import mock

from oslo_config import cfg
from secondary_scheduler.agent import cpu_affinity, forecasts
from secondary_scheduler.agent.sensors import base as sensors
from secondary_scheduler.conf import agent as agent_options
from secondary_scheduler.conf import leases as options
from secondary_scheduler.cpu_affinity import base, workload_profiles
from secondary_scheduler.leases import drivers
from secondary_scheduler.watcher import strategy

conf = mock.MagicMock()
conf.secondary_agent.sensors = ['bus']
conf.secondary_agent.forecast = 'latest'
forecast = forecasts.load_forecast(conf)
assert forecast.predict([1.0, 7.0]) == 7.0
decision = strategy.load_decision('cautious', None, None, None)
loaded = {
    sensors.NAMESPACE: [type(one).__name__ for one in
                        sensors.load_sensors(conf, None).values()],
    forecasts.NAMESPACE: [type(forecast).__name__],
    'secondary_scheduler.decisions': [type(decision).__name__]}
real = cfg.ConfigOpts()
agent_options.register_opts(real)
options.register_opts(real)
real([])
real.set_override('cpu_affinity', 'first-half', 'secondary_agent')
loaded[base.NAMESPACE] = [type(cpu_affinity.load_driver(
    real, workload_profiles.UNPROFILED)).__name__]
for kind, name in (('admission', 'short'), ('preemption', 'largest'),
                   ('host_selection', 'backwards'), ('order', 'last-come'),
                   ('pricing', 'by-size')):
    policy = drivers.load(kind, name, real.secondary_leases)
    loaded[f'{drivers.NAMESPACE}.{kind}'] = [type(policy).__name__]
print(json.dumps(loaded))
""")


def read_guide() -> tuple[str, dict[str, str]]:
    """Return the guide's ``setup.cfg`` and its modules, by file name.

    A block without a docstring continues the module before it.
    """
    setup, modules, name = '', {}, ''
    for language, text in _BLOCK.findall(GUIDE.read_text()):
        text = textwrap.dedent(text)
        if language == 'ini' and text.startswith('[metadata]'):
            setup = text
        elif language == 'python':
            if found := re.match(r'"""example_plugins/(\S+)"""', text):
                name = found[1]
            modules[name] = modules.get(name, '') + text
    return setup, modules


class PluginGuideTest(unittest.TestCase):

    def test_package_with_a_plugin_of_each_namespace_is_loaded(self) -> None:
        setup, modules = read_guide()
        with tempfile.TemporaryDirectory() as directory:
            source = pathlib.Path(directory) / 'source'
            package = source / 'example_plugins'
            package.mkdir(parents=True)
            (source / 'setup.cfg').write_text(setup)
            (source / 'setup.py').write_text(
                'import setuptools\n\nsetuptools.setup()\n')
            (package / '__init__.py').write_text('')
            for name, text in modules.items():
                (package / name).write_text(text)
            target = pathlib.Path(directory) / 'environment'
            self.run_python('-m', 'pip', 'install', '--quiet', '--no-deps',
                            '--no-build-isolation', '--target', str(target),
                            str(source))
            path = os.pathsep.join(
                [str(target), str(ROOT), os.environ.get('PYTHONPATH', '')])
            loaded: dict[str, list[str]] = {}
            for service in SERVICES:
                loaded |= json.loads(self.run_python(
                    '-c', service, PYTHONPATH=path).splitlines()[-1])
            namespaces = re.findall(r'^(secondary_scheduler\.\S+) =', setup,
                                    re.MULTILINE)
            self.assertEqual(11, len(namespaces))
            self.assertEqual(set(namespaces), set(loaded))
            for namespace, classes in loaded.items():
                with self.subTest(namespace):
                    self.assertEqual(1, len(classes))

    def run_python(self, *arguments: str, **environment: str) -> str:
        done = subprocess.run([sys.executable, *arguments],
                              capture_output=True, text=True, check=False,
                              env=os.environ | environment, timeout=300)
        self.assertEqual(0, done.returncode, done.stderr[-3000:])
        return done.stdout
