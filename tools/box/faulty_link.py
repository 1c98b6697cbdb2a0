# SPDX-License-Identifier: Apache-2.0

"""Forward connections to a port, with a fault that a file names.

    faulty_link.py ADDRESS PORT TARGET_PORT FILE

FILE is read several times a second.  Without it connections are forwarded.
With "refused" in it they are closed, and new ones are refused.  With "silent"
they stay open and nothing is forwarded until the file changes.
"""

import asyncio
import contextlib
import pathlib
import sys

_PERIOD_S = 0.2


class FaultyLink:
    """Forwards connections as its mode says.

    :param address: address of both ports.
    :param port: port to listen on.
    :param target: port to forward to.
    """

    def __init__(self, address: str, port: int, target: int) -> None:
        self._address = address
        self._port = port
        self._target = target
        self._flows = asyncio.Event()
        self._connections: set[asyncio.Task] = set()
        self._server: asyncio.Server | None = None

    async def set_mode(self, mode: str) -> None:
        """Have a fault, or none with ''."""
        if mode == 'silent':
            self._flows.clear()
        else:
            self._flows.set()
        if mode == 'refused':
            if self._server is not None:
                self._server.close()
                self._server = None
            for connection in list(self._connections):
                connection.cancel()
        elif self._server is None:
            self._server = await asyncio.start_server(
                self._accept, self._address, self._port)

    async def _accept(self, reader: asyncio.StreamReader,
                      writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        self._connections.add(connection)
        ends = [writer]
        try:
            await self._flows.wait()
            inner = await asyncio.open_connection(self._address, self._target)
            ends.append(inner[1])
            copies = [asyncio.ensure_future(one) for one in (
                self._copy(reader, inner[1]), self._copy(inner[0], writer))]
            try:
                await asyncio.wait(
                    copies, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in copies:
                    one.cancel()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(connection)
            for one in ends:
                one.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader,
                    writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()


async def main(address: str, port: int, target: int,
               file: pathlib.Path) -> None:
    """Serve for ever."""
    link, mode = FaultyLink(address, port, target), None
    while True:
        wanted = file.read_text().strip() if file.exists() else ''
        if wanted != mode:
            await link.set_mode(wanted)
            mode = wanted
        await asyncio.sleep(_PERIOD_S)


if __name__ == '__main__':
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]),
                     pathlib.Path(sys.argv[4])))
