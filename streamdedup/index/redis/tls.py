"""Finds a disagreement of servers and settings about TLS, for ``redis.backend`` when no server answers its checks.

The errors of the client do not show it: a Redis without TLS waits for the end of the first handshake message, and a
Redis with TLS closes a connection that does not begin with a handshake.
"""

import socket
import ssl
from collections.abc import Sequence

#: Time limit of one probe of a port, in seconds.
_PROBE_S = 1.0


def tls_mismatch(addresses: Sequence[tuple[str, int]], *, uses_tls: bool, has_url: bool) -> str | None:
    """Return an error text if a server expects TLS and the settings have none, or the reverse; else None.

    With ``has_url`` the scheme of ``redis.url`` decides about TLS, else ``redis.tls``.
    """
    for host, port in addresses:
        if uses_tls and _answers_plainly(host, port):
            cure = "write redis:// in redis.url" if has_url else "set redis.tls = false"
            return f"TLS handshake against a server without TLS: {host}:{port} answers without; {cure}"
        if not uses_tls and _answers_tls(host, port):
            cure = "write rediss:// in redis.url" if has_url else "set redis.tls = true"
            return f"no TLS to a server that wants it: {host}:{port} answers a TLS handshake; {cure}"
    return None


def _answers_plainly(host: str, port: int) -> bool:
    """Tell whether a port answers PING without TLS, with a status or an error."""
    try:
        with socket.create_connection((host, port), _PROBE_S) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(1) in (b"+", b"-")
    except OSError:
        return False


def _answers_tls(host: str, port: int) -> bool:
    """Tell whether a port answers a TLS handshake, with any certificate or an alert."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent after the handshake
    try:
        with (
            socket.create_connection((host, port), _PROBE_S) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
