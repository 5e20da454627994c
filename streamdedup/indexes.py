"""Turns settings into detector options, index parameters and the store of the indexes.

Called by ``library`` and ``cli``. Only this module opens indexes in Redis; ``library`` and ``cli.collection`` construct
indexes in memory. A new setting that detection needs is added to ``detector_options`` and ``DetectorOptions``.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from streamdedup.detection.model import DetectorOptions
from streamdedup.detection.suppression import suppression_of
from streamdedup.errors import SettingsError
from streamdedup.index.backend import Backend, IndexParameters
from streamdedup.index.redis.backend import RedisBackend, RedisOptions
from streamdedup.index.redis.connection import (
    RenewedLogin,
    connect,
    connect_cluster,
    connect_sentinel,
    login_of_provider,
)
from streamdedup.index.redis.servers import Servers
from streamdedup.settings import Profile, Redis, Settings
from streamdedup.settings.redis import CONNECT_TIMEOUT_S, LONE_USER, URL_ALLOWED, redact_url, url_mistake
from streamdedup.settings.tls import tls_file_mistakes
from streamdedup.similarity.measures import MEASURES

#: TLS options in the URL of a program: those that name files, in the order of ``tls_file_mistakes``; and all.
_TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_TLS_OPTIONS = frozenset({*_TLS_FILES, "ssl_check_hostname"})


def detector_options(name: str, profile: Profile) -> DetectorOptions:
    return DetectorOptions(
        profile=name,
        shingles=profile.shingle_options(),
        banding=profile.banding(),
        permutations=profile.permutations,
        seed=profile.seed,
        threshold=profile.threshold,
        containment=profile.containment_rule(),
        recall_from=profile.recall_from,
        measure=MEASURES[profile.similarity],
        min_shared_bands=profile.min_shared_bands,
        min_words=profile.min_words,
        exact_limit=profile.exact_limit,
        window_ms=round(profile.retention_s * 1000),
        silent_until_ms=profile.index_silently_until_ms,
        max_candidates=profile.max_candidates,
        suppression=suppression_of(
            min_shingles=profile.min_shingles,
            only_sources=profile.only_sources,
            ignore_same_source=profile.ignore_same_source,
            ignore_sources=profile.ignore_sources,
        ),
        label_bytes=profile.label_bytes,
        scope_field=profile.scope_field,
        default_scope=profile.default_scope,
    )


def lifetime_ms(profile: Profile) -> int:
    return round((profile.retention_s + profile.retention_slack_s) * 1000)


def index_parameters(profile: Profile) -> IndexParameters:
    return IndexParameters(
        fingerprint=profile.fingerprint(),
        bands=profile.banding().bands,
        lifetime_ms=lifetime_ms(profile),
        bucket_cap=profile.bucket_cap,
    )


def connect_backend(settings: Settings, *, from_replicas: bool = False) -> Backend:
    """Return the store of the daemons' indexes; nothing is sent yet. ``from_replicas``: for commands that only read."""
    return redis_backend(settings, _connections(settings.redis, from_replicas=from_replicas))


def redis_backend(settings: Settings, connections: Servers) -> RedisBackend:
    """Return the store of the daemons' indexes over ``connections``; tests pass their own."""
    redis = settings.redis
    options = RedisOptions(
        prefix=redis.key_prefix,
        address=redis.shown_url,
        shards=redis.shards,
        bucket_layout=redis.bucket_layout,
        # For the check that client and server agree about TLS.
        tcp_addresses=redis.addresses,
        uses_tls=redis.uses_tls,
    )
    indexes = {name: index_parameters(profile) for name, profile in settings.profiles.items()}
    return RedisBackend(connections, options, indexes)


def backend_at(url: str, prefix: str, indexes: Mapping[str, IndexParameters]) -> Backend:
    """Return the store of the indexes that a program writes with the library, on one server; nothing is sent yet.

    Raises ``SettingsError`` for a URL that the settings would refuse too, except for ``_TLS_OPTIONS``.
    """
    mistake = url_mistake(url, _TLS_OPTIONS)
    if mistake is None and (parts := urlsplit(url)).username and parts.password is None:
        mistake = f"it has a user and no password; {LONE_USER}"
    if mistake is not None:
        raise SettingsError(f"url: the value (not shown) is not valid: {mistake}; allowed: {URL_ALLOWED}")
    files = dict(parse_qsl(urlsplit(url).query))
    for _, text in tls_file_mistakes(*(Path(files[name]) if name in files else None for name in _TLS_FILES)):
        raise SettingsError(f"url: a file of TLS ({', '.join(_TLS_FILES)}) {text}")
    return RedisBackend(connect(url), RedisOptions(prefix=prefix, address=redact_url(url)), indexes)


def _connections(redis: Redis, *, from_replicas: bool) -> Servers:
    timeouts = {"timeout_s": redis.timeout_s, "connect_timeout_s": CONNECT_TIMEOUT_S}
    if redis.mode == "cluster":
        return connect_cluster(redis.addresses, security=_security(redis), from_replicas=from_replicas, **timeouts)
    if redis.mode == "sentinel":
        sentinel_file_key = "sentinel_password_file" if redis.sentinel_password_file else None
        return connect_sentinel(
            redis.addresses,
            redis.sentinel_service or "",  # never None in this mode: the settings are validated
            security=_security(redis),
            sentinel_security=redis.tls_arguments() | _login_arguments(redis.sentinel_login, sentinel_file_key),
            from_replicas=from_replicas,
            **timeouts,
        )
    return connect(redis.url_without_login, security=_security(redis), **timeouts)


def _security(redis: Redis) -> dict[str, Any]:
    """Return the Redis client's keyword arguments for TLS and login."""
    if redis.credential_provider is not None:
        login = login_of_provider(redis.credential_provider)
        return redis.tls_arguments() | {"credential_provider": login}
    file_key = "password_file" if redis.password_file else "url_file" if redis.url_file else None
    return redis.tls_arguments() | _login_arguments(redis.login, file_key)


def _login_arguments(read: Callable[[], tuple[str, ...]], file_key: str | None) -> dict[str, Any]:
    """Return the arguments for a login; ``read`` is called again for each connection if ``file_key`` names a file."""
    login = read()
    if login and file_key is not None:
        return {"credential_provider": RenewedLogin(f"redis.{file_key}", read)}
    # The login has no, one or two parts; the password is the last one.
    return dict(zip(("password", "username"), reversed(login), strict=False))
