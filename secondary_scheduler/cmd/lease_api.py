# SPDX-License-Identifier: Apache-2.0

"""``secondary-lease-api``: lease service for development.

In production a WSGI server runs secondary_scheduler.leases.api.wsgi.
"""

import argparse
import contextlib
import socketserver
import sys
from wsgiref import simple_server

from secondary_scheduler.cmd import console
from secondary_scheduler.leases.api import app
from secondary_scheduler.leases.api.db import migration, urls
from secondary_scheduler.reading.values import InputError

EPILOG = """
Each request has its own thread. To try it without Keystone, on a new
database:

  cat > /tmp/lease.conf <<END
  [secondary_lease_api]
  auth_strategy = noauth
  database_url = sqlite:////tmp/leases.sqlite
  END
  secondary-lease-api --sync --config-file /tmp/lease.conf
  curl -H 'X-Auth-Token: alice:project1' http://127.0.0.1:8791/leases

Without --config-file it reads secondary_scheduler.conf and
secondary-lease-api.conf in /etc/secondary_scheduler. The other options are
those of oslo.log (--debug, --log-file FILE). In production let a WSGI server
run secondary_scheduler.leases.api.wsgi:application.
"""


class ThreadingServer(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    """WSGI server with a thread for each request."""

    daemon_threads = True
    request_queue_size = 128


class Handler(simple_server.WSGIRequestHandler):
    """Request handler without name look-ups, which may take seconds."""

    def address_string(self) -> str:
        """Return the address of the client."""
        return str(self.client_address[0])


@console.command
def main(argv: list[str] | None = None) -> int:
    """Serve until interrupted; return 0, or 2 if the start failed."""
    parser = argparse.ArgumentParser(
        prog=app.PROG, description=(
            'Serve leases of secondary capacity over HTTP, for development.'),
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--host', default='127.0.0.1',
                        help='address to listen on (default %(default)s)')
    parser.add_argument('--port', type=int, default=8791,
                        help='(default %(default)s; 0 is any free port)')
    parser.add_argument('--sync', action='store_true',
                        help='make or upgrade the tables first')
    chosen, rest = parser.parse_known_args(argv)
    try:
        found = app.service(app.configure(rest))
        if chosen.sync:
            urls.connect_once(found.database)
            with urls.database_errors():
                migration.sync(found.database.engine)
        server = simple_server.make_server(
            chosen.host,
            chosen.port,
            app.application(found),
            ThreadingServer,
            Handler,
        )
    except (InputError, OSError, OverflowError) as exc:
        print(f'{app.PROG}: {exc}', file=sys.stderr)
        return 2
    print(f'{app.PROG}: http://{chosen.host}:{server.server_port}',
          flush=True)
    with server, contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0


if __name__ == '__main__':
    sys.exit(main())
