"""What a batch has come to so far: plain data that the loop's steps hand on."""

from dataclasses import dataclass, field

from streamdedup.detection.model import DetectionResult
from streamdedup.kafka.protocols import Message, Record
from streamdedup.position import Position
from streamdedup.wire import Document
from streamdedup.wire.dead_letters import Stage


@dataclass(frozen=True, slots=True)
class Failed:
    """A record that can never be processed.

    Attributes:
        record: The record; of one that could not be read its position alone.
        error: Why; other than a ``MessageError`` when it is a mistake of ours that the record brings to light.
        stage: How far it came.
    """

    record: Record
    error: Exception
    stage: Stage


@dataclass(slots=True)
class BatchResult:
    """What a batch has come to so far.

    Attributes:
        documents: Decoded documents, by profile, in order.
        messages: What to publish.
        outcomes: What the detector found, by profile.
        failures: Records that can never be processed.
        letters: Those of them that are published as dead letters.
        silent_failures_count: Those of them below the mark, whose dead letters were published before.
        dead_letter_codes: Topic of the record and code of each dead letter.
        kinds: Topic of each record, and what it asks for or that it is invalid.
        future_count: Documents whose record time lay in the future.
        without_time: Places of those, and of those that had none: their times are those of their processing.
    """

    documents: dict[str, list[Document]] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    outcomes: dict[str, DetectionResult] = field(default_factory=dict)
    failures: list[Failed] = field(default_factory=list)
    letters: list[Failed] = field(default_factory=list)
    silent_failures_count: int = 0
    dead_letter_codes: list[tuple[str, str]] = field(default_factory=list)
    kinds: list[tuple[str, str]] = field(default_factory=list)
    future_count: int = 0
    without_time: set[Position] = field(default_factory=set)
