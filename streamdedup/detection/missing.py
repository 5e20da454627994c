"""Documents that the index lacks, which decides about a dead letter.

Called by ``appending`` for appends and by ``lifecycle`` for deletions.
"""

from collections.abc import Mapping

from streamdedup.index.contract import DocumentStore
from streamdedup.index.documents import PendingMatches
from streamdedup.index.values import Fence
from streamdedup.position import Partition, Position


def missing_at_first_attempt(
    store: DocumentStore, missing_now: Mapping[Position, bool], fences: Mapping[Partition, Fence]
) -> frozenset[Position]:
    """Return the positions whose document was missing in the first attempt; save them if this is the first one.

    The first attempt saves the fact with the pending matches, before the index can have an entry from the position or a
    later one. Below the high-water mark nothing is emitted, and not saved: no commit would delete it after a rebuild.

    ``missing_now`` is true for a document that is missing now, false where the index has an entry from the position or
    a later one, so that only the saved fact tells. Positions whose document is there have no item.
    """
    # Empty matches store nothing; the call returns those that the first attempt saved.
    pending = [
        (position, PendingMatches(document_missing=missing))
        for position, missing in missing_now.items()
        if position.offset >= fences[position.topic_partition].high_water_mark
    ]
    saved = store.save_pending_matches(pending, list(fences.values())) if pending else ()
    return frozenset(
        position for (position, _), matches in zip(pending, saved, strict=True) if matches.document_missing
    )
