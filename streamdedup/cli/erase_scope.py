"""``produce --erase-scope``: tombstones for the documents of a topic in a scope."""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

import typer

from streamdedup.cli.assembly import kafka_options, required_writer, topic_decoder
from streamdedup.cli.output import MistakeReports, tell
from streamdedup.cli.topic_reading import reading_options
from streamdedup.counts import counted
from streamdedup.errors import EXIT_FAILED, MessageError, SettingsError
from streamdedup.kafka.admin import require_topics
from streamdedup.kafka.group_admin import read_committed_offsets
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.producer import Feeder
from streamdedup.kafka.protocols import Record, offsets_in
from streamdedup.kafka.reader import TopicReader
from streamdedup.position import Partition
from streamdedup.settings import Profile, Settings
from streamdedup.wire import Decoder, Document
from streamdedup.wire.formats.fields import Headers
from streamdedup.wire.formats.registry import KEY_ID_HEADER


@dataclass(slots=True)
class _KnownDocument:
    """What the records of a document say about it; ``is_in_scope`` is None if all of them are appends."""

    partition: int = 0  # of the last record: this client could choose another one by the key
    is_in_scope: bool | None = None
    key: bytes | None = None
    headers: Headers = ()  # of the record with the key


def erase_documents(settings: Settings, profile: Profile, topic: str, scope: str) -> None:
    """Send a tombstone for each document of a topic whose last version is in a scope; memory has all ids and keys."""
    if profile.scope_field is None:
        raise SettingsError(f"--erase-scope: the profile of {topic} has no scope_field")
    documents: dict[str, _KnownDocument] = defaultdict(_KnownDocument)
    # The limit of a text may have been higher when the daemon indexed it.
    decoder = replace(topic_decoder(settings, profile), max_text_bytes=sys.maxsize)
    options, unreadable = kafka_options(settings), MistakeReports("unreadable")
    require_topics(options, {topic: ("READ", "WRITE")})
    # Asks Kafka once, and only if a document has no id.
    incarnations = cache(lambda: _incarnations(options, topic))
    with TopicReader(reading_options(settings, topic)) as reader, decoder.batch():
        for record, document in _documents(reader, decoder, unreadable):
            document_id = document.id
            # A document without an id: the index has its position with the topic's incarnation, which the record lacks.
            if document_id == record.position.key:
                incarnation = incarnations()[record.position.topic_partition]
                document_id = record.position._replace(incarnation=incarnation).key
            known_document = documents[document_id]
            # An append has no scope: the document keeps the present one. A deletion has None.
            if document.op != "append":
                # Where the daemon refused a text as too large, the index has the version before.
                is_too_large = len(document.text.encode()) > profile.max_text_bytes
                known_document.is_in_scope = document.scope == scope or (
                    is_too_large and known_document.is_in_scope is True
                )
            known_document.partition = record.position.partition
            if record.key is not None and "key" not in decoder.flaws(document, record.key, record.headers):
                known_document.key, known_document.headers = record.key, record.headers
    sent_count = _send_tombstones(options, topic, documents, decoder)
    tell(f"{counted(sent_count, 'tombstone')} sent to {topic}", err=True)
    if unknown_count := sum(known_document.is_in_scope is None for known_document in documents.values()):
        reason = f"{topic} has only appends to them, so their scope is unknown; delete those of the scope by id"
        tell(f"{counted(unknown_count, 'document')} left out: {reason}", err=True)
    if unreadable.count:
        reason = "unreadable with these settings and schemas; the index may still have their documents"
        tell(f"{counted(unreadable.count, 'record')} left out: {reason}", err=True)
        raise typer.Exit(EXIT_FAILED)


def _send_tombstones(
    options: KafkaOptions, topic: str, documents: Mapping[str, _KnownDocument], decoder: Decoder
) -> int:
    # Asks the registry once, and only if a document has no key.
    key_writer = cache(lambda: required_writer(decoder.key_writer, f"{topic}-key"))
    with Feeder(options) as feeder:
        for document_id, known_document in documents.items():
            if known_document.is_in_scope:
                key = key_writer()(document_id) if known_document.key is None else known_document.key
                schema_ids = [value for name, value in known_document.headers if name == KEY_ID_HEADER]
                headers = [(KEY_ID_HEADER, value) for value in schema_ids[-1:] if value is not None]
                feeder.send(topic, key, None, headers=headers, partition=known_document.partition)
    return feeder.delivered_count


def _documents(reader: TopicReader, decoder: Decoder, unreadable: MistakeReports) -> Iterator[tuple[Record, Document]]:
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
