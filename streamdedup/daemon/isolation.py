"""One document must not bring down the others: what fails while it is prepared becomes a dead letter of its own."""

from collections.abc import Mapping, Sequence

from streamdedup.daemon.batch_result import BatchResult, Failed
from streamdedup.detection.detector import Detector
from streamdedup.detection.model import Prepared
from streamdedup.kafka.protocols import Record
from streamdedup.position import Position
from streamdedup.wire import Document
from streamdedup.wire.dead_letters import Stage


def prepare(
    detector: Detector, documents: Sequence[Document], records: Mapping[Position, Record], work: BatchResult
) -> Prepared:
    """Prepare documents; when that fails unexpectedly, all but those that cannot be prepared alone either.

    Preparing computes and touches nothing, so it may be tried again. A mistake that only shows with several documents
    together has no record to blame and is raised.

    Args:
        detector: Prepares.
        documents: What to prepare.
        records: The record of each document.
        work: Takes the failures.

    Raises:
        MemoryError: There is too little for the batch; no document is to blame.
    """
    try:
        return detector.prepare(documents)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  whatever it is, it comes from one document or is raised again below
        sound = [document for document in documents if not _fails_alone(detector, document, records, work)]
    return detector.prepare(sound)


def _fails_alone(detector: Detector, document: Document, records: Mapping[Position, Record], work: BatchResult) -> bool:
    try:
        detector.prepare([document])
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  a mistake of ours that this document brings to light
        work.failures.append(Failed(records[document.position], error, Stage.PROCESS))
        return True
    return False
