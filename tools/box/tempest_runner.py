# SPDX-License-Identifier: Apache-2.0

"""Tempest with this project's plug-in, against the box.

Tempest has an environment of its own, as on a cloud, and a workspace with its
configuration and its results (``stestr last`` there shows them).
"""

import pathlib
import shutil

import install
import layout
import session
from shell import once, run

#: The version that is tried; its requirements are among the box's own.
VERSION = '47.0.0'
WORKSPACE = layout.STATE / 'tempest'
VENV = WORKSPACE / 'venv'

#: The plug-in needs none of the options in the first part: they are how
#: Tempest reaches the box, where guests have no network.
CONFIGURATION = '''\
[DEFAULT]
log_file = {workspace}/tempest.log
[oslo_concurrency]
lock_path = {workspace}/lock
[identity]
uri_v3 = {auth_url}
region = RegionOne
v3_endpoint_type = public
[auth]
use_dynamic_credentials = true
create_isolated_networks = false
admin_username = admin
admin_password = {secret}
admin_project_name = admin
admin_domain_name = Default
[compute]
max_microversion = latest
build_interval = 1
[service_available]
cinder = false
neutron = false
swift = false

[secondary_lease]
flavor = secondary
image = worker-cpu
network = none
[secondary_scenario]
primary_flavor = primary
boot_timeout = 400
preemption_timeout = 240
return_timeout = 400
'''


def run_tempest(regex: str) -> int:
    """Run the tests that match; return the exit code of Tempest.

    :raises BoxError: if the box is down, or an installation fails.
    """
    once('tempest environment', _environment, key=VERSION
         + install.CONSTRAINTS.read_text())
    once('tempest plug-in', _plugin, key=str(layout.SOURCE)
         + (layout.SOURCE / 'setup.cfg').read_text())
    configuration = WORKSPACE / 'tempest.conf'
    configuration.write_text(CONFIGURATION.format(
        workspace=WORKSPACE, auth_url=layout.AUTH_URL, secret=layout.SECRET))
    return session.run(
        ['env', f'--chdir={WORKSPACE}', str(VENV / 'bin/tempest'), 'run',
         '--config-file', str(configuration), '--serial', '--regex', regex])


def _environment() -> None:
    WORKSPACE.mkdir(parents=True, exist_ok=True)
    run([install.python(), '-m', 'venv', '--clear', VENV], log='venv')
    _pip('-c', install.CONSTRAINTS, f'tempest=={VERSION}', 'jsonschema',
         'pbr', 'setuptools', 'wheel')


def _plugin() -> None:
    # The rest of the project needs more packages, and the plug-in not.
    _pip('--no-deps', '--no-build-isolation', '-e', layout.SOURCE,
         env={'PBR_VERSION': '0.1.0'})
    # See install._project.
    shutil.rmtree(pathlib.Path.home() / '.cache/python-entrypoints',
                  ignore_errors=True)


def _pip(*arguments: object, **more: object) -> None:
    run([VENV / 'bin/pip', 'install', '-q', *arguments], log='pip', **more)

