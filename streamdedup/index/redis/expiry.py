"""Backlog expiry in Redis: lists of documents and claims that were inserted late, and event-time watermarks.

Each partition has two lists, in the slot of its pending matches: documents, and the claims that they asked for. A list
is cut into slices of time, one key each (``index.expiry``). Layout of the list entries: ``index.entries``. One
hash holds the event-time watermarks of all partitions.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile

from streamdedup.index.entries import (
    decode_listed,
    decode_watermarks,
    encode_listed,
    encode_number,
    encode_place,
    listed_time,
)
from streamdedup.index.expiry import readable_slices, slice_at
from streamdedup.index.redis.base import RedisPart
from streamdedup.index.redis.errors import damage_translated
from streamdedup.index.redis.pairs import field_and_token
from streamdedup.index.redis.scripts import Call, fields_of
from streamdedup.index.redis.servers import Command
from streamdedup.index.values import Fence, Listed, ListedClaim, ListedDocument, by_log, is_late
from streamdedup.position import Log, Partition

#: Returns the key of a list: log, slice of time.
_KeyOf = Callable[[Log, int], bytes]


class RedisBacklog(RedisPart):
    """A ``BacklogStore`` in Redis."""

    def is_late(self, time_ms: int) -> bool:
        """See ``BacklogStore.is_late``."""
        return is_late(time_ms, self.options.lifetime_ms, self._now_ms())

    def list_expiring(self, listed: Listed, fences: Sequence[Fence]) -> None:
        """See ``BacklogStore.list_expiring``."""
        at = slice_at(self._now_ms(), self.options.lifetime_ms)
        lists = [
            (log, self._keys.documents_listed(log, at), [encode_listed(each) for each in documents])
            for log, documents in by_log(listed.documents).items()
        ] + [
            (log, self._keys.claims_listed(log, at), [encode_listed(each) for each in claims])
            for log, claims in by_log(listed.claims).items()
        ]
        slots = (self._keys.log_slot(log) for log, _, _ in lists)
        arguments = [(key, len(entries), *entries) for _, key, entries in lists]
        self._run(self._calls_by_slot("list_expiring", slots, fences, lambda _slot: [self._lifetime], arguments))

    def watermarks(self) -> dict[Partition, int]:
        """See ``BacklogStore.watermarks``."""
        return decode_watermarks(fields_of(self._servers.ask(self._keys.watermarks, "HGETALL", self._keys.watermarks)))

    def set_watermarks(
        self, watermarks: Mapping[Partition, int], fences: Sequence[Fence], *, extend: bool
    ) -> dict[Partition, int]:
        """See ``BacklogStore.set_watermarks``."""
        arguments: list[object] = [self._keys.watermarks, self._lifetime if extend else 0]
        for partition, time_ms in watermarks.items():
            arguments += (str(partition), time_ms)
        (reply,) = self._run([self._fenced_call("set_watermarks", 0, fences, arguments)])
        return decode_watermarks(fields_of(reply))

    def expired(self, logs: Sequence[Log], watermark_ms: int, count: int) -> list[Listed]:
        """See ``BacklogStore.expired``."""
        limit_ms = watermark_ms - self._lifetime
        limit_of_claims_ms = limit_ms - self._lifetime
        documents = self._older(self._keys.documents_listed, logs, limit_ms, count)
        claims = self._older(self._keys.claims_listed, logs, limit_of_claims_ms, count)
        with damage_translated():
            return [
                Listed(
                    [decode_listed(ListedDocument, log, data) for data in of_documents],
                    [decode_listed(ListedClaim, log, data) for data in of_claims],
                )
                for log, of_documents, of_claims in zip(logs, documents, claims, strict=True)
            ]

    def _older(self, key_of: _KeyOf, logs: Sequence[Log], limit_ms: int, count: int) -> list[list[bytes]]:
        """Return the first entries of the oldest slice of each log, up to the first that is not older than a time."""
        older: list[list[bytes]] = [[] for _ in logs]
        # Most calls find nothing that is old enough, so the first entries are read first.
        slices = [self._slices(key_of, log) for log in logs]
        guards = [self._keys.guard(self._keys.log_slot(log)) for log in logs]
        heads = self._run(
            [Call("find_oldest_slice", [guard, *keys], []) for guard, keys in zip(guards, slices, strict=True)]
        )
        due = [(at, slices[at][head[0]]) for at, head in enumerate(heads) if head and listed_time(head[1]) < limit_ms]
        if due:
            found = self._servers.ask_all([Command(key, ("LRANGE", key, 0, count - 1)) for _, key in due])
            for (at, _), entries in zip(due, found, strict=True):
                older[at] = list(takewhile(lambda entry: listed_time(entry) < limit_ms, entries))
        return older

    def _slices(self, key_of: _KeyOf, log: Log) -> list[bytes]:
        return [key_of(log, at) for at in readable_slices(self._now_ms(), self.options.lifetime_ms)]

    def evict(self, listed: Listed, fence: Fence) -> None:
        """See ``BacklogStore.evict``."""
        entry_slots = (self._keys.entry_slot(each.number) for each in listed.documents)
        expected = [
            (encode_number(number), encode_number(time_ms) + encode_place(position))
            for number, position, time_ms in listed.documents
        ]
        claim_slots = (self._keys.claim_slot(each.pair_key) for each in listed.claims)
        asked = [field_and_token(each.pair_key, each.position) for each in listed.claims]
        self._run(
            [
                *self._calls_by_slot(
                    "evict_entries", entry_slots, [fence], lambda slot: [self._keys.entries(slot)], expected
                ),
                *self._calls_by_slot("evict_claims", claim_slots, [fence], self._keys.claim_pages, asked),
            ]
        )
        # In this order: a listed entry without an index entry does no harm, an unlisted index entry is never evicted.
        self._run(
            [
                self._remove_call(fence, self._keys.documents_listed, listed.documents),
                self._remove_call(fence, self._keys.claims_listed, listed.claims),
            ]
        )

    def _remove_call(self, fence: Fence, key_of: _KeyOf, entries: Sequence[ListedDocument | ListedClaim]) -> Call:
        slices = self._slices(key_of, fence.log)
        arguments = [len(slices), *slices, *map(encode_listed, entries)]
        return self._fenced_call("remove_listed", self._keys.log_slot(fence.log), [fence], arguments)
