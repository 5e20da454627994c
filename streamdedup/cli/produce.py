"""``streamdedup produce``: send a corpus into a topic."""

import json
import time
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import typer

from streamdedup.cli.assembly import decoder_of, kafka_options, topic_decoder
from streamdedup.cli.options import (
    FilesArgument,
    FormatOption,
    IdColumnOption,
    SkipUnreadableOption,
    TextColumnOption,
)
from streamdedup.cli.output import BadLines, read_with_progress, tell
from streamdedup.cli.settings_options import ConfigOption, SetOption, load_settings
from streamdedup.corpora import Columns, CorpusReader, Entry
from streamdedup.errors import CorpusError, DecodeError, SettingsError
from streamdedup.kafka.pace import Pace
from streamdedup.kafka.producer import Feeder
from streamdedup.settings import Profile, Settings
from streamdedup.settings.units import counted
from streamdedup.wire import RegistryFormat
from streamdedup.wire.formats.registry import Write


def produce(  # noqa: PLR0913  one argument per option
    files: FilesArgument,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Input topic of a profile.")],
    config: ConfigOption = None,
    assignments: SetOption = None,
    rate: Annotated[
        float, typer.Option("--rate", min=0, help="Records per second; 0 for no limit.", show_default=False)
    ] = 0.0,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Stop after this many records.")] = None,
    corpus_format: FormatOption = "auto",
    id_column: IdColumnOption = None,
    text_column: TextColumnOption = None,
    source_column: Annotated[str | None, typer.Option(help="Column of the source, in a table.")] = None,
    published_at_column: Annotated[str | None, typer.Option(help="Column of the time of publication.")] = None,
    skip_unreadable: SkipUnreadableOption = False,
) -> None:
    """Send a corpus into an input topic, each document keyed by its id.

    JSON lines are sent unchanged, malformed ones included: the daemon turns them into dead letters. --skip-unreadable
    leaves them out. Table rows become JSON objects with the field names of the profile; columns have these names too,
    unless options name them. Where the format of the profile has schemas, documents are written with the newest schema
    of the topic, and other lines are left out.

    Ctrl-C ends it as soon as the records sent so far have arrived, and counts them.

    Example:  streamdedup produce articles.jsonl.gz --topic articles --config streamdedup.toml --rate 100

    Example:  streamdedup produce reviews.csv --topic reviews --config streamdedup.toml --text-column body
    """
    settings = load_settings(config, assignments)
    profile = _topic_profile(settings, topic)
    decoder, write = decoder_of(profile), _writer(settings, profile, topic)
    skip_unreadable = skip_unreadable or write is not None
    columns = Columns(id_column, tuple(text_column or ()), source_column, published_at_column)
    readers = [
        (file, CorpusReader(file, format=corpus_format, on_bad="pass", decoder=decoder, columns=columns))
        for file in files
    ]
    bad_lines, pace, started = BadLines(), Pace(rate), time.monotonic()
    entries = islice(_entries(readers, bad_lines, skip_unreadable=skip_unreadable), limit)
    interrupted = False
    with Feeder(kafka_options(settings)) as feeder:
        try:
            for entry in entries:
                pace.wait()
                value = entry.value(decoder)
                feeder.send(topic, entry.key, value if write is None else _framed(write, entry, value))
        except KeyboardInterrupt:
            interrupted = True
    duration_s = time.monotonic() - started
    records = counted(feeder.delivered_count, "record")
    bad = _bad_lines_text(bad_lines.count, left_out=skip_unreadable)
    end = ", until the interruption" if interrupted else ""
    tell(f"{records} sent to {topic} in {duration_s:.1f} s{end}{bad}", err=True)
    if interrupted:
        raise KeyboardInterrupt


def _topic_profile(settings: Settings, topic: str) -> Profile:
    for profile in settings.profiles.values():
        if topic in profile.topics:
            return profile
    existing = ", ".join(name for profile in settings.profiles.values() for name in profile.topics)
    raise SettingsError(f"--topic {topic}: no profile has this topic; the settings name {existing}")


def _writer(settings: Settings, profile: Profile, topic: str) -> Write | None:
    """Return a writer of values with the newest schema of a topic; None where values have no schemas."""
    value_format = topic_decoder(settings, profile).value_format
    if not isinstance(value_format, RegistryFormat):
        return None
    try:
        write = value_format.writer(f"{topic}-value")
    except DecodeError as error:
        raise SettingsError(f"newest schema of {topic}-value: {error}") from error
    if write is None:
        raise SettingsError(f"the schema registry has no subject {topic}-value; register a schema first")
    return write


def _framed(write: Write, entry: Entry, value: bytes) -> bytes:
    try:
        return write(json.loads(value))
    except DecodeError as error:
        raise CorpusError(f"{entry.file}:{entry.line}: {error}") from error


def _entries(readers: list[tuple[str, CorpusReader]], bad_lines: BadLines, *, skip_unreadable: bool) -> Iterator[Entry]:
    """Yield the entries of all files."""
    for file, reader in readers:
        # The reader passes malformed lines on, because they are sent too.
        for entry in read_with_progress(reader, file):
            if entry.problem is not None:
                bad_lines.report(entry)
                if skip_unreadable:
                    continue
            yield entry


def _bad_lines_text(count: int, *, left_out: bool) -> str:
    if not count:
        return ""
    if left_out:
        return f"; {counted(count, 'line')} left out: no documents"
    return f"; {count:,} of them {'is no document' if count == 1 else 'are no documents'}"
