"""A batch's documents through the detector: prepared and indexed, some hundred at a time."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from streamdedup.detections import Outcome
from streamdedup.messages import Document
from streamdedup.position import Partition
from streamdedup.service import isolation
from streamdedup.service.intake import portions
from streamdedup.service.outbox import Profile
from streamdedup.service.transport import Batch
from streamdedup.service.work import Work
from streamdedup.store.base import Fence

#: Documents that are prepared and indexed at once: arrays of so many stay in the processor's cache, and a storm of
#: copies, each with hundreds of partners, stays within bounds of memory and time.
_PORTION_DOCUMENTS = 500


class Indexer:
    """Takes decoded batches through stages 3 and 4 of the loop.

    Args:
        profiles: Profiles by name.
        timed: Measures a stage, ``prepare`` or ``index``.
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

    def index(self, batch: Batch, work: Work, fences: Mapping[Partition, Fence]) -> None:
        """Index a batch.

        Args:
            batch: The batch.
            work: Its documents; takes what became of them.
            fences: The right to write for each partition of the batch.

        Raises:
            StoreUnavailable: Try the batch again.
            BatchRefused: A partition is no longer ours; drop the batch.
            IndexLost: The index is gone.
        """
        records = {record.position: record for record in batch.records}
        for name, documents in work.documents.items():
            detector = self._profiles[name].detector
            outcome = work.outcomes[name] = Outcome()
            for portion in portions(documents, _PORTION_DOCUMENTS):
                self._tick()
                rights = _of(portion, fences)
                if portion[0].op == "delete":
                    with self._timed("index"):
                        outcome.add(detector.delete(portion, rights))
                    continue
                with self._timed("prepare"):
                    prepared = isolation.prepare(detector, portion, records, work)
                with self._timed("index"):
                    outcome.add(detector.index(prepared, rights))


def _of(documents: Sequence[Document], fences: Mapping[Partition, Fence]) -> dict[Partition, Fence]:
    """Choose the rights to write that a detector needs for its documents."""
    return {partition: fences[partition] for partition in {document.position.of for document in documents}}
