# SPDX-License-Identifier: Apache-2.0

"""Forward a port of the machine's loopback address to a Unix socket.

    forward.py PORT SOCKET
"""

import asyncio
import contextlib
import sys


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter
               ) -> None:
    """Copy until one side closes the connection."""
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def main(port: int, socket: str) -> None:
    """Serve for ever."""
    async def forward(reader, writer) -> None:
        try:
            inner = await asyncio.open_unix_connection(socket)
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, inner[1]), copy(inner[0], writer))

    server = await asyncio.start_server(forward, '127.0.0.1', port)
    async with server:
        await server.serve_forever()


if __name__ == '__main__':
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
