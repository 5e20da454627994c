"""Records in: a batch as documents of each profile, and what cannot be a document."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from streamdedup.daemon.batch_result import BatchResult, Failed
from streamdedup.daemon.publisher import Profile
from streamdedup.daemon.statistics import now_ms
from streamdedup.errors import DecodeError, MessageError
from streamdedup.kafka.protocols import Batch, Record
from streamdedup.wire import Document, ErrorCode
from streamdedup.wire.dead_letters import Stage

#: Kind of a record that asks for nothing we know.
INVALID = "invalid"


def decode_batch(batch: Batch, profiles: Mapping[str, Profile], work: BatchResult) -> None:
    """Decode the records of a batch.

    Args:
        batch: What was polled.
        profiles: The profile of each topic.
        work: Takes the documents by profile, the failures, and the kind of each record.
    """
    now = now_ms()
    for record in batch.records:
        topic = record.position.topic
        profile = profiles[topic]
        try:
            document = profile.decoder.decode(record.position, record.timestamp_ms, record.key, record.value)
        except MessageError as error:
            stage = Stage.SIZE if error.code == ErrorCode.TOO_LARGE else Stage.DECODE
            work.failures.append(Failed(record, error, stage))
            work.kinds.append((topic, INVALID))
            continue
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  a mistake of ours that this record brings to light
            work.failures.append(Failed(record, error, Stage.DECODE))
            work.kinds.append((topic, INVALID))
            continue
        if document.time_ms > now:
            # A time in the future would keep the document matching longer than the window.
            document = replace(document, time_ms=now)
            work.without_time.add(document.position)
            work.future_count += 1
        elif document.time_ms < 0:
            # Without a time it would match nothing but others without one.
            document = replace(document, time_ms=now)
            work.without_time.add(document.position)
        work.documents.setdefault(profile.name, []).append(document)
        work.kinds.append((topic, document.op))
    for unreadable in batch.unreadable:
        record = Record(unreadable.position, timestamp_ms=-1, key=None, value=None)
        work.failures.append(Failed(record, DecodeError(ErrorCode.UNREADABLE, unreadable.reason), Stage.READ))
        work.kinds.append((unreadable.position.topic, INVALID))


def chunks(documents: Sequence[Document], size: int, characters: int) -> Iterator[list[Document]]:
    """Cut documents into runs that are worked on at once, in order.

    A run is of deletions alone or without any, so that what is deleted is gone for whoever comes after it, and not for
    whoever came before. A document is in a run only once, unless its partition brings the same text again: a version
    that an attempt at the batch has put before it was cut short must go all the way, whatever comes after it.

    Args:
        documents: Documents of one profile.
        size: Most of them in a run.
        characters: Most characters of text in a run of several documents.
    """
    run: list[Document] = []
    length = 0
    there: dict[str, Document] = {}
    for document in documents:
        before = there.get(document.id)
        deletes = document.op == "delete"
        again = before is not None and not (deletes or _is_redelivery(document, before))
        is_full = len(run) == size or length + len(document.text) > characters
        if run and (is_full or again or deletes != (run[0].op == "delete")):
            yield run
            run, there, length = [], {}, 0
        run.append(document)
        length += len(document.text)
        there[document.id] = document
    if run:
        yield run


def _is_redelivery(document: Document, before: Document) -> bool:
    same_place = document.position.of == before.position.of
    return same_place and document.op == before.op == "upsert" and document.text == before.text
