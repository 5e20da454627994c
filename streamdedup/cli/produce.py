"""``streamdedup produce``: a corpus into a topic, once or again and again, as it is or with changes."""

import time
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import typer

from streamdedup.cli.assembly import decoder_of, kafka_options
from streamdedup.cli.bad_lines import BadLines, SkipUnreadableOption
from streamdedup.cli.completion import topic_names
from streamdedup.cli.config import ConfigOption, SetOption, load_settings
from streamdedup.cli.pace import Pace, RateOption
from streamdedup.cli.progress import read_with_progress
from streamdedup.cli.variation import Variation
from streamdedup.corpora import STDIN, Columns, CorpusReader, Entry
from streamdedup.corpora.detection import Format
from streamdedup.errors import SettingsError
from streamdedup.kafka.feeder import Feeder
from streamdedup.settings import Settings
from streamdedup.settings.units import counted
from streamdedup.wire import Decoder

#: Options of the commands that send tables.
IdColumnOption = Annotated[str | None, typer.Option("--id-column", help="Column of the id, in a table.")]
TextColumnOption = Annotated[
    list[str] | None, typer.Option("--text-column", help="Column of the text, in a table; may be repeated.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="What the files hold.")]


def _topic_decoder(settings: Settings, topic: str) -> Decoder:
    for profile in settings.profiles.values():
        if topic in profile.topics:
            return decoder_of(profile)
    known = ", ".join(name for profile in settings.profiles.values() for name in profile.topics)
    raise SettingsError(f"--topic {topic}: no profile has this topic; the settings name {known}")


class _Passes:
    """The entries of several files, again and again, each with its changes.

    Attributes:
        bad_lines: Lines so far that are no documents.
    """

    def __init__(
        self, readers: list[tuple[str, CorpusReader]], repeat: int, variation: Variation, *, skip_unreadable: bool
    ) -> None:
        self._readers = readers
        self._repeat = repeat
        self._variation = variation
        self._skip_unreadable = skip_unreadable
        self.bad_lines = BadLines()

    def __iter__(self) -> Iterator[Entry]:
        for number in range(1, self._repeat + 1):
            for file, reader in self._readers:
                label = file if self._repeat == 1 else f"{file} ({number} of {self._repeat})"
                for entry in read_with_progress(reader, label):
                    if entry.problem is not None:
                        self.bad_lines.note(entry, is_known=number > 1)
                        if self._skip_unreadable:
                            continue
                    yield self._variation.of(entry, number)


def produce(  # noqa: PLR0913  a command line has as many options as it has
    files: Annotated[
        list[str], typer.Argument(help="Corpora: JSON lines, CSV, TSV, plain text, Reuters-21578; - for stdin.")
    ],
    topic: Annotated[
        str, typer.Option("--topic", "-t", help="Topic to send to; one of a profile.", autocompletion=topic_names)
    ],
    config: ConfigOption = None,
    assignments: SetOption = None,
    rate: RateOption = 0.0,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Stop after so many records.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Send all files so many times, with new ids each time.")] = 1,
    same_ids: Annotated[bool, typer.Option("--same-ids", help="Keep the ids when repeating.")] = False,
    vary: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="Replace this share of the words by random ones.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="What --vary draws its words from.")] = 1,
    corpus_format: FormatOption = "auto",
    id_column: IdColumnOption = None,
    text_column: TextColumnOption = None,
    source_column: Annotated[str | None, typer.Option(help="Column of the source, in a table.")] = None,
    published_at_column: Annotated[str | None, typer.Option(help="Column of the time of publication.")] = None,
    skip_unreadable: SkipUnreadableOption = False,
) -> None:
    """Send a corpus into an input topic, each document keyed by its id.

    JSON lines are sent untouched, also those that are no documents: the daemon makes dead letters of them, unless
    --skip-unreadable leaves them out. Rows of a table become JSON objects with the field names of the profile; its
    columns have these names too, unless options say otherwise.

    For load tests, --repeat sends everything several times, under ids that end in #2, #3 ..., and --vary changes the
    texts.

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
    entries = _Passes(readers, repeat, Variation(vary, seed, same_ids=same_ids), skip_unreadable=skip_unreadable)
    pace, started = Pace(rate), time.monotonic()
    with Feeder(kafka_options(settings)) as feeder:
        for entry in islice(entries, limit):
            pace.wait()
            feeder.send(topic, entry.key, entry.value(decoder))
    duration_s = time.monotonic() - started
    sent = counted(feeder.delivered_count, "record")
    bad_lines = _told(entries.bad_lines.count, left_out=skip_unreadable)
    typer.echo(f"{sent} sent to {topic} in {duration_s:.1f} s{bad_lines}", err=True)


def _told(count: int, *, left_out: bool) -> str:
    """Say how many lines are no documents; nothing where all are."""
    if not count:
        return ""
    if left_out:
        return f"; {counted(count, 'line')} left out: no documents"
    return f"; {count:,} of them {'is no document' if count == 1 else 'are no documents'}"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(produce)
