"""Deliberately broken loops, one for each rule, that the harness must catch.

Each function patches classes of the product in this process. Only the rule changes, so only the rule can be the reason
of a mistake.
"""

import contextlib
from collections.abc import Callable
from typing import Any

from kafka.errors import KafkaError
from msgspec import structs

from streamdedup import clock
from streamdedup.daemon import rebuild_run
from streamdedup.daemon.partitions import PartitionOwnership
from streamdedup.errors import StoreUnavailable
from streamdedup.index.documents import PendingMatches
from streamdedup.index.redis.fenced import EncodedFences, RedisPart
from streamdedup.index.redis.store import RedisIndex
from streamdedup.index.values import Hits
from streamdedup.kafka import producer
from streamdedup.kafka.errors import CLIENT_ERRORS
from streamdedup.wire import Alert
from tests.buckets import members_in_set

#: Called with points, as in ``watched_daemon``.
OnPoint = Callable[[str], None]


def unchecked(_on_point: OnPoint) -> None:
    """Commit without checking that each message was stored."""

    def send(self: Any, messages: Any) -> None:
        for message in messages:
            self._send_one(message)
        with contextlib.suppress(KafkaError):
            self._producer.flush(timeout=self._options.delivery_timeout_s)

    producer._ProducerSink._send = send


def late_metadata(_on_point: OnPoint) -> None:
    """Read the group membership at the commit, not at the poll."""
    _keep_source()

    def offsets_and_commit(self: Any, batch: Any) -> None:
        def commit() -> None:
            membership = self.source._consumer.group_metadata()
            self._producer.send_offsets_to_transaction(producer.offsets_to_commit(batch), membership)
            self._producer.commit_transaction()

        producer.call_within(self._options.transaction_timeout_s + producer.COMMIT_MARGIN_S, "commit", commit)

    producer.TransactionalSink._commit = offsets_and_commit


def no_claim(_on_point: OnPoint) -> None:
    """Publish every pair without a claim."""

    def claim_pairs(_self: Any, claims: Any, _fences: Any, _met: Any = ()) -> list[bool]:
        return [True] * len(claims)

    RedisIndex.claim_pairs = claim_pairs


def read_then_add(on_point: OnPoint) -> None:
    """Read the buckets, and add the documents in a second call."""
    add = RedisIndex.insert_and_look_up

    def insert_and_look_up(self: Any, numbers: Any, band_keys: Any, fences: Any) -> Hits:
        before = [_members(self, row, band_keys) for row in range(len(numbers))]
        on_point("between_read_and_add")
        add(self, numbers, band_keys, fences)
        candidates: list[dict[int, int]] = []
        for row, number in enumerate(numbers):
            met: dict[int, int] = {}
            for band, members in enumerate(before[row]):
                # Documents of one call see each other, as if they were inserted one by one.
                earlier = {n for n, keys in zip(numbers[:row], band_keys[:row], strict=True)
                           if keys[band] == band_keys[row][band]}  # fmt: skip
                for other in (members | earlier) - {number}:
                    met[other] = met.get(other, 0) + 1
            candidates.append(met)
        return Hits(candidates)

    RedisIndex.insert_and_look_up = insert_and_look_up


def _members(store: Any, row: int, band_keys: Any) -> list[set[int]]:
    """Return the members of the bucket of each band of a row."""
    # One slot a band: the harness uses no shards.
    return [members_in_set(store._servers, store._keys, slot, int(key)) for slot, key in enumerate(band_keys[row])]


def reused_producer(_on_point: OnPoint) -> None:
    """After a failure abort the transaction, rewind the batch, and keep producer, consumer and fences."""
    _keep_source()
    publish = producer.TransactionalSink.publish

    def publish_or_abort(self: Any, messages: Any, batch: Any) -> None:
        try:
            publish(self, messages, batch)
        except Exception as error:
            self._unusable_reason = None
            with contextlib.suppress(*CLIENT_ERRORS):
                self._producer.abort_transaction()
            # For this error the loop rewinds the batch and keeps its clients.
            raise StoreUnavailable(f"aborted: {error}") from error

    producer.TransactionalSink.publish = publish_or_abort
    # It never opens new clients, continues at the rewound position, and believes its old fences.
    PartitionOwnership.forget_fences = lambda _self: None


def no_fence(_on_point: OnPoint) -> None:
    """Write to the index under any generation."""

    call = RedisPart._fenced_call

    def unfenced_call(self: Any, name: str, slot: int, _fences: Any, *arguments: Any) -> Any:
        return call(self, name, slot, EncodedFences([], []), *arguments)

    RedisPart._fenced_call = unfenced_call


def no_partners(_on_point: OnPoint) -> None:
    """Save no pending matches: a replay has only the matches that it finds again."""

    def save_pending_matches(_self: Any, pending: Any, _fences: Any) -> list[PendingMatches]:
        return [new for _, new in pending]

    RedisIndex.save_pending_matches = save_pending_matches


def not_seeded(_on_point: OnPoint) -> None:
    """Rebuild the index without the claims of published alerts."""
    rebuild_run.RebuildRun._seed = lambda _self, _topic, _fences: None


def first_match(_on_point: OnPoint) -> None:
    """Seed the claim of the first match of an alert only."""
    add = rebuild_run.Seeds.add
    rebuild_run.Seeds.add = lambda self, alert: add(self, structs.replace(alert, matches=alert.matches[:1]))


def half_window(_on_point: OnPoint) -> None:
    """Seed the claims of half a window only."""
    batches = rebuild_run.RebuildRun._batches

    def later_batches(self: Any, topics: Any, since_ms: Any, ends: Any, starts: Any = None) -> Any:
        # Of all topics, only that of the alerts has no end.
        late_ms = clock.now_ms() - self._target.lifetime_ms // 2 if ends is None else since_ms
        return batches(self, topics, late_ms, ends, starts)

    rebuild_run.RebuildRun._batches = later_batches


def own_position(_on_point: OnPoint) -> None:
    """Seed claims for the position of the alert, so that a replay of this position has them again."""
    add = rebuild_run.Seeds.add

    def add_own(self: Any, alert: Alert) -> None:
        add(self, alert)
        for match in alert.matches:
            self.claims[bytes.fromhex(match.pair)] = alert.document.position

    rebuild_run.Seeds.add = add_own


def _keep_source() -> None:
    """Give the sink access to its source."""
    opened = producer.KafkaTransport.open

    def open_both(self: Any) -> Any:
        source, sink = opened(self)
        sink.source = source
        return source, sink

    producer.KafkaTransport.open = open_both


#: Broken loops by name.
BREAKS: dict[str, Callable[[OnPoint], None]] = {
    "unchecked": unchecked,
    "late-metadata": late_metadata,
    "no-claim": no_claim,
    "read-then-add": read_then_add,
    "reused-producer": reused_producer,
    "no-fence": no_fence,
    "no-partners": no_partners,
    "not-seeded": not_seeded,
    "first-match": first_match,
    "half-window": half_window,
    "own-position": own_position,
}
