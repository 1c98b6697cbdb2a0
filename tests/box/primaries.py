"""Primaries booted through Nova by a test."""

import time
from typing import Any

from layout import LOG
from tests.box.services import wait_until


def boot_primary(cloud: Any, name: str, host: str | None = None,
                 image: str = 'worker-idle', flavor: str = 'primary') -> str:
    """Ask Nova for a primary, on a host if one is named; return its UUID."""
    more = {'availability_zone': f'nova:{host}'} if host else {}
    server = cloud.compute.create_server(
        name=name, networks='none',
        image_id=cloud.image.find_image(image).id,
        flavor_id=cloud.compute.find_flavor(flavor).id, **more)
    return str(server.id)


def wait_active(cloud: Any, uuid: str) -> Any:
    """Wait until a server is built; return it, which must be ACTIVE."""
    def built() -> Any:
        server = cloud.compute.get_server(uuid)
        return server if server.status != 'BUILD' else None
    server = wait_until(built, 240, f'primary {uuid} is built')
    assert server.status == 'ACTIVE', server.fault
    return server


def delete(cloud: Any, *uuids: str) -> None:
    """Delete servers and wait until they are gone.

    How long Nova takes is nothing that we promise: the limit is there to
    end a test that hangs, with what is needed to see why.  Where a scheduler
    has just been restarted Nova may have to be asked again: nova-compute
    cannot delete while none listens.
    """
    asked = 0.0

    def left() -> list[Any]:
        return [server for server in cloud.compute.servers(all_projects=True)
                if server.id in uuids]

    def gone() -> bool:
        nonlocal asked
        again = time.monotonic() > asked + 15
        found = left()
        for server in found if again else ():
            asked = time.monotonic()
            cloud.compute.delete_server(server.id, ignore_missing=True)
        return not found

    def story() -> str:
        lines = ['servers are deleted']
        for server in left():
            lines.append(f'{server.name}: {server.status}, task '
                         f'{server.task_state}, on {server.compute_host}')
            lines += [line for log in LOG.glob('nova-*.log')
                      for line in log.read_text(errors='replace').splitlines()
                      if server.id in line][-20:]
        return '\n'.join(lines)
    wait_until(gone, 240, story)
