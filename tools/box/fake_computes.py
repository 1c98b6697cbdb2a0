# SPDX-License-Identifier: Apache-2.0

"""N computes with Nova's fake driver, forked from one parent.

    fake_computes.py N

The parent imports Nova once; each child runs the stock nova-compute's main()
with a configuration of its own, so a host costs 60 MB instead of 150.
"""

import gc
import os
import signal
import sys
import time

import layout

CONFIG = '''\
[DEFAULT]
host = {host}
state_path = {state}
log_file = {log}/{host}.log
compute_driver = fake.FakeDriverWithoutFakeNodes
reserved_host_memory_mb = 0
initial_cpu_allocation_ratio = 1.0
initial_ram_allocation_ratio = 1.0
initial_disk_allocation_ratio = 1.0
update_resources_interval = 60
sync_power_state_interval = -1
heal_instance_info_cache_interval = -1
running_deleted_instance_action = noop
rpc_conn_pool_size = 4
report_interval = 10
[oslo_concurrency]
lock_path = {state}
'''


def main() -> None:
    """Fork the computes, then wait for them until told to end."""
    number = int(sys.argv[1])
    program = str(layout.BIN / 'nova-compute')
    sys.argv = [program]
    from nova import objects
    import nova.cmd.compute
    import nova.compute.manager  # noqa: F401  (loaded before the forks)
    import nova.virt.fake  # noqa: F401
    objects.register_all()
    gc.collect()
    gc.freeze()
    children = []
    for index in range(1, number + 1):
        host = f'fake{index:04d}'
        state = layout.SERVICE_STATE / 'fake' / host
        state.mkdir(parents=True, exist_ok=True)
        config = state / 'nova-compute.conf'
        config.write_text(CONFIG.format(host=host, state=state,
                                        log=layout.LOG))
        child = os.fork()
        if child == 0:
            sys.argv = [program, '--config-file',
                        str(layout.ETC / 'nova/nova.conf'),
                        '--config-file', str(config)]
            try:
                nova.cmd.compute.main()
            finally:
                os._exit(1)
        children.append(child)
        time.sleep(0.3)

    def end(*_):
        for child in children:
            os.kill(child, signal.SIGTERM)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    for child in children:
        os.waitpid(child, 0)


if __name__ == '__main__':
    main()
