"""What the commands that compare the documents of files have in common.

The profile, the documents in the order of the files, and the index that they use for a while: in memory, or in a
namespace of its own in Redis. Their options: ``commands.options``.
"""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from streamdedup.cli.assembly import decoder_of
from streamdedup.cli.bad_lines import BadLines
from streamdedup.cli.progress import counting, read_with_progress
from streamdedup.corpora import Columns, CorpusReader, Entry
from streamdedup.corpora.detection import Format
from streamdedup.errors import CorpusError, SettingsError
from streamdedup.index.contract import BucketStore
from streamdedup.index.memory import MemoryBucketStore
from streamdedup.index.redis.admin import IndexUpkeep
from streamdedup.index.redis.connection import check_server, connect
from streamdedup.index.redis.store import RedisBucketStore
from streamdedup.settings import Profile, Settings
from streamdedup.settings.units import counted

#: What a settings file would say for the profiles that need no file.
_PRESETS: dict[str, dict[str, object]] = {
    "articles": {"shingle_unit": "word"},
    "reviews": {"shingle_unit": "char"},
}
#: Documents that are prepared and indexed at once: one chunk of the daemon.
BATCH_DOCUMENTS = 500
#: How long the keys of an index in Redis live whose command was killed before it could delete them, in milliseconds.
LEFT_BEHIND_MS = 86_400_000


def scan_profile(config: Path | None, name: str, overrides: Mapping[str, Any]) -> Profile:
    """Return the profile to compare by: one of a settings file, or a preset, changed by what the command line says.

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


@dataclass(frozen=True, slots=True)
class Collection:
    """Files, and how to read them.

    Attributes:
        files: Their names; - is standard input.
        profile: By whose field names records are read.
        format: What the files hold.
        id_field: The column of the id, if it was named.
        text_fields: The columns of the text, if they were named.
        skip_unreadable: Lines that are no documents are left out; the first are named, and all counted at the end.
        command: Name of the command, for what it reports.
    """

    files: list[str]
    profile: Profile
    format: Format
    id_field: str | None
    text_fields: list[str] | None
    skip_unreadable: bool
    command: str

    def entries(self) -> Iterator[Entry]:
        """Yield the documents, with a bar on standard error; what is no document is reported there.

        Raises:
            CorpusError: A file cannot be read; or a line is no document, and unreadable ones are not to be skipped.
        """
        columns = Columns(self.id_field, tuple(self.text_fields or ()), tables_only=False)
        bad_lines = BadLines()
        for file in self.files:
            reader = CorpusReader(
                file,
                format=self.format,
                on_bad="pass",
                decoder=decoder_of(self.profile),
                columns=columns,
            )
            for entry in read_with_progress(reader, file):
                if entry.problem is not None:
                    if not self.skip_unreadable:
                        raise CorpusError(
                            f"{entry.file}:{entry.line}: {entry.problem}; --skip-unreadable leaves such lines out"
                        )
                    bad_lines.note(entry)
                elif entry.op != "upsert":
                    typer.echo(f"{entry.file}:{entry.line}: op {entry.op} is passed over by {self.command}", err=True)
                else:
                    yield entry
        if bad_lines.count:
            typer.echo(f"{counted(bad_lines.count, 'line')} left out: no documents", err=True)

    def first_versions(self) -> Iterator[Entry]:
        """Yield the same, of entries with one id the first only; the others are counted on standard error.

        Raises:
            CorpusError: See ``entries``.
        """
        known: set[str] = set()
        repeated_count = 0
        for entry in self.entries():
            if entry.id in known:
                repeated_count += 1
            else:
                known.add(entry.id)
                yield entry
        if repeated_count:
            typer.echo(f"passed over: {counted(repeated_count, 'document')} whose id occurred before", err=True)


@contextmanager
def temporary_store(url: str | None, profile: Profile, bucket_cap: int | None) -> Iterator[BucketStore]:
    """Open an empty index, and delete it afterwards.

    Args:
        url: Of a Redis server; None for this process's memory.
        profile: What the index is for.
        bucket_cap: Most documents in a bucket; None for no limit.

    Raises:
        SettingsError: The URL cannot be used.
        StoreUnavailable: The server does not answer.
        StoreMisconfigured: It is too old, or drops keys when it is full.
    """
    if url is None:
        memory = MemoryBucketStore(bucket_cap=bucket_cap)
        memory.open(profile.fingerprint())
        yield memory
        return
    namespace = f"streamdedup-temporary:{secrets.token_hex(8)}"
    with connect(url) as servers:
        for warning in check_server(servers):
            typer.echo(f"streamdedup: {warning}", err=True)
        store = RedisBucketStore(
            servers,
            namespace=namespace,
            bands=profile.banding().bands,
            lifetime_ms=LEFT_BEHIND_MS,
            bucket_cap=bucket_cap,
        )
        try:
            store.open(profile.fingerprint())
            yield store
        finally:
            with counting("deleting the temporary index") as on_keys:
                IndexUpkeep(servers, namespace).drop(on_keys)
