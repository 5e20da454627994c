"""The stages of a batch: decode the records, prepare the documents in chunks, index the chunks.

``loop`` calls ``BatchProcessor.index``. ``read_ahead`` calls ``decode`` and ``prepare``, which have no effect outside
the process: they may be repeated, and may run in another thread. ``rebuild_run`` takes records of the past through the
same stages, in halves if need be. ``cli.assembly`` makes each ``Pipeline``. A new stage also touches ``Loop._process``.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from msgspec import structs

from streamdedup import clock
from streamdedup.detection.chunks import CHUNK_CHARACTERS, CHUNK_DOCUMENTS, split_documents
from streamdedup.detection.detector import Detector
from streamdedup.detection.model import DetectionResult, Prepared
from streamdedup.errors import DecodeError, DocumentTooLarge, FatalError, MessageError, TransientError
from streamdedup.index.contract import Index
from streamdedup.index.values import Fence, Fingerprint
from streamdedup.kafka.protocols import Batch, Record
from streamdedup.position import Partition, Position
from streamdedup.wire import Decoder, Document, ErrorCode, Flaw
from streamdedup.wire.dead_letters import Failure, Stage

T = TypeVar("T")
#: In ``DecodedBatch.topic_operations``, in place of the operation of a failed record.
INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Decoder, detector and index of one profile; ``threshold`` and ``containment_threshold`` are shown in alerts.

    Attributes:
        silent_until_ms: Records with earlier times emit no dead letters, and by the same option of the detector form no
            pairs with each other. Milliseconds since the epoch; None for no such records.
        max_start_age_ms: Age from which on ``window_start`` skips records. Milliseconds; None for no limit.
    """

    name: str
    decoder: Decoder
    detector: Detector
    index: Index
    fingerprint: Fingerprint
    threshold: float
    silent_until_ms: int | None = None
    max_start_age_ms: int | None = None
    containment_threshold: float | None = None

    def is_silent(self, record: Record) -> bool:
        """Tell whether a record is from before ``silent_until_ms``; a record without a time (negative) is not."""
        return self.silent_until_ms is not None and 0 <= record.timestamp_ms < self.silent_until_ms


class FailedRecord(NamedTuple):
    """A record that can never be processed; the publisher makes a dead letter of it.

    An unreadable record has a position only. ``failure`` is not the exception: the frames in its traceback have the
    value and its texts, in a reference cycle, which would stay in memory until Python searches for cycles.
    """

    record: Record
    failure: Failure


@dataclass(frozen=True, slots=True)
class Chunk:
    """Documents of one profile that are prepared and indexed at once, in order: deletions only, or no deletion.

    Attributes:
        prepared: The documents without those of ``failures``; None before the preparation, and for deletions.
        failures: Records whose documents cannot be prepared.
    """

    profile: str
    documents: Sequence[Document]
    prepared: Prepared | None = None
    failures: Sequence[FailedRecord] = ()

    @property
    def is_deletion(self) -> bool:
        return self.documents[0].op == "delete"  # as all others, or none


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """A decoded batch: its documents, in chunks that are not prepared, and failures.

    Attributes:
        topic_operations: Number of records by topic and operation: ``("news", "upsert")``, ``("news", INVALID)``.
        future_count: Documents whose record time lay in the future.
        flawed: Profile, flaw and position for each flaw of a document that is processed all the same.
    """

    batch: Batch
    chunks: Sequence[Chunk]
    failures: Sequence[FailedRecord]
    topic_operations: Counter[tuple[str, str]]
    future_count: int
    flawed: Sequence[tuple[str, Flaw, Position]] = ()


@dataclass(frozen=True, slots=True)
class BatchResult:
    """A batch that is indexed, with the failures of all stages."""

    decoded: DecodedBatch
    detected: Mapping[str, DetectionResult]
    failures: Sequence[FailedRecord]


class BatchProcessor:
    """Takes batches through the stages decode, prepare and index.

    ``pipelines`` are by topic. ``timed`` measures the stages ``prepare`` and ``index``. ``tick`` is called for each
    decoded record, which may take a request to the schema registry, and for each chunk; in the thread of the stage.
    """

    def __init__(
        self,
        pipelines: Mapping[str, Pipeline],
        timed: Callable[[str], AbstractContextManager[None]],
        tick: Callable[[], None],
    ) -> None:
        self._by_topic = pipelines
        self._by_name = {pipeline.name: pipeline for pipeline in pipelines.values()}
        self._timed = timed
        self._tick = tick

    def decode(self, batch: Batch, *, is_ahead: bool = False) -> DecodedBatch:
        """Decode a batch (after ``Batch.in_incarnations``), and split its documents into chunks.

        Raises ``MemoryError`` where the memory is too small for several records, or for two batches (``is_ahead``).
        """
        topics = {record.position.topic for record in batch.records}
        with ExitStack() as stack:
            for decoder in {self._by_topic[topic].decoder for topic in topics}:
                # In this context, a schema that the registry does not have is asked for once, not for each record.
                stack.enter_context(decoder.batch())
            return _decode_records(batch, self._by_topic, self._tick, is_ahead=is_ahead)

    def prepare(self, chunk: Chunk, batch: Batch) -> Chunk:
        """Return a chunk of the batch with its preparation; a chunk of deletions as it is."""
        self._tick()
        if chunk.is_deletion:
            return chunk
        return _with_prepared_documents(chunk, self._by_name[chunk.profile].detector, batch)

    def index(self, decoded: DecodedBatch, prepared: deque[Chunk], fences: Mapping[Partition, Fence]) -> BatchResult:
        """Index a batch, chunk by chunk; remove from ``prepared``, its first chunks, to free their memory.

        Raises ``MemoryError`` where the memory is too small; only in the preparation a single record fails instead.
        """
        detected: dict[str, DetectionResult] = {}
        failures = list(decoded.failures)
        for chunk in self._prepared_chunks(decoded, prepared):
            self._tick()
            failures += chunk.failures
            result = self._index_chunk(chunk, fences)
            detected[chunk.profile] = detected.get(chunk.profile, DetectionResult()) + result
        failures += _refused_records(decoded.batch, detected)
        return BatchResult(decoded, detected, failures)

    def _prepared_chunks(self, decoded: DecodedBatch, prepared: deque[Chunk]) -> Iterator[Chunk]:
        for chunk in decoded.chunks:
            with self._timed("prepare"):
                prepared_chunk = prepared.popleft() if prepared else self._prepare_or_fail(chunk, decoded.batch)
            yield prepared_chunk

    def _prepare_or_fail(self, chunk: Chunk, batch: Batch) -> Chunk:
        """Prepare a chunk; the only record of a batch becomes a failure where the memory is too small for it."""
        try:
            return self.prepare(chunk, batch)
        except MemoryError:
            if len(batch.records) > 1:
                raise
        failures = [FailedRecord(batch.records[0], _too_large_failure())]
        return replace(chunk, prepared=self._by_name[chunk.profile].detector.prepare([]), failures=failures)

    def _index_chunk(self, chunk: Chunk, fences: Mapping[Partition, Fence]) -> DetectionResult:
        detector = self._by_name[chunk.profile].detector
        partitions = {document.position.topic_partition for document in chunk.documents}
        # Partitions of other profiles are fenced in other indexes.
        chunk_fences = {partition: fences[partition] for partition in partitions}
        with self._timed("index"):
            if chunk.is_deletion:
                return detector.delete(chunk.documents, chunk_fences)
            assert chunk.prepared is not None
            return detector.index(chunk.prepared, chunk_fences)


def _too_large_failure() -> Failure:
    error = DocumentTooLarge(ErrorCode.TOO_LARGE, "the record alone needs more memory than the process has")
    return Failure.of(error, Stage.SIZE)


def _decode_records(
    batch: Batch, pipelines: Mapping[str, Pipeline], tick: Callable[[], None], *, is_ahead: bool
) -> DecodedBatch:
    """Decode all records, correct their times, and make failures of the undecodable and the unreadable ones."""
    present_ms = clock.now_ms()
    documents: dict[str, list[Document]] = {}
    failures: list[FailedRecord] = []
    topic_operations: Counter[tuple[str, str]] = Counter()
    flawed: list[tuple[str, Flaw, Position]] = []
    future_count = 0
    for record in batch.records:
        tick()
        topic = record.position.topic
        pipeline = pipelines[topic]
        try:
            document = pipeline.decoder.decode(
                record.position, record.timestamp_ms, record.key, record.value, record.headers
            )
            flaws = pipeline.decoder.flaws(document, record.key, record.headers)
        except (TransientError, FatalError):
            raise  # the record is not to blame
        except Exception as error:  # includes defects that only this record triggers
            is_memory = isinstance(error, MemoryError)
            if is_memory and (is_ahead or len(batch.records) > 1):
                raise
            failure = _too_large_failure() if is_memory else Failure.of(error, _stage_of(error))
            failures.append(FailedRecord(record, failure))
            topic_operations[topic, INVALID] += 1
            continue
        if document.time_ms > present_ms or document.time_ms < 0:
            # A document of the future would match for too long. One without a time (negative) would match nothing.
            future_count += document.time_ms > present_ms  # 0 or 1
            document = structs.replace(document, time_ms=present_ms)
        documents.setdefault(pipeline.name, []).append(document)
        topic_operations[topic, document.op] += 1
        flawed += [(pipeline.name, flaw, record.position) for flaw in flaws]
    for unreadable in batch.unreadable:
        record = Record(unreadable.position, timestamp_ms=-1, key=None, value=None)
        failure = Failure.of(DecodeError(ErrorCode.UNREADABLE, unreadable.reason), Stage.READ)
        failures.append(FailedRecord(record, failure))
        topic_operations[unreadable.position.topic, INVALID] += 1
    chunks = [
        Chunk(name, chunk_documents)
        for name, profile_documents in documents.items()
        for chunk_documents in split_documents(profile_documents, CHUNK_DOCUMENTS, CHUNK_CHARACTERS)
    ]
    return DecodedBatch(batch, chunks, failures, topic_operations, future_count, flawed)


def _stage_of(error: Exception) -> Stage:
    is_too_large = isinstance(error, MessageError) and error.code == ErrorCode.TOO_LARGE
    return Stage.SIZE if is_too_large else Stage.DECODE


def _with_prepared_documents(chunk: Chunk, detector: Detector, batch: Batch) -> Chunk:
    """Prepare all documents; after an unexpected error, only those that can be prepared alone.

    A defect that shows only with several documents together has no record to blame, and is raised.
    """
    try:
        return replace(chunk, prepared=detector.prepare(chunk.documents))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  raised again below unless single documents are the cause
        causes = {
            document.position: failure
            for document in chunk.documents
            if (failure := _failure_alone(detector, document)) is not None
        }
    failures = [FailedRecord(record, causes[record.position]) for record in batch.records if record.position in causes]
    preparable = [document for document in chunk.documents if document.position not in causes]
    return replace(chunk, prepared=detector.prepare(preparable), failures=failures)


def _failure_alone(detector: Detector, document: Document) -> Failure | None:
    """Prepare one document; return its failure, None if it can be prepared."""
    try:
        detector.prepare([document])
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  a defect that this document triggers
        return Failure.of(error, Stage.PROCESS)
    return None


def _refused_records(batch: Batch, detected: Mapping[str, DetectionResult]) -> list[FailedRecord]:
    """Return the records of documents that the detector refused, such as an append to an unknown document."""
    refused = [refusal for result in detected.values() for refusal in result.refused]
    records = {record.position: record for record in batch.records} if refused else {}
    return [FailedRecord(records[document.position], Failure.of(error, Stage.PROCESS)) for document, error in refused]


def in_parts(batch: Batch, process: Callable[[Batch], T]) -> list[T]:
    """Process a batch, or where the memory is too small for it, each half; return the results of the parts."""
    try:
        return [process(batch)]
    except MemoryError:
        if len(batch.records) <= 1:
            raise
    # Not in the handler: the error refers to values that fill the memory.
    middle = len(batch.records) // 2
    first = replace(batch, records=batch.records[:middle])
    second = replace(batch, records=batch.records[middle:], unreadable=())  # the first half has the unreadable ones
    return [*in_parts(first, process), *in_parts(second, process)]
