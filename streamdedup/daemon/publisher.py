"""What is to be published for a batch: alerts and dead letters as messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from streamdedup.daemon.batch_result import BatchResult, Failed
from streamdedup.daemon.breaker import BreakerOptions
from streamdedup.daemon.statistics import now_ms
from streamdedup.detection.detector import Detector
from streamdedup.detection.model import Detection
from streamdedup.index.contract import Fence, Fingerprint
from streamdedup.kafka.protocols import Batch, Message, Record
from streamdedup.position import Partition
from streamdedup.wire import Alert, Decoder, encode_alert
from streamdedup.wire.dead_letters import DaemonInfo, Failure, Stage, dead_letter


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile at work.

    Attributes:
        name: Its name.
        decoder: Reads its records.
        detector: Finds its near-duplicates.
        fingerprint: What its index must have been built with.
        threshold: Least similarity that it reports.
        max_matches: Most matches in one alert message.
        silent_until_ms: Records of times before this, in milliseconds since the epoch, emit no dead letters; None for
            any time.
        in_order: Whether the records of each partition are promised to come in the order of their times.
        slack_ms: Allowed out-of-orderness, in milliseconds.
        lifetime_ms: Time to live of index entries, in milliseconds; None for ever.
    """

    name: str
    decoder: Decoder
    detector: Detector
    fingerprint: Fingerprint
    threshold: float
    max_matches: int
    silent_until_ms: int | None = None
    in_order: bool = False
    slack_ms: int = 0
    lifetime_ms: int | None = None

    def is_warm_up(self, record: Record) -> bool:
        """Tell whether a record is only there for later ones to be compared with."""
        return self.silent_until_ms is not None and 0 <= record.timestamp_ms < self.silent_until_ms


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """Where the outcome goes.

    Attributes:
        duplicates_topic: Topic of the alerts.
        dead_letter_topic: Topic of the dead letters.
        max_message_bytes: Largest message to publish.
        daemon: Who we are, for dead letters.
        on_index_lost: What to do when more is committed than the index knows: end, go on without it (pairs with older
            documents are missed), or build it anew.
        breaker: When to halt because of dead letters.
        batch_records: Most records in a batch.
    """

    duplicates_topic: str
    dead_letter_topic: str
    max_message_bytes: int
    daemon: DaemonInfo
    on_index_lost: Literal["fail", "continue", "rebuild"] = "fail"
    breaker: BreakerOptions = field(default_factory=BreakerOptions)
    batch_records: int = 2_000


class Publisher:
    """Turns what was found into messages.

    Args:
        options: Where they go.
        profiles: The profile of each input topic.
    """

    def __init__(self, options: LoopOptions, profiles: Mapping[str, Profile]) -> None:
        self._options = options
        self._by_topic = profiles
        self._by_name = {profile.name: profile for profile in profiles.values()}

    def describe(self, batch: Batch, work: BatchResult, fences: Mapping[Partition, Fence]) -> None:
        """Add the messages of all detections, and the dead letters.

        A record below the mark emits nothing: its dead letter was published with the commit that set the mark. Nor does
        one that only warms the index up.

        Args:
            batch: What was polled.
            work: What it has come to; takes the messages.
            fences: The mark of each partition.
        """
        records = {record.position: record for record in batch.records}
        for name, outcome in work.outcomes.items():
            for detection in outcome.detections:
                work.messages.extend(self._alert_messages(self._by_name[name], detection))
            for document, error in outcome.refused:
                work.failures.append(Failed(records[document.position], error, Stage.PROCESS))
        for failed in work.failures:
            position = failed.record.position
            profile = self._by_topic[position.topic]
            if position.offset >= fences[position.of].mark and not profile.is_warm_up(failed.record):
                self._add_dead_letter(failed, work)
                work.letters.append(failed)
            else:
                work.silent_failures_count += 1

    def _add_dead_letter(self, failed: Failed, work: BatchResult) -> None:
        failure = Failure.of(failed.error, failed.stage)
        letter = dead_letter(
            failed.record,
            failure,
            self._options.daemon,
            time_ms=now_ms(),
            max_bytes=self._options.max_message_bytes,
            unread=failed.stage is Stage.READ,
        )
        work.messages.append(
            Message(self._options.dead_letter_topic, letter.key, letter.value, letter.headers, letter.timestamp_ms)
        )
        work.dead_letter_codes.append((failed.record.position.topic, failure.code))

    def _alert_messages(self, profile: Profile, detection: Detection) -> list[Message]:
        document = detection.document
        alert = Alert(
            profile=profile.name,
            document_id=document.id,
            digest=detection.digest.hex(),
            position=document.position,
            time_ms=document.time_ms,
            published_at=document.published_at,
            source=document.source,
            matches=detection.matches,
            cluster_id=detection.cluster_id,
            threshold=profile.threshold,
            detected_at_ms=now_ms(),
        )
        values = encode_alert(alert, profile.max_matches, self._options.max_message_bytes)
        return [Message(self._options.duplicates_topic, document.id.encode(), value) for value in values]
