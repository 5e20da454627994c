"""``streamdedup produce``: send a corpus into a topic, or with ``--erase-scope`` the tombstones of a scope.

Reads files with ``streamdedup.corpora``, or the topic with ``ReaderToEnds``; writes keys and values with
``streamdedup.wire``, and sends with ``Feeder``.
"""

import json
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar

import typer

from streamdedup.cli.assembly import file_decoder, kafka_options, topic_decoder
from streamdedup.cli.collection import FileEntries
from streamdedup.cli.options import (
    FormatOption,
    IdColumnOption,
    OptionalFilesArgument,
    TextColumnOption,
    up_to_limit,
)
from streamdedup.cli.output import Reports, tell
from streamdedup.cli.settings_options import ConfigOption, SetOption, load_settings
from streamdedup.cli.topic_reading import reading_options
from streamdedup.corpora import Columns, CorpusReader
from streamdedup.counts import counted
from streamdedup.errors import EXIT_FAILED, CorpusError, DecodeError, MessageError, SettingsError
from streamdedup.kafka.admin import require_topics
from streamdedup.kafka.group_admin import read_committed_offsets
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.pace import Pace
from streamdedup.kafka.producer import Feeder
from streamdedup.kafka.protocols import Record, offsets_in
from streamdedup.kafka.reader import ReaderToEnds
from streamdedup.position import Partition
from streamdedup.settings import Profile, Settings
from streamdedup.wire import Decoder, Document, ErrorCode, RegistryFormat, repair_json
from streamdedup.wire.formats.fields import Headers
from streamdedup.wire.formats.registry import KEY_ID_HEADER, Write

RateOption = Annotated[
    float, typer.Option("--rate", min=0, help="Records per second; 0 for no limit.", show_default=False)
]
SkipUnreadableOption = Annotated[
    bool, typer.Option("--skip-unreadable", help="Leave malformed lines out, instead of sending them.")
]
EraseScopeOption = Annotated[
    str | None,
    typer.Option(metavar="SCOPE", help="Instead of files: a tombstone for each document of the topic in a scope."),
]
_Function = TypeVar("_Function")


def produce(  # noqa: PLR0913  one argument per option
    files: OptionalFilesArgument = None,
    *,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Input topic of a profile.")],
    config: ConfigOption = None,
    assignments: SetOption = None,
    rate: RateOption = 0.0,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Stop after this many records.")] = None,
    corpus_format: FormatOption = "auto",
    id_column: IdColumnOption = None,
    text_column: TextColumnOption = None,
    source_column: Annotated[str | None, typer.Option(help="Column of the source, in a table.")] = None,
    published_at_column: Annotated[str | None, typer.Option(help="Column of the time of publication.")] = None,
    skip_unreadable: SkipUnreadableOption = False,
    erase_scope: EraseScopeOption = None,
) -> None:
    """Send a corpus into an input topic, each document keyed by its id.

    JSON lines are sent unchanged, malformed ones included: the daemon turns them into dead letters. --skip-unreadable
    leaves them out. Table rows become JSON objects with the field names of the profile. The columns must have these
    names, unless options name others. Where the format of the profile has schemas, documents are written with the
    newest schema of the topic, and other lines are left out.

    --erase-scope reads the topic to its end, and deletes each document whose last version is in the scope.

    Ctrl-C ends it as soon as the records sent so far have arrived, and counts them.

    Example:  streamdedup produce articles.jsonl.gz --topic articles --config streamdedup.toml --rate 100

    Example:  streamdedup produce reviews.csv --topic reviews --config streamdedup.toml --text-column body
    """
    settings = load_settings(config, assignments)
    profile = _topic_profile(settings, topic)
    if bool(files) == (erase_scope is not None):
        raise SettingsError("produce sends files, or tombstones with --erase-scope: give one of the two")
    columns = Columns(id_column, tuple(text_column or ()), source_column, published_at_column)
    if erase_scope is not None:
        if rate or limit or skip_unreadable or corpus_format != "auto" or columns:
            raise SettingsError("--erase-scope goes with --topic, --config and --set alone; leave other options out")
        _erase(settings, profile, topic, erase_scope)
        return
    # Files are JSON or tables; the topic may have another format.
    decoder, writers = file_decoder(profile), _writers(topic_decoder(settings, profile), topic)
    readers = [
        (file, CorpusReader(file, format=corpus_format, decoder=decoder, columns=columns)) for file in files or ()
    ]
    inputs = FileEntries()
    leaves_out_malformed = skip_unreadable or writers.value is not None  # a malformed line fits no schema
    records = _records(readers, inputs, decoder, writers, leaves_out_malformed=leaves_out_malformed)
    limited = up_to_limit(records, limit)
    _send_all(kafka_options(settings), topic, limited, Pace(rate), inputs, leaves_out_malformed=leaves_out_malformed)


def _send_all(
    options: KafkaOptions,
    topic: str,
    records: Iterable[tuple[str, bytes | None, bytes | None]],
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


def _send(
    options: KafkaOptions, topic: str, records: Iterable[tuple[str, bytes | None, bytes | None]], pace: Pace
) -> tuple[int, int, bool]:
    """Send records (name for messages, key, value).

    Returns the count of records stored, the count of those too large, and whether Ctrl-C ended the work.
    """
    require_topics(options, {topic: ("WRITE",)})
    is_sending, is_interrupted, too_large = False, False, Reports("too large")

    def interrupt(*_: object) -> None:
        nonlocal is_interrupted
        # The first waits for the end of `send`, which may have given the client a record that it does not count yet, or
        # of the flush.
        if is_interrupted or not is_sending:
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
                    is_sending = True
                    feeder.send(topic, key, value, name=name)
                    is_sending = False
                    if is_interrupted:
                        break
            except KeyboardInterrupt:
                is_interrupted = True  # not raised: `produce` reports before it raises
            is_sending = True  # the feeder flushes at its end
    return feeder.delivered_count, too_large.count, is_interrupted


def _erase(settings: Settings, profile: Profile, topic: str, scope: str) -> None:
    """Send a tombstone for each document of a topic whose last version is in a scope; memory has all ids and keys."""
    if profile.scope_field is None:
        raise SettingsError(f"--erase-scope: the profile of {topic} has no scope_field")
    is_in_scope: dict[str, bool] = {}
    keys: dict[str, tuple[bytes, Headers]] = {}
    partitions: dict[str, int] = {}  # of the last record: this client could choose another one by the key
    # The limit of a text may have been higher when the daemon indexed it.
    decoder = replace(topic_decoder(settings, profile), max_text_bytes=sys.maxsize)
    options, unreadable = kafka_options(settings), Reports("unreadable")
    require_topics(options, {topic: ("READ", "WRITE")})
    incarnations = cache(lambda: _incarnations(options, topic))
    with ReaderToEnds(reading_options(settings, topic)) as reader, decoder.batch():
        for record, document in _documents(reader, decoder, unreadable):
            document_id = document.id
            if document_id == record.position.key:  # the group has the incarnation of the position
                incarnation = incarnations()[record.position.topic_partition]
                document_id = record.position._replace(incarnation=incarnation).key
            # An append has no scope: the document keeps the present one. A deletion has None.
            if document.op != "append":
                # Where the daemon refused a text as too large, the index has the version before.
                is_too_large = len(document.text.encode()) > profile.max_text_bytes
                was_in_scope = is_in_scope.get(document_id, False)
                is_in_scope[document_id] = document.scope == scope or (is_too_large and was_in_scope)
            partitions[document_id] = record.position.partition
            if record.key is not None and "key" not in decoder.flaws(document, record.key, record.headers):
                keys[document_id] = record.key, record.headers  # the tombstone has the same bytes
    # Asks the registry once, and only if a document has no key.
    key_writer = cache(lambda: _require_writer(decoder.key_writer, f"{topic}-key"))
    with Feeder(options) as feeder:
        for document_id in [document_id for document_id, is_erased in is_in_scope.items() if is_erased]:
            key, headers = keys.get(document_id) or (key_writer()(document_id), ())
            ids = [value for name, value in headers if name == KEY_ID_HEADER]
            schema_header = [(KEY_ID_HEADER, value) for value in ids[-1:] if value is not None]
            feeder.send(topic, key, None, headers=schema_header, partition=partitions[document_id])
    tell(f"{counted(feeder.delivered_count, 'tombstone')} sent to {topic}", err=True)
    if unknown_count := len(partitions.keys() - is_in_scope.keys()):
        reason = f"{topic} has only appends to them, so their scope is unknown; delete those of the scope by id"
        tell(f"{counted(unknown_count, 'document')} left out: {reason}", err=True)
    if unreadable.count:
        reason = "unreadable with these settings and schemas; the index may still have their documents"
        tell(f"{counted(unreadable.count, 'record')} left out: {reason}", err=True)
        raise typer.Exit(EXIT_FAILED)


def _documents(reader: ReaderToEnds, decoder: Decoder, unreadable: Reports) -> Iterator[tuple[Record, Document]]:
    """Yield each record that is a document, with the document; report the others."""
    for batch in reader.batches():
        for lost in batch.unreadable:
            unreadable.report(str(lost.position), lost.reason)
        for record in batch.records:
            try:
                # The time is 0, because the scope does not depend on the record time.
                document = decoder.decode(record.position, 0, record.key, record.value, record.headers)
            except MessageError as error:
                unreadable.report(str(record.position), str(error))
            else:
                yield record, document


def _incarnations(options: KafkaOptions, topic: str) -> Mapping[Partition, int]:
    """Return the topic's incarnation by partition; without a commit the greatest, as ``PartitionOwnership`` counts."""
    committed_offsets = offsets_in(read_committed_offsets(options), [topic])
    incarnations = {partition: offset.incarnation for partition, offset in committed_offsets.items()}
    greatest = max(incarnations.values(), default=0)
    return defaultdict(lambda: greatest, incarnations)


def _topic_profile(settings: Settings, topic: str) -> Profile:
    for profile in settings.profiles.values():
        if topic in profile.topics:
            return profile
    existing = ", ".join(name for profile in settings.profiles.values() for name in profile.topics)
    raise SettingsError(f"--topic {topic}: no profile has this topic; the settings name {existing}")


def _require_writer(make: Callable[[str], _Function | None], subject: str) -> _Function:
    """Return the writer that ``make`` makes for a subject; raise ``SettingsError`` where it lacks a usable schema."""
    try:
        write = make(subject)
    except DecodeError as error:
        raise SettingsError(f"newest schema of {subject}: {error}") from error
    if write is None:
        raise SettingsError(f"the schema registry has no subject {subject}; register a schema first")
    return write


class _Writers(NamedTuple):
    """Functions for a topic: ``key`` makes a key of an id, ``value`` a value of fields; None where values are JSON."""

    key: Callable[[str], bytes]
    value: Write | None


def _writers(decoder: Decoder, topic: str) -> _Writers:
    """Return the writers for the formats of a topic."""
    key, value = _require_writer(decoder.key_writer, f"{topic}-key"), None
    if isinstance(decoder.value_format, RegistryFormat):
        value = _require_writer(decoder.value_format.writer, f"{topic}-value")
    return _Writers(key, value)


def _records(
    readers: Iterable[tuple[str, CorpusReader]],
    inputs: FileEntries,
    decoder: Decoder,
    writers: _Writers,
    *,
    leaves_out_malformed: bool,
) -> Iterator[tuple[str, bytes | None, bytes | None]]:
    """Yield name, key and value of the record of each entry; malformed entries are reported, and may be left out.

    A malformed entry has a key if its id can be read and fits the schema of keys. ``CorpusError`` if a document does
    not fit the topic's schemas, or if none is left.
    """
    for file, reader in readers:
        for entry in inputs.read(file, reader):
            if entry.problem is not None and leaves_out_malformed:
                continue
            key, value = None, entry.value(decoder)
            try:
                if entry.key is not None:
                    key = writers.key(entry.id)
                value = value if writers.value is None else writers.value(_fields(value))
            except DecodeError as error:
                if entry.problem is None:
                    raise CorpusError(f"{entry.file}:{entry.line}: {error}") from error
            name = f"{entry.file}:{entry.line}" + ("" if key is None else f" (id {entry.id})")
            yield name, key, value
    if leaves_out_malformed:
        inputs.require_document()


def _fields(value: bytes) -> Any:
    """Return all fields of a document, as the decoder reads them: with U+FFFD for bytes that are no text."""
    try:
        return json.loads(repair_json(value).decode(errors="replace"))
    except ValueError:  # the decoder converts no number that the profile does not read
        raise DecodeError(ErrorCode.NOT_JSON, "it has a number with too many digits to be written") from None
