"""The stages of a batch: decode the records, prepare the documents in chunks, index the chunks.

    Batch --> ChunkedBatch ------------------------> BatchResult
        decode         chunk by chunk: prepare, index

``BatchProcessor.index`` takes chunks out of a ``ChunkedBatch``, which frees the memory of an indexed chunk; all other
values are immutable. Decoding and preparing have no effect outside the process, so they may be repeated and may run in
another thread (``read_ahead``). Indexing writes to the index. A rebuild (``rebuild``) takes records through the same
stages as the loop.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from streamdedup.detection.detector import Detector
from streamdedup.detection.model import DetectionResult, Prepared
from streamdedup.errors import DecodeError, FatalError, MessageError, TransientError
from streamdedup.index.contract import Index
from streamdedup.index.values import Fence, Fingerprint
from streamdedup.kafka.protocols import Batch, Record
from streamdedup.position import Partition
from streamdedup.wire import Decoder, Document, ErrorCode
from streamdedup.wire.dead_letters import Stage

#: Kind of a record without a valid operation.
INVALID = "invalid"
#: Largest number of documents in a chunk. Arrays of this length fit into the processor's cache, and hundreds of matches
#: for each document stay within bounds of memory and time.
CHUNK_DOCUMENTS = 1_000
#: Largest number of characters in a chunk of several documents.
CHUNK_CHARACTERS = 4 * 2**20


def now_ms() -> int:
    """Return the wall clock time, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Decoder, detector and index of one profile.

    Attributes:
        name: Profile name.
        decoder: Decodes the records of its topics.
        detector: Finds near-duplicates.
        index: The index that the detector uses.
        fingerprint: Index parameters.
        threshold: Least similarity that is published.
        silent_until_ms: Records with earlier times emit no dead letters, milliseconds since the epoch; None for none.
        max_start_age_ms: Age from which on records of a partition without a committed offset are skipped, in
            milliseconds; None for no limit (``window_start``).
        containment_threshold: Least containment that is published below the threshold; None without a rule.
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

    def is_warm_up(self, record: Record) -> bool:
        """Tell whether a record is indexed for comparison only."""
        return self.silent_until_ms is not None and 0 <= record.timestamp_ms < self.silent_until_ms


class FailedRecord(NamedTuple):
    """A record that can never be processed.

    Attributes:
        record: The record; an unreadable record has a position only.
        error: A ``MessageError``; any other exception is a defect of the program that this record triggers.
        stage: Stage that failed.
    """

    record: Record
    error: Exception
    stage: Stage


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """A decoded batch: documents and failures.

    Attributes:
        batch: The batch; its positions have the incarnations.
        documents: Documents by profile, in order.
        failures: Records that cannot be read or decoded.
        kinds: For each record topic and operation, or topic and ``INVALID``.
        future_count: Documents whose record time lay in the future.
    """

    batch: Batch
    documents: Mapping[str, Sequence[Document]]
    failures: Sequence[FailedRecord]
    kinds: Sequence[tuple[str, str]]
    future_count: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Documents that are indexed at once, in order, all in one profile.

    Attributes:
        profile: Profile name.
        documents: The documents: either deletions only, or no deletion.
        prepared: Shingles, sketches and band keys; None for deletions.
        failures: Records whose documents cannot be prepared.
    """

    profile: str
    documents: Sequence[Document]
    prepared: Prepared | None
    failures: Sequence[FailedRecord] = ()


@dataclass(slots=True)
class ChunkedBatch:
    """A decoded batch with the chunks that are not indexed yet.

    Attributes:
        decoded: The decoded batch.
        waiting: Profile and documents for each chunk that is not prepared yet.
        prepared: Chunks that were prepared ahead; they come before the waiting ones.
    """

    decoded: DecodedBatch
    waiting: deque[tuple[str, Sequence[Document]]]
    prepared: deque[Chunk] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """A batch that is indexed.

    Attributes:
        decoded: The decoded batch.
        detected: Detector results by profile.
        failures: Records that cannot be read, decoded or prepared, and those that the detector refused.
    """

    decoded: DecodedBatch
    detected: Mapping[str, DetectionResult]
    failures: Sequence[FailedRecord]


class BatchProcessor:
    """Takes batches through the stages.

    Args:
        pipelines: Pipelines by topic.
        timed: Measures the stages ``prepare`` and ``index``.
        tick: Called for each decoded record and each chunk, for the watchdog; in the thread that runs the stage.
    """

    def __init__(
        self,
        pipelines: Mapping[str, Pipeline],
        timed: Callable[[str], AbstractContextManager[object]],
        tick: Callable[[], None],
    ) -> None:
        self._by_topic = pipelines
        self._by_name = {pipeline.name: pipeline for pipeline in pipelines.values()}
        self._timed = timed
        self._tick = tick

    def decode(self, batch: Batch) -> ChunkedBatch:
        """Decode a batch and split its documents into chunks; nothing is prepared yet.

        Args:
            batch: The batch; its positions have the incarnations.
        """
        decoded = decode_batch(batch, self._by_topic, self._tick)
        chunks = [
            (name, documents)
            for name, profile_documents in decoded.documents.items()
            for documents in split_documents(profile_documents, CHUNK_DOCUMENTS, CHUNK_CHARACTERS)
        ]
        return ChunkedBatch(decoded, deque(chunks))

    def prepare(self, batch: ChunkedBatch) -> Chunk:
        """Prepare the next waiting chunk, and take it out of the batch."""
        self._tick()
        name, documents = batch.waiting.popleft()
        if documents[0].op == "delete":
            return Chunk(name, documents, None)
        return _prepared_chunk(name, self._by_name[name].detector, documents, batch.decoded.batch)

    def index(self, batch: ChunkedBatch, fences: Mapping[Partition, Fence]) -> BatchResult:
        """Index a batch, chunk by chunk; prepare each chunk that was not prepared ahead.

        Args:
            batch: The batch; its chunks are taken out.
            fences: Fences by partition.

        Raises:
            StoreUnavailable: Try the batch again.
            BatchRefused: Another daemon owns a partition; drop the batch.
            IndexLost: The index is gone.
        """
        detected: dict[str, DetectionResult] = {}
        failures = list(batch.decoded.failures)
        while batch.prepared or batch.waiting:
            chunk = self._next(batch)
            self._tick()
            failures += chunk.failures
            result = self._index(chunk, fences)
            detected[chunk.profile] = detected.get(chunk.profile, DetectionResult()) + result
        failures += _refused(batch.decoded.batch, detected)
        return BatchResult(batch.decoded, detected, failures)

    def _next(self, batch: ChunkedBatch) -> Chunk:
        with self._timed("prepare"):
            return batch.prepared.popleft() if batch.prepared else self.prepare(batch)

    def _index(self, chunk: Chunk, fences: Mapping[Partition, Fence]) -> DetectionResult:
        detector = self._by_name[chunk.profile].detector
        partitions = {document.position.topic_partition for document in chunk.documents}
        chunk_fences = {partition: fences[partition] for partition in partitions}
        with self._timed("index"):
            if chunk.prepared is None:
                return detector.delete(chunk.documents, chunk_fences)
            return detector.index(chunk.prepared, chunk_fences)


def decode_batch(
    batch: Batch, pipelines: Mapping[str, Pipeline], tick: Callable[[], None] = lambda: None
) -> DecodedBatch:
    """Decode a batch.

    Args:
        batch: The batch; its positions have the incarnations.
        pipelines: Pipelines by topic.
        tick: Called for each record; a record may take a request to a server.

    Raises:
        TransientError: A server that a value format needs does not answer.
        FatalError: A value format needs the help of an operator.
    """
    formats = {pipelines[topic].decoder.value_format for topic in {record.position.topic for record in batch.records}}
    with ExitStack() as stack:
        for value_format in formats:
            stack.enter_context(value_format.batch())
        return _decoded(batch, pipelines, tick)


def _decoded(batch: Batch, pipelines: Mapping[str, Pipeline], tick: Callable[[], None]) -> DecodedBatch:
    present_ms = now_ms()
    documents: dict[str, list[Document]] = {}
    failures: list[FailedRecord] = []
    kinds: list[tuple[str, str]] = []
    future_count = 0
    for record in batch.records:
        tick()
        topic = record.position.topic
        pipeline = pipelines[topic]
        try:
            document = pipeline.decoder.decode(
                record.position, record.timestamp_ms, record.key, record.value, record.headers
            )
        except (MemoryError, TransientError, FatalError):
            raise
        except Exception as error:  # noqa: BLE001  includes defects that only this record triggers
            failures.append(FailedRecord(record, error, _stage(error)))
            kinds.append((topic, INVALID))
            continue
        if document.time_ms > present_ms or document.time_ms < 0:
            # Otherwise a document of the future would match for too long, and one without a time would match nothing.
            future_count += document.time_ms > present_ms
            document = replace(document, time_ms=present_ms)
        documents.setdefault(pipeline.name, []).append(document)
        kinds.append((topic, document.op))
    for unreadable in batch.unreadable:
        record = Record(unreadable.position, timestamp_ms=-1, key=None, value=None)
        failures.append(FailedRecord(record, DecodeError(ErrorCode.UNREADABLE, unreadable.reason), Stage.READ))
        kinds.append((unreadable.position.topic, INVALID))
    return DecodedBatch(batch, documents, failures, kinds, future_count)


def _stage(error: Exception) -> Stage:
    is_too_large = isinstance(error, MessageError) and error.code == ErrorCode.TOO_LARGE
    return Stage.SIZE if is_too_large else Stage.DECODE


def split_documents(documents: Sequence[Document], size: int, characters: int) -> Iterator[list[Document]]:
    """Split documents into chunks, in order.

    A chunk has either deletions only, or no deletion: a deleted document matches the documents before the deletion and
    none after it. A document occurs once in a chunk, unless its partition repeats text and scope. Each version takes
    all steps, because an earlier attempt at the batch may have inserted a version and ended before the pairs of the
    version were claimed.

    Args:
        documents: Documents in one profile.
        size: Largest number of documents in a chunk.
        characters: Largest number of characters in a chunk with several documents.
    """
    chunk: list[Document] = []
    length = 0
    last_versions: dict[str, Document] = {}
    for document in documents:
        earlier = last_versions.get(document.id)
        is_deletion = document.op == "delete"
        is_new_version = earlier is not None and not (is_deletion or _is_redelivery(document, earlier))
        is_full = len(chunk) == size or length + len(document.text) > characters
        if chunk and (is_full or is_new_version or is_deletion != (chunk[0].op == "delete")):
            yield chunk
            chunk, last_versions, length = [], {}, 0
        chunk.append(document)
        length += len(document.text)
        last_versions[document.id] = document
    if chunk:
        yield chunk


def _is_redelivery(document: Document, earlier: Document) -> bool:
    is_same_partition = document.position.topic_partition == earlier.position.topic_partition
    is_same_content = document.text == earlier.text and document.scope == earlier.scope
    return is_same_partition and document.op == earlier.op == "upsert" and is_same_content


def _prepared_chunk(name: str, detector: Detector, documents: Sequence[Document], batch: Batch) -> Chunk:
    """Prepare documents; after an unexpected error, prepare the documents that can be prepared alone.

    A defect that shows only with several documents together has no record to blame, and is raised.

    Raises:
        MemoryError: The memory is too small for the chunk; no document is to blame.
    """
    try:
        return Chunk(name, documents, detector.prepare(documents))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  raised again below unless single documents are the cause
        errors = {document.position: _error_alone(detector, document) for document in documents}
    failures = [
        FailedRecord(record, error, Stage.PROCESS)
        for record in batch.records
        if (error := errors.get(record.position)) is not None
    ]
    preparable = [document for document in documents if errors[document.position] is None]
    return Chunk(name, documents, detector.prepare(preparable), failures)


def _error_alone(detector: Detector, document: Document) -> Exception | None:
    try:
        detector.prepare([document])
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  a defect that this document triggers
        return error
    return None


def _refused(batch: Batch, detected: Mapping[str, DetectionResult]) -> list[FailedRecord]:
    """Return the records that the detector refused, in result order."""
    refused = [refusal for result in detected.values() for refusal in result.refused]
    if not refused:
        return []
    records = {record.position: record for record in batch.records}
    return [FailedRecord(records[document.position], error, Stage.PROCESS) for document, error in refused]
