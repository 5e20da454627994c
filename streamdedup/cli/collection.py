"""Profile and temporary index of the commands that compare the documents of files (options: ``cli.options``)."""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import typer

from streamdedup.cli.output import counting
from streamdedup.corpora import Entry
from streamdedup.errors import SettingsError
from streamdedup.index.contract import Index
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.redis.admin import IndexUpkeep
from streamdedup.index.redis.base import RedisIndexOptions
from streamdedup.index.redis.connection import check_server, connect
from streamdedup.index.redis.servers import Servers
from streamdedup.index.redis.store import RedisIndex
from streamdedup.settings import Profile, Settings
from streamdedup.settings.units import counted
from streamdedup.wire import Document

#: A document of a file or of a topic.
Versioned = TypeVar("Versioned", Entry, Document)
#: Settings of the profiles that need no settings file.
_PRESETS: dict[str, dict[str, object]] = {
    "articles": {"shingle_unit": "word"},
    "reviews": {"shingle_unit": "char"},
}
#: Documents of one batch.
BATCH_DOCUMENTS = 500
#: Time to live of a temporary index whose command was killed before it could delete the index, in milliseconds.
LEFT_BEHIND_MS = 86_400_000


def scan_profile(config: Path | None, name: str, overrides: Mapping[str, Any]) -> Profile:
    """Return a profile of a settings file, or a preset, with the overrides of the command line.

    Raises:
        SettingsError: There is no such profile, or an override is wrong.
    """
    given = {f"profiles.{name}.{key}": value for key, value in overrides.items() if value is not None}
    if config is not None:
        settings = Settings.load(config, given)
        if name not in settings.profiles:
            raise SettingsError(f"{config} has no profile {name}; it has {', '.join(sorted(settings.profiles))}")
        return settings.profiles[name]
    if name not in _PRESETS:
        raise SettingsError(f"--profile {name}: without --config it is one of {', '.join(_PRESETS)}")
    preset = {f"profiles.{name}.{key}": value for key, value in _PRESETS[name].items()}
    servers = {"kafka.bootstrap_servers": "localhost:9092", "redis.url": "redis://localhost:6379/0"}
    needed = servers | {f"profiles.{name}.topics": "scan"}
    return Settings.load(None, needed | preset | given, environ={}).profiles[name]


def first_versions(entries: Iterable[Versioned]) -> Iterator[Versioned]:
    """Yield the first document of each id; the others are counted on standard error."""
    known: set[str] = set()
    repeated_count = 0
    for entry in entries:
        if entry.id in known:
            repeated_count += 1
        else:
            known.add(entry.id)
            yield entry
    if repeated_count:
        typer.echo(f"passed over: {counted(repeated_count, 'document')} whose id occurred before", err=True)


@contextmanager
def temporary_store(url: str | None, profile: Profile, bucket_cap: int | None) -> Iterator[Index]:
    """Open an empty index, and delete it afterwards.

    Args:
        url: URL of a Redis server; None for the memory of this process.
        profile: Profile of the index.
        bucket_cap: Most documents in a bucket; None for no limit.

    Raises:
        SettingsError: The URL cannot be used.
        StoreUnavailable: The server does not answer.
        StoreMisconfigured: It is too old, or drops keys when it is full.
    """
    if url is None:
        memory = MemoryIndex(bucket_cap=bucket_cap)
        memory.open(profile.fingerprint())
        yield memory
        return
    namespace = f"streamdedup-temporary:{secrets.token_hex(8)}"
    with connect(url) as servers:
        for warning in check_server(servers):
            typer.echo(f"streamdedup: {warning}", err=True)
        with temporary_index(
            servers, namespace, profile, bands=profile.banding().bands, bucket_cap=bucket_cap
        ) as store:
            yield store


@contextmanager
def temporary_index(
    servers: Servers,
    namespace: str,
    profile: Profile,
    *,
    bands: int,
    bucket_cap: int | None,
    bucket_layout: str = "sets",
    shards: int = 1,
) -> Iterator[RedisIndex]:
    """Create an empty index in Redis, and delete it afterwards.

    Args:
        servers: Connection.
        namespace: Prefix of its keys, which no other index has.
        profile: Profile of the index.
        bands: Bands of the index.
        bucket_cap: Most documents in a bucket; None for no limit.
        bucket_layout: Name of the bucket layout.
        shards: Slots for each band.
    """
    options = RedisIndexOptions(
        namespace=namespace,
        bands=bands,
        shards=shards,
        lifetime_ms=LEFT_BEHIND_MS,
        bucket_cap=bucket_cap,
        bucket_layout=bucket_layout,
    )
    store = RedisIndex(servers, options)
    try:
        store.open(profile.fingerprint())
        yield store
    finally:
        with counting("deleting the temporary index") as on_keys:
            IndexUpkeep(servers, namespace).drop(on_keys)
