"""``streamdedup produce``: send a corpus into a topic, once or repeatedly, unchanged or with variations."""

import time
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import typer

from streamdedup.cli.assembly import decoder_of, kafka_options
from streamdedup.cli.options import (
    FilesArgument,
    FormatOption,
    IdColumnOption,
    SkipUnreadableOption,
    TextColumnOption,
)
from streamdedup.cli.output import BadLines, read_with_progress
from streamdedup.cli.pace import Pace, RateOption
from streamdedup.cli.settings_options import ConfigOption, SetOption, load_settings, topic_names
from streamdedup.cli.variation import Variation
from streamdedup.corpora import STDIN, Columns, CorpusReader, Entry
from streamdedup.errors import SettingsError
from streamdedup.kafka.producer import Feeder
from streamdedup.settings import Settings
from streamdedup.settings.units import counted
from streamdedup.wire import Decoder


def produce(  # noqa: PLR0913  one argument per option
    files: FilesArgument,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Input topic of a profile.", autocompletion=topic_names)],
    config: ConfigOption = None,
    assignments: SetOption = None,
    rate: RateOption = 0.0,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Stop after this many records.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Send all files this many times, with new ids each time.")] = 1,
    same_ids: Annotated[bool, typer.Option("--same-ids", help="Keep the ids when repeating.")] = False,
    vary: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="Replace this share of the words by random ones.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Random seed of --vary.")] = 1,
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
    unless options name them.

    For load tests, --repeat sends all files several times, with ids that end in #2, #3 ..., and --vary changes the
    texts.

    Ctrl-C ends it: records that were read are stored, and counted.

    Example:  streamdedup produce articles.jsonl.gz --topic articles --config streamdedup.toml --rate 100

    Example:  streamdedup produce reviews.csv --topic reviews --config streamdedup.toml --text-column body

    Example:  streamdedup produce articles.jsonl --topic articles --config streamdedup.toml --repeat 10 --vary 0.02
    """
    if repeat > 1 and STDIN in files:
        raise SettingsError("--repeat: standard input can be read only once")
    settings = load_settings(config, assignments)
    decoder = _topic_decoder(settings, topic)
    columns = Columns(id_column, tuple(text_column or ()), source_column, published_at_column)
    readers = [
        (file, CorpusReader(file, format=corpus_format, on_bad="pass", decoder=decoder, columns=columns))
        for file in files
    ]
    bad_lines, variation = BadLines(), Variation(vary, seed, same_ids=same_ids)
    pace, started = Pace(rate), time.monotonic()
    entries = islice(_entries(readers, repeat, bad_lines, skip_unreadable=skip_unreadable), limit)
    interrupted = False
    with Feeder(kafka_options(settings)) as feeder:
        try:
            for entry, number in entries:
                pace.wait()
                sent = variation.of(entry, number)
                feeder.send(topic, sent.key, sent.value(decoder))
        except KeyboardInterrupt:
            interrupted = True
    duration_s = time.monotonic() - started
    records = counted(feeder.delivered_count, "record")
    bad = _bad_lines_text(bad_lines.count, left_out=skip_unreadable)
    end = ", until the interruption" if interrupted else ""
    typer.echo(f"{records} sent to {topic} in {duration_s:.1f} s{end}{bad}", err=True)
    if interrupted:
        raise KeyboardInterrupt


def _topic_decoder(settings: Settings, topic: str) -> Decoder:
    for profile in settings.profiles.values():
        if topic in profile.topics:
            return decoder_of(profile)
    known = ", ".join(name for profile in settings.profiles.values() for name in profile.topics)
    raise SettingsError(f"--topic {topic}: no profile has this topic; the settings name {known}")


def _entries(
    readers: list[tuple[str, CorpusReader]], repeat: int, bad_lines: BadLines, *, skip_unreadable: bool
) -> Iterator[tuple[Entry, int]]:
    """Yield the entries of all files, ``repeat`` times, each with the number of the repetition."""
    for number in range(1, repeat + 1):
        for file, reader in readers:
            title = file if repeat == 1 else f"{file} ({number} of {repeat})"
            for entry in read_with_progress(reader, title):
                if entry.problem is not None:
                    bad_lines.report(entry, is_known=number > 1)
                    if skip_unreadable:
                        continue
                yield entry, number


def _bad_lines_text(count: int, *, left_out: bool) -> str:
    if not count:
        return ""
    if left_out:
        return f"; {counted(count, 'line')} left out: no documents"
    return f"; {count:,} of them {'is no document' if count == 1 else 'are no documents'}"
