"""A login to Redis whose tokens last seconds: the provider, and the server's side of it."""

import threading
import time
from typing import Self

import redis
from redis.credentials import CredentialProvider

#: User of the tokens.
USER = "tokens"
#: Seconds for which a token is the present one; then the server refuses it.
LIFETIME_S = 2


def _token(number: int) -> str:
    return f"canary-token-{number}"


class Provider(CredentialProvider):
    """Gives the present token."""

    def get_credentials(self) -> tuple[str, str]:
        """Return user and token."""
        return USER, _token(int(time.time()) // LIFETIME_S)


def provider() -> Provider:
    """Return the provider, as the setting names it."""
    return Provider()


def failing_provider() -> Provider:
    """Fail as a provider does whose server is away."""
    raise OSError("canary-token-of-the-provider")


class ExpiringTokens:
    """Makes a server refuse the tokens of the past, and end the connections of those who logged in by them.

    Args:
        port: Port of the server.

    Attributes:
        ended_count: Connections ended so far.
    """

    def __init__(self, port: int) -> None:
        self._client = redis.Redis(port=port)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.ended_count = 0

    def _run(self) -> None:
        before = None
        while not self._stop.wait(0.05):
            number = int(time.time()) // LIFETIME_S
            if number != before:
                before = number
                self._accept(number)

    def _accept(self, number: int) -> None:
        # Later tokens too, for a thread that a busy machine wakes late, and the one before, for a login on its way.
        accepted = [f">{_token(near)}" for near in range(number - 1, number + 30)]
        self._client.execute_command("ACL", "SETUSER", USER, "on", "~*", "&*", "+@all", "resetpass", *accepted)
        self.ended_count += int(self._client.execute_command("CLIENT", "KILL", "USER", USER, "SKIPME", "yes"))

    def __enter__(self) -> Self:
        self._accept(int(time.time()) // LIFETIME_S)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._client.execute_command("ACL", "DELUSER", USER)
        self._client.close()
