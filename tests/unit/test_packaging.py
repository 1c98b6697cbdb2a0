# SPDX-License-Identifier: Apache-2.0

"""Packaging, samples and pages agree with the code."""

import ast
from collections.abc import Iterator
import configparser
import importlib
import importlib.util
import inspect
import io
import json
import pathlib
import re
import subprocess
import symtable
import sys
import unittest
from unittest import mock

from oslo_config import cfg, generator

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / 'secondary_scheduler'
GENERATORS = ROOT / 'etc/secondary_scheduler/config-generator'

#: The core packages and modules.  None imports one to its right, nor anything
#: else of this project.
CORE = ('model', 'reading.values', 'reading.fields', 'cpu_affinity',
        'policies', 'estimation', 'plans', 'decisions', 'leases.scheduling')
#: The core imports none of these platforms.
PLATFORM = {'nova', 'watcher', 'placement', 'keystoneauth1', 'openstack',
            'libvirt', 'stevedore'}
#: Nor modules for I/O, clocks or unseeded randomness.
WORLD = {'asyncio', 'os', 'pathlib', 'random', 'requests', 'socket',
         'subprocess', 'threading', 'time'}
#: A generator that takes a seed.
SEEDED = 'random.Random'


def entry_points() -> dict[str, dict[str, str]]:
    """Return the entry points of setup.cfg: {namespace: {name: target}}."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / 'setup.cfg')
    found = {}
    for namespace, lines in setup['entry_points'].items():
        pairs = (line.split('=', 1) for line in lines.split('\n') if line)
        found[namespace] = {
            name.strip(): target.strip() for name, target in pairs}
    return found


def load(target: str) -> object:
    """Import the object an entry point names, as its users would."""
    module, _, attribute = target.partition(':')
    found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


def needs(target: str) -> str | None:
    """Return the platform package an entry point needs, if any."""
    for name in ('nova', 'watcher'):
        if target.startswith(f'secondary_scheduler.{name}.'):
            return name
    # Its options need oslo.config only.
    if target.startswith('secondary_tempest_plugin.plugin:'):
        return 'tempest'
    return None


def imported(path: pathlib.Path) -> set[str]:
    """Return the dotted names of all imports of a module.

    ``from package import module`` counts as ``package.module``.
    """
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise AssertionError(f'{path} has a relative import')
            found |= {f'{node.module}.{alias.name}' for alias in node.names}
    return found


#: Loads targets in a process of their own and prints the results.  Options of
#: Nova and Watcher in the global configuration would collide.
LOADER = '''
import contextlib, importlib, json, sys
found = {}
with contextlib.redirect_stdout(sys.stderr):
    for target in sys.argv[1:]:
        module, _, attribute = target.partition(':')
        try:
            thing = importlib.import_module(module)
            if attribute:
                thing = getattr(thing, attribute)
            name = getattr(thing, 'get_name', lambda: '')
            found[target] = ['loaded', name()]
        except Exception as exc:
            found[target] = [f'{type(exc).__name__}: {exc}', '']
print(json.dumps(found))
'''


def load_apart(platform: str) -> dict[str, list[str]]:
    """Load the entry points inside Nova or Watcher; {target: outcome}."""
    targets = sorted({target for points in entry_points().values()
                      for target in points.values()
                      if needs(target) == platform})
    done = subprocess.run([sys.executable, '-c', LOADER, *targets],
                          cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stderr)
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def installed(name: str) -> bool:
    """Return whether a package is installed, without importing it."""
    return importlib.util.find_spec(name) is not None


class EntryPointTest(unittest.TestCase):

    def test_entry_points_resolve(self) -> None:
        points = entry_points()
        self.assertIn('console_scripts', points)
        for namespace, targets in points.items():
            for name, target in targets.items():
                if needs(target) is None:
                    with self.subTest(f'{namespace}: {name}'):
                        found = load(target)
                        self.assertTrue(callable(found)
                                        or inspect.ismodule(found))

    @unittest.skipUnless(installed('nova'), 'nova is not installed')
    def test_entry_points_in_nova_resolve(self) -> None:
        found = load_apart('nova')
        self.assertTrue(found)
        for target, (outcome, _) in found.items():
            with self.subTest(target):
                self.assertEqual('loaded', outcome)

    @unittest.skipUnless(installed('watcher'), 'watcher is not installed')
    def test_entry_points_in_watcher_resolve(self) -> None:
        found = load_apart('watcher')
        self.assertTrue(found)
        for target, (outcome, _) in found.items():
            with self.subTest(target):
                self.assertEqual('loaded', outcome)
        # Watcher finds goals and strategies by their own names.
        points = entry_points()
        for namespace in ('watcher_goals', 'watcher_strategies'):
            for name, target in points[namespace].items():
                with self.subTest(f'{namespace}: {name}'):
                    self.assertEqual(name, found[target][1])

    @unittest.skipUnless(installed('tempest'), 'tempest is not installed')
    def test_entry_points_in_tempest_resolve(self) -> None:
        found = load_apart('tempest')
        self.assertTrue(found)
        for target, (outcome, _) in found.items():
            with self.subTest(target):
                self.assertEqual('loaded', outcome)

    def test_each_operation_has_an_action(self) -> None:
        operations = importlib.import_module(
            'secondary_scheduler.plans.operations')
        leases = importlib.import_module(
            'secondary_scheduler.leases.engine.values')
        single = {f'secondary_{kind.value}'
                  for kinds in (operations.OperationKind,
                                leases.LeaseOperation)
                  for kind in kinds}
        self.assertEqual(single | {f'secondary_{kind}_lease'
                                   for kind in ('suspend', 'resume')},
                         set(entry_points()['watcher_actions']))


def generate(config: pathlib.Path) -> tuple[pathlib.Path, str]:
    """Return the path and the text of a sample by oslo-config-generator.

    The namespaces are resolved by setup.cfg, since an installed version may
    be older.
    """
    points = entry_points()['oslo.config.opts']

    def loaders(namespaces: list[str]) -> list[tuple[str, object]]:
        return [(name, load(points[name])) for name in namespaces]

    conf = cfg.ConfigOpts()
    generator.register_cli_opts(conf)
    conf(['--config-file', str(config)])
    text = io.StringIO()
    with mock.patch.object(generator, '_get_raw_opts_loaders', loaders), \
            mock.patch.object(generator, '_get_opt_default_updaters',
                              lambda namespaces: []):
        generator.generate(conf, output_file=text)
    return ROOT / conf.output_file, text.getvalue()


class SampleTest(unittest.TestCase):

    def test_samples_are_up_to_date(self) -> None:
        configs = sorted(GENERATORS.glob('*.conf'))
        self.assertTrue(configs)
        for config in configs:
            path, text = generate(config)
            with self.subTest(path.name):
                self.assertEqual(path.read_text(), text,
                                 'run "tox -e genconfig"')

    def test_every_option_is_in_a_sample(self) -> None:
        samples = '\n'.join(path.read_text() for path in (
            ROOT / 'etc/secondary_scheduler').glob('*.sample'))
        everything = load(entry_points()['oslo.config.opts'][
            'secondary_scheduler'])()
        for group, options in everything:
            self.assertIn(f'[{group.name}]', samples)
            for option in options:
                with self.subTest(option.name):
                    self.assertIn(f'\n#{option.name} =', samples)


def taken(path: pathlib.Path, modules: set[str]) -> set[tuple[str, str]]:
    """Return the names that a script uses of modules: (module, name)."""
    names: dict[str, str] = {}
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {one.asname or one.name: one.name for one in node.names
                      if one.name in modules}
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            found |= {(str(node.module), one.name) for one in node.names}
        elif (isinstance(node, ast.Attribute)
              and isinstance(node.value, ast.Name)
              and node.value.id in names):
            found.add((names[node.value.id], node.attr))
    return found


class BoxTest(unittest.TestCase):

    def test_names_that_scripts_use_of_the_box_exist(self) -> None:
        # Otherwise this would only show on a running box.
        there = {path.stem: {symbol.get_name() for symbol in symtable.symtable(
            path.read_text(), str(path), 'exec').get_symbols()
            if symbol.is_assigned() or symbol.is_imported()}
            for place in ('tools/box', 'tools/devstack')
            for path in (ROOT / place).glob('*.py')}
        for place in ('tools/box', 'tools/devstack', 'benchmarks',
                      'tests/box'):
            for path in sorted((ROOT / place).glob('*.py')):
                for module, name in sorted(taken(path, set(there))):
                    with self.subTest(f'{path.name}: {module}.{name}'):
                        self.assertIn(name, there[module])


class ShellTest(unittest.TestCase):

    def test_scripts_parse(self) -> None:
        for name in ('devstack/plugin.sh', 'devstack/settings',
                     '.ci/run',
                     'tools/devstack/container-init.sh'):
            with self.subTest(name):
                done = subprocess.run(['bash', '-n', ROOT / name],
                                      capture_output=True, text=True)
                self.assertEqual((0, ''), (done.returncode, done.stderr))


#: Choice of the version of a service's API on the command line, as an option
#: or as a variable: (service, version).
VERSIONS = re.compile(
    r'\bOS_([A-Z_]+)_API_VERSION\W{1,4}([\w.]+)'
    r'|--os-([a-z-]+)-api-version[ =]+([\w.]+)')

#: Modules with which "openstack" checks such a version, by service.
PLUGINS = {'infra-optim': 'watcherclient.osc.plugin',
           'compute': 'openstackclient.compute.client',
           'identity': 'openstackclient.identity.client',
           'placement': 'osc_placement.plugin',
           'secondary-lease': 'secondary_scheduler.leases.client.osc'}


class ClientVersionTest(unittest.TestCase):
    """Versions of clients in scripts and pages."""

    @staticmethod
    def chosen() -> set[tuple[str, str, str]]:
        """Return (file, service, version)."""
        found = set()
        for folder in ('.ci', 'benchmarks', 'devstack', 'doc/source',
                       'tests/box', 'tools'):
            for path in (ROOT / folder).rglob('*'):
                if path.suffix not in ('.py', '.rst', '.md', '.sh', ''):
                    continue
                text = path.read_text() if path.is_file() else ''
                for one in VERSIONS.finditer(text):
                    service = one[1] or one[3]
                    found.add((str(path.relative_to(ROOT)),
                               service.lower().replace('_', '-'),
                               one[2] or one[4]))
        return found

    @staticmethod
    def refusal(service: str, version: str) -> str | None:
        """Return the error of a client for a version, if there is one."""
        plugin = importlib.import_module(PLUGINS[service])
        check = getattr(plugin, 'check_api_version', lambda version: False)
        try:
            if check(version) or version in plugin.API_VERSIONS:
                return None
        except Exception as exc:
            return f'{type(exc).__name__}: {exc}'
        return f'it has {", ".join(plugin.API_VERSIONS)}'

    def test_clients_accept_the_chosen_versions(self) -> None:
        chosen = self.chosen()
        self.assertTrue(chosen)
        for path, service, version in sorted(chosen):
            with self.subTest(f'{path}: {service} {version}'):
                if not installed(PLUGINS[service].partition('.')[0]):
                    self.skipTest(f'there is no client of {service}')
                self.assertIsNone(self.refusal(service, version))

    @unittest.skipUnless(installed('watcherclient'), 'there is no client')
    def test_version_latest_is_rejected(self) -> None:
        self.assertIn("Expected format 'X.Y'",
                      str(self.refusal('infra-optim', 'latest')))


_INLINE_OPTION = re.compile(r'\[(\w+)\]\s+(\w+)')
_SECTION = re.compile(r'^ +\[(\w+)\]$')
_SETTING = re.compile(r'^ +(\w+) = ')


def options_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the options that a page names, as (group, name)."""
    for quoted in re.findall(r'``([^`]+)``', text):
        for one in _INLINE_OPTION.finditer(quoted):
            yield one[1], one[2]
    group = None
    for line in text.splitlines():
        if section := _SECTION.match(line):
            group = section[1]
        elif line and not line.startswith(' '):
            group = None
        elif group and (setting := _SETTING.match(line)):
            yield group, setting[1]


class DocumentationTest(unittest.TestCase):

    def test_policy_errors_in_pages_are_real(self) -> None:
        language = importlib.import_module(
            'secondary_scheduler.policies.language')
        text = (ROOT / 'doc/source/configuration/policies.rst').read_text()
        shown = [line.strip() for line in text.splitlines()
                 if line.startswith('   [secondary_scheduler] policy = ')]
        self.assertTrue(shown)
        for line in shown:
            policy = line.split("'")[1]
            with self.subTest(policy), self.assertRaises(
                    language.PolicyError) as caught:
                language.parse(policy)
            self.assertEqual(line, str(caught.exception))

    def test_example_policies_can_be_parsed(self) -> None:
        language = importlib.import_module(
            'secondary_scheduler.policies.language')
        examples = re.compile(r'^ +policy = (.*)$', re.MULTILINE)
        found = [example for path in (ROOT / 'doc/source').rglob('*.rst')
                 for example in examples.findall(path.read_text())]
        self.assertTrue(found)
        for example in found:
            with self.subTest(example):
                language.parse(example)

    def test_every_option_named_in_the_pages_exists(self) -> None:
        """Options in ``[group] name`` or in an example of a file."""
        options = {(group.name, option.name) for group, options in load(
            entry_points()['oslo.config.opts']['secondary_scheduler'])()
            for option in options}
        groups = {group for group, _ in options}
        found = set()
        for path in (ROOT / 'doc/source').rglob('*.rst'):
            for group, name in options_in(path.read_text()):
                if group in groups:
                    found.add((path.relative_to(ROOT), group, name))
        self.assertGreater(len(found), 20)
        for path, group, name in sorted(found):
            with self.subTest(f'{path}: [{group}] {name}'):
                self.assertIn((group, name), options)

    def test_an_unknown_option_in_a_page_is_found(self) -> None:
        self.assertEqual(
            {('secondary_agent', 'hots'), ('secondary_leases', 'sort_order')},
            set(options_in('Set ``[secondary_agent]\nhots`` ::\n\n'
                           '   [secondary_leases]\n   sort_order = aged\n')))


def core_modules(package: str) -> list[pathlib.Path]:
    """Return the files of a core package, or of a single core module."""
    path = PACKAGE / package.replace('.', '/')
    return sorted(path.rglob('*.py')) or [path.with_suffix('.py')]


def is_in(name: str, package: str) -> bool:
    """Return whether a dotted name is in a package of this project."""
    return f'{name}.'.startswith(f'secondary_scheduler.{package}.')


class ImportTest(unittest.TestCase):

    def test_core_imports_no_platform_and_no_io(self) -> None:
        for package in CORE:
            for path in core_modules(package):
                for name in imported(path) - {SEEDED}:
                    with self.subTest(f'{path.relative_to(ROOT)}: {name}'):
                        top = name.split('.')[0]
                        self.assertFalse(top.startswith('oslo'))
                        self.assertNotIn(top, PLATFORM | WORLD)

    def test_core_imports_only_what_stands_before(self) -> None:
        for place, package in enumerate(CORE, 1):
            for path in core_modules(package):
                for name in imported(path):
                    if name.startswith('secondary_scheduler'):
                        with self.subTest(f'{path.relative_to(ROOT)}: '
                                          f'{name}'):
                            self.assertTrue(any(
                                is_in(name, one) for one in CORE[:place]))

    def test_packages_around_the_core_import_nothing(self) -> None:
        for package in ('', 'reading', 'leases'):
            self.assertEqual(
                set(), imported(PACKAGE / package / '__init__.py'))

    def test_reading_imports_only_reading(self) -> None:
        for path in (PACKAGE / 'reading').rglob('*.py'):
            for name in imported(path):
                if name.startswith('secondary_scheduler'):
                    with self.subTest(f'{path.name}: {name}'):
                        self.assertTrue(is_in(name, 'reading'))

    def test_lease_service_and_engine_are_independent(self) -> None:
        for package, right in (
                ('leases.api', ('leases.engine', 'leases.client', 'watcher')),
                ('leases.engine', ('leases.client', 'watcher', 'nova'))):
            paths = list((PACKAGE / package.replace('.', '/')).rglob('*.py'))
            self.assertTrue(paths)
            for path in paths:
                for name in imported(path):
                    with self.subTest(f'{path.relative_to(ROOT)}: {name}'):
                        self.assertFalse(any(
                            is_in(name, one) for one in right))
                        if package == 'leases.engine':
                            # Values of options are passed to the engine.
                            self.assertNotIn(name.split('.')[0],
                                             PLATFORM | {'oslo_config'})

    def test_agent_needs_no_solver_and_no_platform(self) -> None:
        for path in (PACKAGE / 'agent').rglob('*.py'):
            for name in imported(path):
                with self.subTest(f'{path.relative_to(ROOT)}: {name}'):
                    self.assertNotIn(name.split('.')[0], {
                        'nova', 'watcher', 'numpy', 'ortools', 'openstack'})


if __name__ == '__main__':
    unittest.main()
