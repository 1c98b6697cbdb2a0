# SPDX-License-Identifier: Apache-2.0

"""WSGI application: ``secondary_scheduler.leases.api.wsgi:application``.

The first request creates the service, after the fork of a server's workers.
OS_SECONDARY_LEASE_CONFIG names a configuration file, or several separated by
commas, in place of the default ones.
"""

from collections.abc import Callable, Iterable
import os
import threading
import typing

from secondary_scheduler.leases.api import app

_lock = threading.Lock()
_made: list[Callable[..., typing.Any]] = []


def _make() -> Callable[..., typing.Any]:
    files = os.environ.get('OS_SECONDARY_LEASE_CONFIG')
    conf = app.configure([], files=files.split(',') if files else None)
    return app.application(app.service(conf))


def application(environ: dict[str, typing.Any],
                start_response: Callable[..., typing.Any]
                ) -> Iterable[bytes]:
    """Answer a request."""
    if not _made:
        with _lock:
            if not _made:
                _made.append(_make())
    answer: Iterable[bytes] = _made[0](environ, start_response)
    return answer
