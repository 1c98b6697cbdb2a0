# SPDX-License-Identifier: Apache-2.0

"""Every benchmark works: those that need no cloud run in their smallest form.

Those on the box are in ``tests/box/test_benchmarks.py``; of what needs a box
that is down, or takes minutes, the command line is read
(``tests/unit/test_documented_commands.py``).
"""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT.parent / 'shared/data'
#: Traces that are not ours to distribute, by what stands for them below.
FILES = {'LCG.swf.gz': DATA / 'swf/LCG.swf.gz',
         'BLUE': DATA / 'haizea/traces/blue',
         '30days.swf': DATA / 'haizea/traces/blue/30days.swf',
         'li3.json.gz': DATA / 'btrplace/li3.json.gz',
         'nr3.json.gz': DATA / 'btrplace/nr3.json.gz'}
COMMANDS = [
    'agent_cost.py --periods 100',
    'cpu_affinity.py --quick',
    'decisions.py easy --quick',
    'decisions.py easy --quick --watcher convert',
    'decisions.py tight --quick',
    'decisions.py btrplace li3.json.gz',
    'decisions.py btrplace nr3.json.gz',
    'decisions.py switch --quick --steps',
    'decisions.py switch --quick --anywhere',
    'decisions.py switch --quick --settled',
    'decisions.py switch --quick --settled --waiting 3',
    'haizea.py BLUE --quick',
    'lease_admission.py --quick',
    'lease_api.py --quick',
    'leases_large.py LCG.swf.gz 30days.swf --quick',
    'pass_writes.py --quick',
    'placement_candidates.py --quick',
    'reaction_beside_switch.py --quick',
    'scheduling.py --quick']
#: What each is to have said by then.
SECONDS = 300


@pytest.mark.parametrize('command', COMMANDS)
def test_benchmark_runs_in_its_smallest_form(command):
    words = command.split()
    for name in set(words) & FILES.keys():
        if not FILES[name].exists():
            pytest.skip(f'needs {FILES[name]}')
    done = subprocess.run(
        [sys.executable, f'benchmarks/{words[0]}',
         *(str(FILES.get(word, word)) for word in words[1:])],
        cwd=ROOT, env={**os.environ, 'PYTHONPATH': str(ROOT)}, text=True,
        capture_output=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().endswith(('}', ']')), done.stdout[-1000:]
