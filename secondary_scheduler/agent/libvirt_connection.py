# SPDX-License-Identifier: Apache-2.0

"""Connections to libvirt that fail, instead of hanging, with libvirtd."""

from collections.abc import Callable
import functools
import threading
import time
import typing

from oslo_log import log as logging

from secondary_scheduler.agent import processes

LOG = logging.getLogger(__name__)


def close_connection(connection: typing.Any) -> None:
    """Close a connection, if there is one, and ignore errors."""
    try:
        if connection is not None:
            connection.close()
    except Exception as exc:
        LOG.debug('Cannot close the connection to libvirt: %s', exc)


@functools.cache
def _deliver_events() -> None:
    """Run libvirt's event loop, without which keepalive does not work."""
    import libvirt

    def ignore(context: object, error: object) -> None:
        """Do not print errors, since libvirt raises them as well."""

    def deliver() -> None:
        processes.show_thread_name()
        while True:
            try:
                libvirt.virEventRunDefaultImpl()
            except libvirt.libvirtError as exc:
                LOG.warning('No events from libvirt: %s', exc)
                time.sleep(1)

    libvirt.registerErrorHandler(ignore, None)
    libvirt.virEventRegisterDefaultImpl()
    threading.Thread(target=deliver, name='libvirt-events',
                     daemon=True).start()


def libvirt_opener(uri: str, read_only: bool = False
                   ) -> Callable[[], typing.Any]:
    """Return a function that opens a connection.

    Calls on that connection fail when libvirtd hangs.
    """
    import libvirt

    # Before any thread connects, so that there is only one event loop.
    _deliver_events()

    def connect() -> typing.Any:
        connection = (libvirt.openReadOnly if read_only
                      else libvirt.open)(uri)
        connection.setKeepAlive(5, 3)
        return connection

    return connect
