# SPDX-License-Identifier: Apache-2.0

"""Dockerfiles that the real kolla-build renders with ``kolla/``."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

KOLLA = pathlib.Path(__file__).resolve().parents[2] / 'kolla'
PIP = ('python3 -m pip --no-cache-dir install --upgrade '
       '-c /requirements/upper-constraints.txt ')
IMAGES = ('^nova-(api|scheduler)$', '^watcher-(engine|applier)$',
          '^horizon$', '^secondary-')


class KollaTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        program = shutil.which('kolla-build')
        if program is None:
            raise unittest.SkipTest('kolla-build is not installed: '
                                    'tox -e kolla')
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        done = subprocess.run(
            [program, '--config-file', KOLLA / 'kolla-build.conf',
             '--template-only', '--base', 'debian', '--tag', 'test',
             '--template-override', KOLLA / 'template-overrides.j2',
             '--docker-dir', KOLLA / 'docker',
             '--work-dir', directory.name, *IMAGES],
            capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)
        cls.rendered = {
            path.parent.name: path.read_text() for path in
            pathlib.Path(directory.name, 'docker').rglob('Dockerfile')}

    def steps(self, image):
        """Return the lines of an image's Dockerfile that are not empty."""
        return [line for line in self.rendered[image].splitlines() if line]

    def test_images_of_nova_install_the_plug_in(self):
        for image in ('nova-api', 'nova-scheduler'):
            with self.subTest(image=image):
                steps = self.steps(image)
                begin = steps.index('ADD plugins-archive /')
                self.assertEqual(
                    ['RUN ln -sfn /plugins/secondary_scheduler* '
                     '/secondary-scheduler \\',
                     f'    && {PIP}/secondary-scheduler'],
                    steps[begin + 1:begin + 3])
        self.assertEqual('USER nova', self.steps('nova-scheduler')[-1])

    def test_images_of_watcher_install_the_lease_engine_too(self):
        for image in ('watcher-engine', 'watcher-applier'):
            with self.subTest(image=image):
                steps = self.steps(image)
                begin = steps.index('ADD plugins-archive /')
                self.assertEqual(
                    f'    && {PIP}"/secondary-scheduler'
                    '[lease-engine,metrics]"',
                    steps[begin + 2])
                self.assertEqual('USER watcher', steps[-1])

    def test_image_of_horizon_enables_the_panels(self):
        text = self.rendered['horizon']
        installs = text.index(f'{PIP}/plugins/*')
        self.assertLess(installs, text.index(
            'import os, secondary_dashboard'))
        self.assertEqual('    && cp "$ours"/_[0-9]*.py "$enabled"',
                         self.steps('horizon')[-1])

    def test_image_of_the_agent_uses_libvirt_of_the_distribution(self):
        text = self.rendered['secondary-agent']
        self.assertIn('FROM kolla/openstack-base:test', text)
        self.assertIn('install --no-install-recommends python3-libvirt', text)
        self.assertLess(text.index('/^libvirt-python===/d'), text.index(
            f'{PIP}"/secondary-scheduler[agent]"'))
        self.assertEqual(['USER root', 'CMD ["secondary-agent"]'],
                         self.steps('secondary-agent')[-2:])

    def test_image_of_the_lease_service_runs_as_its_own_user(self):
        steps = self.steps('secondary-lease-api')
        self.assertIn(f'    && {PIP}"/secondary-scheduler[lease-api,metrics]" '
                      'gunicorn \\', steps)
        self.assertEqual(['ENV XDG_RUNTIME_DIR=/tmp', 'USER secondary-lease'],
                         steps[-3:-1])
        self.assertIn('secondary_scheduler.leases.api.wsgi:application',
                      steps[-1])

    def test_no_other_image_is_changed(self):
        for image, text in self.rendered.items():
            if 'secondary' in text and not image.startswith('secondary-'):
                # The user is made in the base image, as Kolla's own are.
                self.assertIn(image, {
                    'base', 'nova-api', 'nova-scheduler', 'watcher-engine',
                    'watcher-applier', 'horizon'})
