"""Logins that change while a process runs; ``indexes`` makes them from the settings.

The client reads the login whenever it connects, also after a server has closed a connection or refused a command for
lack of a valid login.
"""

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

from redis import exceptions
from redis.credentials import CredentialProvider

from streamdedup.errors import SettingsError


class RenewedLogin(CredentialProvider):
    """``source`` names the setting of the login."""

    def __init__(self, source: str, read: Callable[[], tuple[str, ...]]) -> None:
        self.source = source
        self._read = read

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """Return a password, or user and password; without any raise ``ConnectionError``: the daemon tries again.

        The text repeats no error of a provider, which could show a secret.
        """
        try:
            login: Any = tuple(self._read())
        except SettingsError as error:  # the file of ``source`` cannot be read
            raise exceptions.ConnectionError(f"{self.source}: {error}") from None
        except Exception as error:  # noqa: BLE001  a provider may raise anything, such as the error of its server
            raise exceptions.ConnectionError(f"{self.source} gives no login: {type(error).__name__}") from None
        if not 1 <= len(login) <= 2 or not all(isinstance(part, str) for part in login):
            raise exceptions.ConnectionError(f"{self.source} gives no login: neither a password nor user and password")
        result: tuple[str] | tuple[str, str] = login
        return result


def login_of_provider(name: str) -> RenewedLogin:
    """Return the login of a credential provider of the client, named by ``redis.credential_provider``.

    ``package:function`` names a function that returns the provider; it is called at the first login.
    """

    @cache
    def provider() -> Any:
        module, _, function = name.partition(":")
        return getattr(importlib.import_module(module), function)()

    return RenewedLogin("redis.credential_provider", lambda: provider().get_credentials())
