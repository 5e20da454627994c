"""The server of HTTP, which ends open streams when it stops."""

import socket
from collections.abc import Callable
from typing import Any

import uvicorn

from streamdedup.serve.access import App


class StreamServer(uvicorn.Server):
    """A server that calls a function when it is asked to stop.

    uvicorn 0.54 waits for open responses before it tells the application to stop, and a stream has no end.

    Args:
        config: Configuration.
        on_stop: Ends the streams.
    """

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_stop = on_stop

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then stop as any server."""
        self._on_stop()
        await super().shutdown(sockets)


def create_server(app: App, on_stop: Callable[[], None], options: dict[str, Any]) -> StreamServer:
    """Return a server of an application with options of uvicorn."""
    return StreamServer(uvicorn.Config(app, **options), on_stop)
