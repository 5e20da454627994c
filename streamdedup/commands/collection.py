"""What the commands that compare the documents of files have in common.

Their options, the profile that these make, the documents in the order of the files, and the index that they use for a
while: in memory, or in a namespace of its own in Redis.
"""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from streamdedup.commands.assembly import decoder_of
from streamdedup.commands.bad_lines import BadLines
from streamdedup.commands.completion import profile_names
from streamdedup.commands.progress import counting, read_with_progress
from streamdedup.corpora import Columns, CorpusReader, Entry
from streamdedup.corpora.detection import Format
from streamdedup.errors import CorpusError, SettingsError
from streamdedup.settings import Profile, Settings
from streamdedup.settings.units import counted
from streamdedup.store.base import BucketStore
from streamdedup.store.connection import check_server, connect
from streamdedup.store.memory import MemoryBucketStore
from streamdedup.store.redis import RedisBucketStore
from streamdedup.store.upkeep import IndexUpkeep

#: What a settings file would say for the profiles that need no file.
_PRESETS: dict[str, dict[str, object]] = {
    "articles": {"shingle_unit": "word"},
    "reviews": {"shingle_unit": "char"},
}
#: Documents that are prepared and indexed at once: one chunk of the daemon.
BATCH_DOCUMENTS = 500
#: How long the keys of an index in Redis live whose command was killed before it could delete them, in milliseconds.
LEFT_BEHIND_MS = 86_400_000

FilesArgument = Annotated[
    list[str], typer.Argument(help="Corpora: JSON lines, CSV, TSV, plain text, Reuters-21578; - for stdin.")
]
ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help="Take the profile from this settings file.")]
ProfileOption = Annotated[
    str,
    typer.Option(
        "--profile",
        "-p",
        help="articles (words), reviews (characters), or one of --config.",
        autocompletion=profile_names,
    ),
]
ThresholdOption = Annotated[float | None, typer.Option("--threshold", "-t", help="Least similarity, above 0 up to 1.")]
MinRecallOption = Annotated[float | None, typer.Option(help="Least share of the pairs at the threshold to find.")]
UnitOption = Annotated[str | None, typer.Option(help="Shingles of: word, char.")]
SizeOption = Annotated[int | None, typer.Option(help="Words or characters in a shingle.")]
SimilarityOption = Annotated[str | None, typer.Option(help="Jaccard similarity of: set, bag.")]
ExactLimitOption = Annotated[
    str | None, typer.Option(help="Distinct shingles up to which texts are compared exactly, or none.")
]
MinWordsOption = Annotated[int | None, typer.Option(help="Skip texts with fewer words.")]
ShortTextsOption = Annotated[str | None, typer.Option(help="Texts shorter than a shingle: whole, skip.")]
LettersOnlyOption = Annotated[
    bool | None, typer.Option("--letters-only/--keep-digits", help="Drop digits, or keep them.")
]
StopWordsOption = Annotated[str | None, typer.Option(help="Words to leave out: none, english, or a file.")]
IdFieldOption = Annotated[str | None, typer.Option("--id-field", "--id-column", help="Field or column of the id.")]
TextFieldOption = Annotated[
    list[str] | None,
    typer.Option("--text-field", "--text-column", help="Field or column of the text; may be repeated."),
]
FormatOption = Annotated[Format, typer.Option("--format", help="What the files hold.")]
RedisOption = Annotated[
    str | None,
    typer.Option(
        "--redis",
        metavar="URL",
        help="Keep the index in this Redis instead of in memory, under a prefix of its own, and delete it at the end.",
    ),
]


def given_settings(
    *, unit: str | None, size: int | None, exact_limit: str | None, text_field: list[str] | None, **same: object
) -> dict[str, object]:
    """Return what the options of a command say, by the names that the settings have.

    Args:
        unit: For ``shingle_unit``.
        size: For ``shingle_size``.
        exact_limit: A whole number or "none".
        text_field: For ``text_fields``.
        same: Options that are called like their settings.

    Raises:
        SettingsError: The limit is no number.
    """
    return {
        "shingle_unit": unit,
        "shingle_size": size,
        "exact_limit": exact_limit if exact_limit in (None, "none") else _whole("--exact-limit", exact_limit),
        "text_fields": text_field or None,
        **same,
    }


def _whole(option: str, text: str | None) -> int:
    try:
        return int(text or "")
    except ValueError:
        raise SettingsError(f"{option} {text}: must be a whole number or none") from None


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
