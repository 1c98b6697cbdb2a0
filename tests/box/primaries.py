"""Primaries booted through Nova by a test."""

from typing import Any

from tests.box.services import wait_until


def boot_primary(cloud: Any, name: str, host: str | None = None) -> str:
    """Ask Nova for a primary, on a host if one is named; return its UUID."""
    more = {'availability_zone': f'nova:{host}'} if host else {}
    server = cloud.compute.create_server(
        name=name, networks='none',
        image_id=cloud.image.find_image('worker-idle').id,
        flavor_id=cloud.compute.find_flavor('primary').id, **more)
    return str(server.id)


def wait_active(cloud: Any, uuid: str) -> Any:
    """Wait until a server is built; return it, which must be ACTIVE."""
    def built() -> Any:
        server = cloud.compute.get_server(uuid)
        return server if server.status != 'BUILD' else None
    server = wait_until(built, 90, f'primary {uuid} is built')
    assert server.status == 'ACTIVE', server.fault
    return server


def delete(cloud: Any, *uuids: str) -> None:
    """Delete servers and wait until they are gone."""
    for uuid in uuids:
        cloud.compute.delete_server(uuid, ignore_missing=True)
    wait_until(lambda: not set(uuids) & {
        server.id for server in cloud.compute.servers(
            details=False, all_projects=True)}, 60, 'servers are deleted')
