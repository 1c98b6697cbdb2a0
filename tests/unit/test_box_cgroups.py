"""Where the one-machine cloud puts its control groups."""

import importlib
import os
import pathlib
import shutil

import pytest

BOX = pathlib.Path(__file__).parents[2] / 'tools/box'


@pytest.fixture
def tops(monkeypatch, tmp_path):
    """Return a function that answers for a machine's mounts and groups."""
    monkeypatch.syspath_prepend(str(BOX))
    cgroups = importlib.import_module('cgroups')
    cgroups._tops.cache_clear()

    def ask(own, *mounts):
        lines = []
        for point, kind, names in mounts:
            directory = tmp_path / point
            directory.mkdir(parents=True, exist_ok=True)
            if kind == 'cgroup2':
                (directory / 'cgroup.controllers').write_text(
                    names.replace(',', ' ') + '\n')
                names = 'nsdelegate'
            lines.append(f'32 31 0:29 / {directory} rw - {kind} {kind} '
                         f'rw,{names}')
        (tmp_path / 'cgroup').write_text(own)
        (tmp_path / 'mountinfo').write_text('\n'.join(
            ['23 1 0:1 / / rw - ext4 /dev/vda rw', *lines]) + '\n')
        return {name: str(top.relative_to(tmp_path))
                for name, top in cgroups._tops(str(tmp_path)).items()}
    yield ask
    cgroups._tops.cache_clear()


def test_version_2_is_at_the_top(tops):
    found = tops('0::/user.slice/session-3.scope\n',
                 ('fs', 'cgroup2', 'cpuset,cpu,io,memory,pids,rdma'))
    assert found == dict.fromkeys(
        ('cpu', 'cpuacct', 'cpuset', 'memory', 'io', 'pids'),
        'fs/secondary-box')


def test_version_1_is_below_the_caller(tops):
    found = tops('4:memory:/one/secondary-box/control\n2:cpu,cpuacct:/a\n'
                 '1:name=systemd:/b\n0::/\n',
                 ('fs/cpu,cpuacct', 'cgroup', 'cpu,cpuacct'),
                 ('fs/memory', 'cgroup', 'memory'),
                 ('fs/systemd', 'cgroup', 'name=systemd'),
                 ('fs/unified', 'cgroup2', 'hugetlb,pids'))
    assert found == {'cpu': 'fs/cpu,cpuacct/a/secondary-box',
                     'cpuacct': 'fs/cpu,cpuacct/a/secondary-box',
                     'memory': 'fs/memory/one/secondary-box'}


def test_some_controllers_of_each_version(tops):
    found = tops('4:memory:/\n0::/\n', ('fs/memory', 'cgroup', 'memory'),
                 ('fs/unified', 'cgroup2', 'cpu,cpuset'))
    assert found == {'cpu': 'fs/unified/secondary-box',
                     'cpuacct': 'fs/unified/secondary-box',
                     'cpuset': 'fs/unified/secondary-box',
                     'memory': 'fs/memory/secondary-box'}


@pytest.mark.parametrize('going', ['control', 'hosts/box1'])
def test_groups_may_be_removed_by_libvirt_meanwhile(
        monkeypatch, tmp_path, going):
    """As by another "down", or by libvirt when a guest ends."""
    monkeypatch.syspath_prepend(str(BOX))
    cgroups = importlib.import_module('cgroups')
    top = tmp_path / 'top'
    monkeypatch.setattr(cgroups, '_tops', lambda: {'cpu': top})
    for group in ('control/a', 'hosts/box1/machine', 'hosts/box2/machine'):
        (top / group).mkdir(parents=True)
    scan = os.scandir

    def scandir(path):
        if str(path) == str(top / going):
            monkeypatch.setattr(os, 'scandir', scan)
            shutil.rmtree(path)
        return scan(path)

    monkeypatch.setattr(os, 'scandir', scandir)
    assert cgroups.processes('') == set()
    cgroups.remove()
    assert not top.exists()


@pytest.mark.parametrize(('usable', 'cpus'), [
    ({0}, ([0], [0])), ({0, 1}, ([1], [0])), ({9, 4, 6}, ([9], [4, 6]))])
def test_no_other_host_is_on_the_first_ones_cpu(monkeypatch, usable, cpus):
    monkeypatch.syspath_prepend(str(BOX))
    layout = importlib.import_module('layout')
    monkeypatch.setattr(layout.os, 'sched_getaffinity', lambda pid: usable)
    assert layout.cpus() == cpus
