# SPDX-License-Identifier: Apache-2.0

"""Horizon with the panels of this project, in an environment of its own.

Horizon runs inside the box.  A forwarder makes it reachable at one port of
the machine's loopback address, for a browser.
"""

import hashlib
import os
import pathlib
import shutil
import urllib.request

import cgroups
import layout
import shell
from shell import once, run

VENV = layout.STATE / 'horizon'
REQUIREMENTS = layout.HERE / 'horizon-requirements.txt'
CONSTRAINTS = layout.HERE / 'horizon-constraints.txt'
PACKAGE = layout.SOURCE / 'secondary_dashboard'
STATIC = layout.STATE / 'horizon-static'
SOCKET = layout.RUN / 'horizon.sock'
#: Of Horizon inside the box.
PORT = 8080
#: Services of the dashboard, in start order.
NAMES = ('horizon', 'horizon-forwarder')

SETTINGS = """\
from openstack_dashboard.settings import HORIZON_CONFIG

DEBUG = False
COMPRESS_OFFLINE = True
ALLOWED_HOSTS = ['127.0.0.1', 'localhost', '{host}']
SECRET_KEY = '{secret}'
OPENSTACK_HOST = '{host}'
OPENSTACK_KEYSTONE_URL = '{auth_url}'
SESSION_ENGINE = 'django.contrib.sessions.backends.cache'
CACHES = {{'default': {{
    'BACKEND': 'django.core.cache.backends.locmem.LocMemCache'}}}}
STATIC_ROOT = '{static}'
WEBROOT = '/'
TIME_ZONE = 'UTC'
AVAILABLE_THEMES = [('default', 'Default', 'themes/default')]
"""


def services(settings: dict) -> list[str]:
    """Return the names of the services that these settings ask for."""
    return list(NAMES) if settings['horizon'] else []


def up(settings: dict) -> None:
    """Install Horizon and start it, if the settings ask for it."""
    if not settings['horizon']:
        for name in reversed(NAMES):
            shell.stop(name)
        return
    once('Horizon', _install, key=_key(REQUIREMENTS, CONSTRAINTS))
    once('panels of Horizon', _deploy, key=str(layout.SOURCE) + SETTINGS
         + _key(*sorted(path for path in PACKAGE.rglob('*')
                        if path.is_file() and path.suffix != '.pyc')))
    shell.start('horizon', cgroups.inside('control', shell.inside_netns([
        VENV / 'bin/uwsgi', '--http-socket', SOCKET,
        '--http-socket', f'{layout.CONTROL}:{PORT}',
        '--module', 'openstack_dashboard.wsgi', '--virtualenv', VENV,
        '--master', '--die-on-term', '--processes', '1', '--threads', '4',
        '--lazy-apps', '--need-app', '--buffer-size', '65535',
        '--add-header', 'Connection: close', '--disable-logging',
        '--static-map', f'/static={STATIC}'])),
        env={'DJANGO_SETTINGS_MODULE': 'openstack_dashboard.settings',
             'PYTHONPATH': str(layout.SOURCE)})
    shell.start('horizon-forwarder', cgroups.inside('clients', [
        VENV / 'bin/python', layout.HERE / 'forward.py',
        str(settings['horizon']), SOCKET]))
    shell.wait_for('Horizon', lambda: shell.port_open(PORT), timeout=120,
                   service='horizon')
    shell.wait_for(
        f'port {settings["horizon"]} of 127.0.0.1 (in use? "up --horizon '
        'PORT" takes another)', lambda: _answers(settings['horizon']),
        timeout=30, service=NAMES[1])
    shell.say(f'dashboard: http://127.0.0.1:{settings["horizon"]}/, as '
              f'admin or demo with the password "{layout.SECRET}"')


def _answers(port: int) -> bool:
    """Return whether Horizon answers at a port of the machine."""
    try:
        with urllib.request.urlopen(
                f'http://127.0.0.1:{port}/auth/login/', timeout=30) as page:
            return b'horizon' in page.read()
    except OSError:
        return False


def _key(*paths: pathlib.Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _install() -> None:
    from install import python
    run([python(), '-m', 'venv', '--clear', VENV], log='horizon-venv')
    run([VENV / 'bin/pip', 'install', '-q', '-c', CONSTRAINTS,
         '-r', REQUIREMENTS], log='horizon-pip')


def _deploy() -> None:
    """Enable the panels as an operator does, and make the static files."""
    for name in reversed(NAMES):
        shell.stop(name)
    place = next(VENV.glob('lib/python3*/site-packages'))
    local = place / 'openstack_dashboard/local'
    for old in (local / 'enabled').glob('_93*.py'):
        old.unlink()
    for path in (PACKAGE / 'enabled').glob('_9*.py'):
        shutil.copy(path, local / 'enabled')
    (local / 'local_settings.py').write_text(SETTINGS.format(
        secret=os.urandom(24).hex(), host=layout.CONTROL,
        auth_url=layout.AUTH_URL, static=STATIC))
    shutil.rmtree(STATIC, ignore_errors=True)
    for command in (['collectstatic', '--noinput', '-v0'],
                    ['compress', '--force']):
        run([VENV / 'bin/django-admin', *command], log='horizon-static',
            cwd=layout.STATE, env={
                'DJANGO_SETTINGS_MODULE': 'openstack_dashboard.settings',
                'PYTHONPATH': str(layout.SOURCE)})
