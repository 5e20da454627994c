"""Turns the result of a batch into messages: alerts and dead letters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from streamdedup.daemon.batch import BatchResult, FailedRecord, Pipeline, now_ms
from streamdedup.daemon.breaker import BreakerOptions, DeadLetterBreaker
from streamdedup.detection.model import Detection
from streamdedup.index.values import Fence
from streamdedup.kafka.protocols import Batch, Message
from streamdedup.position import Partition
from streamdedup.wire import Alert, encode_alert
from streamdedup.wire.dead_letters import DaemonInfo, Failure, Stage, dead_letter


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """Options of the loop that do not depend on a profile.

    Attributes:
        duplicates_topic: Topic of the alerts.
        dead_letter_topic: Topic of the dead letters.
        max_message_bytes: Largest size of a message.
        daemon: Name of this daemon in dead letters.
        on_index_lost: Reaction to committed offsets that the index does not know: end, continue without the lost
            documents (their pairs are missed), or rebuild the index.
        breaker: When dead letters halt the daemon.
        batch_records: Largest number of records in a batch.
    """

    duplicates_topic: str
    dead_letter_topic: str
    max_message_bytes: int
    daemon: DaemonInfo
    on_index_lost: Literal["fail", "continue", "rebuild"] = "fail"
    breaker: BreakerOptions = field(default_factory=BreakerOptions)
    batch_records: int = 2_000


@dataclass(frozen=True, slots=True)
class Publication:
    """The messages of a batch.

    Attributes:
        messages: Alerts and dead letters.
        dead_letters: Failed records that are published as dead letters.
        silent_failures_count: Number of failed records without a dead letter.
    """

    messages: Sequence[Message]
    dead_letters: Sequence[FailedRecord]
    silent_failures_count: int


class Publisher:
    """Creates the messages of each batch, unless there are too many dead letters."""

    def __init__(self, options: LoopOptions, pipelines: Mapping[str, Pipeline]) -> None:
        self._options = options
        self._by_topic = pipelines
        self._by_name = {pipeline.name: pipeline for pipeline in pipelines.values()}
        self._breaker = DeadLetterBreaker(options.breaker)

    def publication(self, result: BatchResult, fences: Mapping[Partition, Fence]) -> Publication:
        """Return the messages of a batch.

        A failed record below the high-water mark has no dead letter, because the commit that set the mark has published
        it. A record that only warms the index up has none either.

        Args:
            result: The indexed batch.
            fences: Fence of each partition of the batch.

        Raises:
            DeadLetterBurst: Too many of the last records of a topic would be dead letters.
        """
        dead_letters = [failed for failed in result.failures if self._is_published(failed, fences)]
        self._breaker.check(result.decoded.batch, dead_letters)
        messages = [
            message
            for name, detected in result.detected.items()
            for detection in detected.detections
            for message in self._alert_messages(self._by_name[name], detection)
        ]
        messages += map(self._dead_letter_message, dead_letters)
        return Publication(messages, dead_letters, len(result.failures) - len(dead_letters))

    def committed(self, batch: Batch, publication: Publication) -> None:
        """Count the dead letters of a committed batch towards the limit."""
        self._breaker.committed(batch, publication.dead_letters)

    def _is_published(self, failed: FailedRecord, fences: Mapping[Partition, Fence]) -> bool:
        position = failed.record.position
        is_warm_up = self._by_topic[position.topic].is_warm_up(failed.record)
        return position.offset >= fences[position.of].high_water_mark and not is_warm_up

    def _dead_letter_message(self, failed: FailedRecord) -> Message:
        letter = dead_letter(
            failed.record,
            Failure.of(failed.error, failed.stage),
            self._options.daemon,
            time_ms=now_ms(),
            max_bytes=self._options.max_message_bytes,
            unread=failed.stage is Stage.READ,
        )
        return Message(self._options.dead_letter_topic, letter.key, letter.value, letter.headers, letter.timestamp_ms)

    def _alert_messages(self, pipeline: Pipeline, detection: Detection) -> list[Message]:
        document = detection.document
        alert = Alert(
            profile=pipeline.name,
            document_id=document.id,
            digest=detection.digest.hex(),
            position=document.position,
            time_ms=document.time_ms,
            published_at=document.published_at,
            source=document.source,
            matches=detection.matches,
            cluster_id=detection.cluster_id,
            threshold=pipeline.threshold,
            detected_at_ms=now_ms(),
            containment_threshold=pipeline.containment_threshold,
            complete=detection.complete,
            suppressed={rule.value: count for rule, count in detection.suppressed.items()},
        )
        values = encode_alert(alert, pipeline.max_matches, self._options.max_message_bytes)
        return [Message(self._options.duplicates_topic, document.id.encode(), value) for value in values]
