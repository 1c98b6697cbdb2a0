# SPDX-License-Identifier: Apache-2.0

"""Nothing of ours touches a primary (issue 2, acceptance 4)."""

import json
import pathlib
import time

import libvirt

import cgroups
import hosts as box_hosts
import layout
import shell
from tests.box import services
from tests.box.primaries import (
    BY_HAND,
    ControlFiles,
    boot_primary,
    delete,
    wait_active,
)
from tests.box.services import wait_until


def test_no_file_of_a_primary_is_written_in_a_burst(
        nova_primary, by_hand, cloud, fleet, burst, observer):
    host = nova_primary.compute_host
    names = [*BY_HAND, nova_primary.instance_name]
    slice_idle = cgroups.path('cpu', f'hosts/{host}/machine') / 'cpu.idle'
    # With a primary guest in it the machine slice is an ordinary group.
    wait_until(lambda: slice_idle.read_text().strip() == '0', 15,
               'the machine slice is not idle')
    pid_files = [pathlib.Path(f'/proc/{box_hosts.outer_pid(host)}/root/run/'
                              f'libvirt/qemu/{name}.pid') for name in names]
    pids = [path.read_text() for path in pid_files]
    files = {name: ControlFiles(host, name) for name in names}
    before = {name: held.values() for name, held in files.items()}
    for name in names:
        assert any('/vcpu0/cpu.' in path
                   for path in before[name]), (name, list(before[name]))
    began = time.time()
    with burst(host):
        time.sleep(25)
        after = {name: held.values() for name, held in files.items()}
    for held in files.values():
        held.close()
    assert before == after
    assert slice_idle.read_text().strip() == '0'
    # The burst was one: the secondaries beside them were held down.
    assert max(row.total for row in observer.since(host, began)
               ) > layout.THRESHOLD
    assert [path.read_text() for path in pid_files] == pids
    for domain in by_hand.values():
        assert domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING
    now = cloud.compute.get_server(nova_primary.id)
    assert (now.status, now.task_state, now.compute_host) == (
        'ACTIVE', None, host)
    assert not any(key.startswith('secondary:') for key in now.metadata)
    # The agent counts them as what they are.
    known = {one['uuid'] for one in services.agent_status(host)['instances']}
    strangers = {nova_primary.id, *(domain.UUIDString()
                                    for domain in by_hand.values())}
    assert not known & strangers
    assert known <= set(fleet.servers)


def test_every_action_refuses_a_primary(nova_primary):
    etc = layout.ETC
    done = shell.run(
        [layout.BIN / 'python', '-m', 'tests.box.ask_actions',
         nova_primary.id, etc / 'watcher/watcher-1.conf',
         etc / 'secondary_scheduler/policies.conf'],
        netns=True, cwd=layout.SOURCE,
        env={'PYTHONPATH': str(layout.SOURCE)})
    answers = json.loads(done.stdout.strip().rpartition('\n')[2])
    # What makes a server does nothing to one; its resource is a lease.
    for kind in ('boot', 'cache_image', 'verify'):
        assert answers.pop(f'secondary_{kind}') == 'would act'
    assert len(answers) == 11
    for name, answer in answers.items():
        assert answer.startswith(('skipped', 'failed')) and (
            'not a secondary' in answer), (name, answer)


def test_the_agent_hands_no_primary_over(nova_primary, by_hand):
    """The agent's RPC surface knows secondaries only (decision 6)."""
    script = (
        'import sys, json\n'
        'from secondary_scheduler.watcher.settings import CONF\n'
        'from secondary_scheduler.reports import agent_rpc\n'
        'uuids, host, file = sys.argv[3:], sys.argv[1], sys.argv[2]\n'
        'CONF(["--config-file", file], project="watcher",'
        ' default_config_files=[])\n'
        'client = agent_rpc.AgentClient(CONF)\n'
        'print(json.dumps([client.hand_over(host, u) for u in uuids]))\n')
    done = shell.run(
        [layout.BIN / 'python', '-c', script, nova_primary.compute_host,
         layout.ETC / 'watcher/watcher-1.conf', nova_primary.id,
         *(domain.UUIDString() for domain in by_hand.values())], netns=True)
    answers = json.loads(done.stdout.strip().rpartition('\n')[2])
    assert len(answers) == 3
    for answer in answers:
        assert not answer['ok'] and 'no secondary' in answer['reason']


def test_primaries_boot_when_all_of_ours_raises(cloud, empty_cloud):
    log = 'nova-scheduler-service.log'
    offset = services.log_size(log)
    with services.scheduler_options(
            '[filter_scheduler]',
            'available_filters = tests.box.raising.all_filters'):
        uuids = [boot_primary(cloud, f'test-broken-{n}') for n in range(3)]
        try:
            for uuid in uuids:
                wait_active(cloud, uuid)
        finally:
            delete(cloud, *uuids)
    # It was broken indeed, and said so.
    assert 'made to raise by a test' in services.log_since(log, offset)
