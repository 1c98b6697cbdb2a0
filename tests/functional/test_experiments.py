# SPDX-License-Identifier: Apache-2.0

"""Every experiment of the simulator runs, in its smallest form.

Those that need the data of others run in ``tests/unit/simulation``, on data
that stand for them.
"""

import json

import pytest

from secondary_scheduler.cmd import manage
from secondary_scheduler.simulation import experiments

#: Which the documentation tells users to run first; those of kaffes take a
#: second, and need drivers that are installed.
FIRST = ('hlt', 'efficiency', 'kaffes-under', 'kaffes-primary')
ALL = [name for name in experiments.EXPERIMENTS
       if not name.startswith('haizea-') and name != 'real-day']


@pytest.mark.parametrize('name', [
    pytest.param(name, marks=() if name in FIRST else pytest.mark.soak)
    for name in ALL])
def test_experiment_runs_in_its_smallest_form(capsys, name):
    assert manage.main(['simulate', 'run', name, '--quick', '--format',
                        'json']) == 0
    found = json.loads(capsys.readouterr().out)
    assert found['experiment'] == name
    assert found['figures']
