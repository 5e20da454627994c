"""The progress of ``dlq replay`` (``dlq_replay``): which dead letters are done, by partition of their topic.

A dead letter is done when it was replayed, or when a run found that it cannot be replayed. A run may replay only some
kinds of dead letters (``--code``, ``--topic``), so one offset does not describe the progress.
"""

import json
from dataclasses import dataclass, field
from typing import Final, Self

from streamdedup.errors import StreamdedupError
from streamdedup.wire.dead_letters import DeadLetter

#: Bytes of offset metadata: the brokers' default of ``offset.metadata.max.bytes``.
MAX_METADATA_BYTES: Final = 4_096


@dataclass(slots=True)
class ReplayProgress:
    """Progress in one dead-letter partition; the replay group stores it as offset and metadata.

    Attributes:
        offset: All dead letters before this offset are done.
        kinds: The offset before which all dead letters of a kind are done, by kind: topic of the failed record, and
            error code. A kind has an entry only while its offset is beyond ``offset``.
        gap: First offset that this run left for a later run, at which ``offset`` stays; None without one. Not stored.
    """

    offset: int = 0
    kinds: dict[tuple[str, str], int] = field(default_factory=dict)
    gap: int | None = None

    @classmethod
    def read(cls, offset: int, metadata: str) -> Self:
        """Read stored progress; metadata that another program wrote is ignored."""
        try:
            by_topic = json.loads(metadata)
            kinds = {(topic, code): int(end) for topic, ends in by_topic.items() for code, end in ends.items()}
        except (ValueError, AttributeError, TypeError):
            kinds = {}
        return cls(offset, kinds)

    def metadata(self) -> str:
        """Return ``kinds`` as offset metadata: JSON with the offset by topic and code; empty without kinds.

        Raises:
            StreamdedupError: The metadata is longer than ``MAX_METADATA_BYTES``.
        """
        by_topic: dict[str, dict[str, int]] = {}
        for (topic, code), end in sorted(self.kinds.items()):
            by_topic.setdefault(topic, {})[code] = end
        text = json.dumps(by_topic, separators=(",", ":")) if by_topic else ""
        if len(text) > MAX_METADATA_BYTES:  # one byte a character: the JSON is ASCII
            raise StreamdedupError(
                f"{len(self.kinds):,} kinds of dead letters were replayed one by one, more than the progress can hold: "
                "replay once without --code and --topic"
            )
        return text

    def covers(self, letter: DeadLetter) -> bool:
        """Return whether the dead letter is done."""
        return letter.record.position.offset < max(self.offset, self.kinds.get((letter.topic, letter.code), 0))

    def add(self, letter: DeadLetter, *, accepted: bool) -> None:
        """Add the next dead letter in offset order: done if the filter accepted it, else left for a later run."""
        kind, offset = (letter.topic, letter.code), letter.record.position.offset
        if accepted:
            # All earlier dead letters of the kind are done: the filter of a replay accepts all of a kind, or none.
            self.kinds[kind] = max(offset + 1, self.kinds.get(kind, 0))
        elif self.gap is None and not self.covers(letter):
            self.gap = offset
        self.advance(offset + 1)

    def advance(self, end: int) -> None:
        """Advance ``offset`` to ``end``, at most to ``gap``; a run also calls it for the end of the partition."""
        self.offset = max(self.offset, end if self.gap is None else min(end, self.gap))
        self.kinds = {kind: offset for kind, offset in self.kinds.items() if offset > self.offset}
