"""Documents that go through a detector over the index in memory, without Kafka."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext

from streamdedup.daemon.batch import BatchProcessor, DecodedBatch, Pipeline
from streamdedup.detection.detector import Detector
from streamdedup.detection.model import DetectionResult, DetectorOptions
from streamdedup.detection.suppression import SuppressionRule
from streamdedup.index.memory import MemoryIndex
from streamdedup.kafka.protocols import Batch
from streamdedup.position import Partition
from streamdedup.similarity.lsh import Banding
from streamdedup.text.shingles import ShingleOptions
from streamdedup.wire import Document

OPTIONS = DetectorOptions(
    profile="articles",
    shingles=ShingleOptions(unit="word", size=2),
    banding=Banding(8, 2),
    permutations=64,
    seed=5,
    threshold=0.5,
)
PARTITIONS = tuple(Partition("articles", number) for number in range(3))


class Stream:
    """A detector that owns all partitions, and the pairs, suppressed pairs and clusters that it has found."""

    def __init__(self, options: DetectorOptions = OPTIONS, store: MemoryIndex | None = None) -> None:
        self.store = store or MemoryIndex()
        self.store.open({})
        self.detector = Detector(options, self.store)
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.suppressed: Counter[SuppressionRule] = Counter()
        self.clusters: dict[str, str] = {}
        self.fence()

    def fence(self, generation: int = 1, start: int = 0) -> None:
        self.fences = {partition: self.store.fence(partition, generation, start) for partition in PARTITIONS}

    def index(self, *documents: Document) -> DetectionResult:
        result = self.detector.index(self.detector.prepare(documents), self.fences)
        self.suppressed += result.suppressed
        for detection in result.detections:
            self.clusters[detection.document.id] = detection.cluster_id
            self.pairs.update(tuple(sorted((detection.document.id, match.id))) for match in detection.matches)
        return result

    def delete(self, documents: Sequence[Document]) -> DetectionResult:
        return self.detector.delete(documents, self.fences)


def decode_batch(
    batch: Batch, pipelines: Mapping[str, Pipeline], tick: Callable[[], None] = lambda: None
) -> DecodedBatch:
    return BatchProcessor(pipelines, lambda _stage: nullcontext(), tick).decode(batch)
