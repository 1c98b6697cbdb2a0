# SPDX-License-Identifier: Apache-2.0

"""The Ansible role deploys, upgrades and removes, on containers."""

import shutil

import pytest

from tests.box import role_cloud, role_trial


@pytest.mark.soak
@pytest.mark.skipif(
    shutil.which('ansible-playbook') is None,
    reason="ansible-playbook is missing: pip install 'ansible>=10'")
def test_role_deploys_upgrades_and_removes(capsys):
    with capsys.disabled(), role_cloud.machines():
        role_trial.try_role()
