"""The stages of a batch that only compute: records are decoded, and their documents are prepared in chunks."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from streamdedup.daemon import isolation
from streamdedup.daemon.batch_result import BatchResult
from streamdedup.daemon.decoding import chunks, decode_batch
from streamdedup.daemon.publisher import Profile
from streamdedup.detection.model import Prepared
from streamdedup.kafka.protocols import Batch
from streamdedup.wire import Document

#: Most documents of a chunk: arrays of so many stay in the processor's cache, and a storm of copies, each with hundreds
#: of matches, stays within bounds of memory and time.
CHUNK_DOCUMENTS = 500
#: Most characters of text in a chunk of several documents: large documents are prepared a few at a time.
CHUNK_CHARACTERS = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Chunk:
    """Documents of one profile that are indexed at once, in order.

    Attributes:
        profile: Name of the profile.
        documents: The documents: deletions only, or no deletion.
        prepared: Shingles, sketches and band keys of those that can be prepared; None for deletions.
    """

    profile: str
    documents: list[Document]
    prepared: Prepared | None


@dataclass(slots=True)
class PreparedBatch:
    """A batch that is ready for the index.

    Attributes:
        batch: The batch, with the incarnation of each partition in its positions.
        work: Result of the batch; the failures of a chunk are in it once the chunk is computed.
        chunks: The documents. A chunk that is not computed yet is computed when it is taken.
    """

    batch: Batch
    work: BatchResult
    chunks: Iterator[Chunk]


class Preparer:
    """Decodes and prepares batches; calls no store and no Kafka client.

    Args:
        profiles: The profile of each topic.
        tick: Called before each chunk, for the watchdog.
    """

    def __init__(self, profiles: Mapping[str, Profile], tick: Callable[[], None]) -> None:
        self._by_topic = profiles
        self._detectors = {profile.name: profile.detector for profile in profiles.values()}
        self._tick = tick

    def prepare(self, batch: Batch) -> PreparedBatch:
        """Decode the records of a batch; its chunks are computed when they are taken.

        Args:
            batch: The batch, with the incarnation of each partition in its positions.
        """
        work = BatchResult()
        decode_batch(batch, self._by_topic, work)
        return PreparedBatch(batch, work, self._chunks(batch, work))

    def _chunks(self, batch: Batch, work: BatchResult) -> Iterator[Chunk]:
        records = {record.position: record for record in batch.records}
        for name, documents in work.documents.items():
            for chunk in chunks(documents, CHUNK_DOCUMENTS, CHUNK_CHARACTERS):
                self._tick()
                if chunk[0].op == "delete":
                    yield Chunk(name, chunk, None)
                    continue
                yield Chunk(name, chunk, isolation.prepare(self._detectors[name], chunk, records, work))
