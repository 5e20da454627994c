"""A prepared batch through the detector's index stage, one chunk at a time."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from streamdedup.daemon.preparation import Chunk, PreparedBatch
from streamdedup.daemon.publisher import Profile
from streamdedup.detection.model import DetectionResult
from streamdedup.index.contract import Fence
from streamdedup.position import Partition
from streamdedup.wire import Document


class Indexer:
    """Takes prepared batches through the index stage of the loop.

    Args:
        profiles: Profiles by name.
        timed: Measures the stages ``prepare`` and ``index``.
        tick: Called at every step, for the watchdog.
    """

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        timed: Callable[[str], AbstractContextManager[None]],
        tick: Callable[[], None],
    ) -> None:
        self._profiles = profiles
        self._timed = timed
        self._tick = tick

    def index(self, prepared: PreparedBatch, fences: Mapping[Partition, Fence]) -> None:
        """Index a batch.

        Args:
            prepared: The batch; its ``work`` takes what the detector finds.
            fences: The fence of each partition of the batch.

        Raises:
            StoreUnavailable: Try the batch again.
            BatchRefused: A partition belongs to another daemon; drop the batch.
            IndexLost: The index is gone.
        """
        while (chunk := self._next(prepared)) is not None:
            self._tick()
            detector = self._profiles[chunk.profile].detector
            chunk_fences = _of(chunk.documents, fences)
            with self._timed("index"):
                if chunk.prepared is None:
                    outcome = detector.delete(chunk.documents, chunk_fences)
                else:
                    outcome = detector.index(chunk.prepared, chunk_fences)
            prepared.work.outcomes.setdefault(chunk.profile, DetectionResult()).add(outcome)

    def _next(self, prepared: PreparedBatch) -> Chunk | None:
        """Return the next chunk, computed now if it is not computed yet; None behind the last."""
        with self._timed("prepare"):
            return next(prepared.chunks, None)


def _of(documents: Sequence[Document], fences: Mapping[Partition, Fence]) -> dict[Partition, Fence]:
    """Return the fences of the partitions of documents."""
    return {partition: fences[partition] for partition in {document.position.of for document in documents}}
