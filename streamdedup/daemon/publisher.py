"""Turns batch results into messages: alerts and dead letters.

Called by ``loop``: ``checked_dead_letters`` before and after a batch is indexed, ``messages`` after it, and
``breaker.remember`` after the commit. A new field of an alert is filled in ``_alert_messages`` ("Add a field of an
alert" in ``docs/architecture.md``).
"""

from collections.abc import Mapping, Sequence

from streamdedup import clock
from streamdedup.daemon.batch import BatchResult, FailedRecord, Pipeline
from streamdedup.daemon.breaker import DeadLetterBreaker
from streamdedup.daemon.options import LoopOptions
from streamdedup.detection.model import Detection
from streamdedup.index.values import Fence
from streamdedup.kafka.protocols import Batch, Message
from streamdedup.position import Partition, Position
from streamdedup.wire import ALERT_VERSION, Alert, AlertDocument, encode_alert, rfc_3339
from streamdedup.wire.copied_headers import SentHeaders, copied_headers, headers_bytes
from streamdedup.wire.dead_letters import dead_letter


class Publisher:
    """Creates the messages for each batch; raises if a batch has too many dead letters."""

    def __init__(self, options: LoopOptions, pipelines: Mapping[str, Pipeline]) -> None:
        self._options = options
        self._by_topic = pipelines
        self._by_name = {pipeline.name: pipeline for pipeline in pipelines.values()}
        self.breaker = DeadLetterBreaker(options.dead_letter_limit)

    def checked_dead_letters(
        self, batch: Batch, failures: Sequence[FailedRecord], fences: Mapping[Partition, Fence]
    ) -> list[FailedRecord]:
        """Return the failed records of a batch that get a dead letter; raise ``DeadLetterBurst`` for too many."""
        dead_letters = [failed for failed in failures if self._is_to_publish(failed, fences)]
        self.breaker.check(batch, dead_letters)
        return dead_letters

    def messages(self, result: BatchResult, dead_letters: Sequence[FailedRecord]) -> list[Message]:
        headers = self._copied_headers(result)
        messages: list[Message] = []
        for name, detected in result.detected.items():
            for detection in detected.detections:
                copied = headers.get(detection.document.position, ())
                messages += self._alert_messages(self._by_name[name], detection, copied)
        topic_ids = result.decoded.batch.topic_ids
        messages += [self._dead_letter_message(failed, topic_ids) for failed in dead_letters]
        return messages

    def _is_to_publish(self, failed: FailedRecord, fences: Mapping[Partition, Fence]) -> bool:
        position = failed.record.position
        # Below the mark the dead letter is committed.
        is_below_mark = position.offset < fences[position.topic_partition].high_water_mark
        return not is_below_mark and not self._by_topic[position.topic].is_silent(failed.record)

    def _dead_letter_message(self, failed: FailedRecord, topic_ids: Mapping[str, str]) -> Message:
        return dead_letter(
            self._options.dead_letter_topic,
            failed.record,
            failed.failure,
            self._options.daemon,
            time_ms=clock.now_ms(),
            max_bytes=self._options.max_message_bytes,
            topic_id=topic_ids.get(failed.record.position.topic, ""),
            copy_headers=self._options.copy_headers,
        )

    def _copied_headers(self, result: BatchResult) -> Mapping[Position, SentHeaders]:
        """Return the copied headers by record position; empty for a batch without alerts, to save the copying."""
        names = self._options.copy_headers
        if not names or not any(detected.detections for detected in result.detected.values()):
            return {}
        return {record.position: copied_headers(record.headers, names) for record in result.decoded.batch.records}

    def _alert_messages(self, pipeline: Pipeline, detection: Detection, headers: SentHeaders) -> list[Message]:
        document, spread = detection.document, detection.spread
        topic, partition, offset, _ = document.position
        alert = Alert(
            schema_version=ALERT_VERSION,
            profile=pipeline.name,
            document=AlertDocument(
                id=document.id,
                digest=detection.digest.hex(),
                topic=topic,
                partition=partition,
                offset=offset,
                record_time=rfc_3339(document.time_ms),
                published_at=document.published_at,
                source=document.source,
                label=detection.label,
                incarnation=detection.incarnation.hex(),
            ),
            matches=detection.matches,
            cluster_id=detection.cluster_id,
            cluster_label=detection.cluster_label,
            cluster_size=detection.cluster_size,
            cluster_sources=spread and spread.sources,
            cluster_since=spread and rfc_3339(spread.since_ms),
            cluster_until=spread and rfc_3339(spread.until_ms),
            cluster_earliest_id=spread and spread.earliest_id,
            cluster_earliest_source=spread and spread.earliest_source,
            threshold=pipeline.threshold,
            part=1,  # `encode_alert` divides the matches, and sets part and parts
            parts=1,
            detected_at=rfc_3339(clock.now_ms()),
            containment_threshold=pipeline.containment_threshold,
            complete=detection.complete,
            suppressed={rule.value: count for rule, count in detection.suppressed.items()},
        )
        values = encode_alert(
            alert,
            max_bytes=self._options.max_message_bytes,
            header_bytes=headers_bytes(headers),
            encode=self._options.encode_alert,
        )
        return [Message(self._options.duplicates_topic, document.id.encode(), value, headers) for value in values]
