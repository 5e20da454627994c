"""``streamdedup produce``: send a corpus into a topic, or with ``--erase-scope`` the tombstones of a scope."""

import json
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Annotated, Any, NamedTuple

import typer

from streamdedup.cli.assembly import file_decoder, kafka_options, required_writer, topic_decoder
from streamdedup.cli.collection import FileEntries, up_to_limit
from streamdedup.cli.erase_scope import erase_documents
from streamdedup.cli.options import FormatOption
from streamdedup.cli.output import MistakeReports, tell
from streamdedup.cli.settings_options import ConfigOption, SetOption, load_settings
from streamdedup.cli.topic_reading import topic_profile
from streamdedup.corpora import FORMAT_TITLES, Columns, CorpusReader
from streamdedup.counts import counted
from streamdedup.errors import EXIT_FAILED, CorpusError, DecodeError, SettingsError
from streamdedup.kafka.admin import require_topics
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.pace import Pace
from streamdedup.kafka.producer import Feeder
from streamdedup.wire import Decoder, ErrorCode, RegistryFormat, repair_json
from streamdedup.wire.formats.registry import Write


class _OutgoingRecord(NamedTuple):
    """A record to send; ``name`` is for messages."""

    name: str
    key: bytes | None
    value: bytes | None


def produce(  # noqa: PLR0913  one argument per option
    files: Annotated[list[str] | None, typer.Argument(help=f"Corpora: {FORMAT_TITLES}; - for stdin.")] = None,
    *,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Input topic of a profile.")],
    config: ConfigOption = None,
    assignments: SetOption = None,
    rate: Annotated[
        float, typer.Option("--rate", min=0, help="Records per second; 0 for no limit.", show_default=False)
    ] = 0.0,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Stop after this many records.")] = None,
    corpus_format: FormatOption = "auto",
    id_column: Annotated[str | None, typer.Option("--id-column", help="Column of the id, in a table.")] = None,
    text_column: Annotated[
        list[str] | None, typer.Option("--text-column", help="Column of the text, in a table; may be repeated.")
    ] = None,
    source_column: Annotated[str | None, typer.Option(help="Column of the source, in a table.")] = None,
    published_at_column: Annotated[str | None, typer.Option(help="Column of the time of publication.")] = None,
    erase_scope: Annotated[
        str | None,
        typer.Option(metavar="SCOPE", help="Instead of files: a tombstone for each document of the topic in a scope."),
    ] = None,
) -> None:
    """Send a corpus into an input topic, each document keyed by its id.

    JSON lines are sent unchanged, malformed ones included: the daemon turns them into dead letters. Table rows become
    JSON objects with the field names of the profile. The columns must have these names, unless options name others.
    Where the format of the profile has schemas, documents are written with the newest schema of the topic, and
    malformed lines are left out.

    --erase-scope reads the topic to its end, and deletes each document whose last version is in the scope.

    Ctrl-C ends it as soon as the records sent so far have arrived, and counts them.

    Example:  streamdedup produce articles.jsonl.gz --topic articles --config streamdedup.toml --rate 100

    Example:  streamdedup produce reviews.csv --topic reviews --config streamdedup.toml --text-column body
    """
    settings = load_settings(config, assignments)
    profile = topic_profile(settings, topic)
    if bool(files) == (erase_scope is not None):
        raise SettingsError("produce sends files, or tombstones with --erase-scope: give one of the two")
    columns = Columns(id_column, tuple(text_column or ()), source_column, published_at_column)
    if erase_scope is not None:
        if rate or limit or corpus_format != "auto" or columns:
            raise SettingsError("--erase-scope goes with --topic, --config and --set alone; leave other options out")
        erase_documents(settings, profile, topic, erase_scope)
        return
    # Files are JSON or tables; the topic may have another format.
    decoder, records_decoder = file_decoder(profile), topic_decoder(settings, profile)
    write_key, write_value = required_writer(records_decoder.key_writer, f"{topic}-key"), None
    if isinstance(records_decoder.value_format, RegistryFormat):
        write_value = required_writer(records_decoder.value_format.writer, f"{topic}-value")
    readers = [
        (file, CorpusReader(file, format=corpus_format, decoder=decoder, columns=columns)) for file in files or ()
    ]
    inputs = FileEntries()
    records = up_to_limit(_records(readers, inputs, decoder, write_key, write_value), limit)
    options, leaves_out = kafka_options(settings), write_value is not None
    _send_and_report(options, topic, records, Pace(rate), inputs, leaves_out_malformed=leaves_out)


def _send_and_report(
    options: KafkaOptions,
    topic: str,
    records: Iterable[_OutgoingRecord],
    pace: Pace,
    inputs: FileEntries,
    *,
    leaves_out_malformed: bool,
) -> None:
    """Send the records that are made from ``inputs``, and tell their count and what was left out."""
    started = time.monotonic()
    sent_count, large_count, is_interrupted = _send(options, topic, records, pace)
    end = ", until the interruption" if is_interrupted else ""
    if count := inputs.malformed.count:
        end += f"; {counted(count, 'line')} {'left out:' if leaves_out_malformed else 'that are'} no documents"
    if large_count:
        end += f"; {counted(large_count, 'record')} left out: too large"
    tell(f"{counted(sent_count, 'record')} sent to {topic} in {time.monotonic() - started:.1f} s{end}", err=True)
    if is_interrupted:
        raise KeyboardInterrupt
    if large_count:
        raise typer.Exit(EXIT_FAILED)


def _send(options: KafkaOptions, topic: str, records: Iterable[_OutgoingRecord], pace: Pace) -> tuple[int, int, bool]:
    """Send records; return the count of those stored, of those too large, and whether Ctrl-C ended the work."""
    require_topics(options, {topic: ("WRITE",)})
    defers_interrupt, is_interrupted, too_large = False, False, MistakeReports("too large")

    def interrupt(*_: object) -> None:
        nonlocal is_interrupted
        # The first Ctrl-C lets `send` and the flush end: the client may have a record that is not counted yet.
        if is_interrupted or not defers_interrupt:
            raise KeyboardInterrupt
        is_interrupted = True

    with ExitStack() as stack:
        # Not callable where it is ignored, as in the background of a script.
        if callable(earlier_handler := signal.getsignal(signal.SIGINT)):
            stack.callback(signal.signal, signal.SIGINT, earlier_handler)
            signal.signal(signal.SIGINT, interrupt)
        with Feeder(options, on_too_large=too_large.report) as feeder:
            try:
                for name, key, value in records:
                    pace.wait()
                    defers_interrupt = True
                    feeder.send(topic, key, value, name=name)
                    defers_interrupt = False
                    if is_interrupted:
                        break
            except KeyboardInterrupt:
                is_interrupted = True  # not raised: `produce` reports before it raises
            defers_interrupt = True  # the feeder flushes at its end
    return feeder.delivered_count, too_large.count, is_interrupted


def _records(
    readers: Iterable[tuple[str, CorpusReader]],
    inputs: FileEntries,
    decoder: Decoder,
    write_key: Callable[[str], bytes],
    write_value: Write | None,
) -> Iterator[_OutgoingRecord]:
    """Yield the record of each entry; malformed entries are reported.

    ``write_value`` writes the fields of a document, and malformed entries are left out; without it the values of all
    entries are sent. A malformed entry has a key if its id can be read and fits the schema of keys. ``CorpusError`` if
    a document does not fit the topic's schemas, or if none is left.
    """
    for file, reader in readers:
        for entry in inputs.read(file, reader):
            if entry.problem is not None and write_value is not None:
                continue
            key, value = None, entry.value(decoder)
            try:
                if entry.key is not None:
                    key = write_key(entry.id)
                if write_value is not None:
                    value = write_value(_fields(value))
            except DecodeError as error:
                if entry.problem is None:
                    raise CorpusError(f"{entry.file}:{entry.line}: {error}") from error
            name = f"{entry.file}:{entry.line}" + ("" if key is None else f" (id {entry.id})")
            yield _OutgoingRecord(name, key, value)
    if write_value is not None:
        inputs.require_document()


def _fields(value: bytes) -> Any:
    """Return all fields of a document, as the decoder reads them: with U+FFFD for bytes that are no text."""
    try:
        return json.loads(repair_json(value).decode(errors="replace"))
    except ValueError:  # the decoder converts no number that the profile does not read
        raise DecodeError(ErrorCode.NOT_JSON, "it has a number with too many digits to be written") from None
