"""The ages of documents in Redis: which were placed long after their record times, how far each partition has come.

Two lists for each partition, in the slot of its saved partners: documents, and the claims that they made. An entry of
either, numbers big-endian:

=======  ==================================================
bytes    what
=======  ==================================================
8 or 16  document number, or pair key
8        offset
8        record time, milliseconds since the epoch
=======  ==================================================

And one hash for all partitions: how far in record time each has come.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any, TypeVar

from streamdedup.errors import StoreMisconfigured
from streamdedup.position import Partition, Position
from streamdedup.store.base import ClaimListing, Fence, Listed, Listing, is_late
from streamdedup.store.records import encode_number, encode_place
from streamdedup.store.redis_keys import Keys, by_slot
from streamdedup.store.redis_partitions import RedisPartitions
from streamdedup.store.redis_runner import ScriptRunner, pairs_of
from streamdedup.store.redis_servers import Command, Servers

T = TypeVar("T")

#: An entry of either list.
_DOCUMENT, _CLAIM = struct.Struct(">qqq"), struct.Struct(">16sqq")


class RedisAges:
    """What one index knows of ages; its methods are those of ``BucketStore``.

    Args:
        servers: Where the index is.
        keys: Names of its keys.
        runner: Calls its scripts.
        partitions: Makes calls under fences.
        lifetime_ms: How long records live after they were written; None for ever.
        now_ms: The clock, in milliseconds.
    """

    def __init__(
        self,
        servers: Servers,
        keys: Keys,
        runner: ScriptRunner,
        partitions: RedisPartitions,
        lifetime_ms: int | None,
        now_ms: Callable[[], float],
    ) -> None:
        self._servers = servers
        self._keys = keys
        self._runner = runner
        self._fenced_call = partitions.fenced_call
        self._lifetime_ms = lifetime_ms
        self._now_ms = now_ms

    def is_late(self, time_ms: int) -> bool:
        """See ``BucketStore.is_late``."""
        return is_late(time_ms, self._lifetime_ms, self._now_ms())

    def enlist(self, listed: Listed, fences: Sequence[Fence]) -> None:
        """See ``BucketStore.enlist``."""
        lists: dict[tuple[Partition, bytes], list[bytes]] = {}
        for document in listed.documents:
            of = document.position.of
            lists.setdefault((of, self._keys.documents_listed(of)), []).append(_document_entry(document))
        for claim in listed.claims:
            of = claim.position.of
            lists.setdefault((of, self._keys.claims_listed(of)), []).append(_claim_entry(claim))
        places = list(lists)
        calls = []
        for slot, members in by_slot(self._keys.partition_slot(partition) for partition, _ in places).items():
            arguments: list[object] = [self._lifetime_ms or 0]
            for index in members:
                entries = lists[places[index]]
                arguments += (places[index][1], len(entries), *entries)
            calls.append(self._fenced_call("enlist", slot, fences, arguments))
        self._runner.run(calls)

    def times(self) -> dict[Partition, int]:
        """See ``BucketStore.times``."""
        return _times(pairs_of(self._servers.ask(self._keys.times, "HGETALL", self._keys.times)))

    def note_times(
        self, times: Mapping[Partition, int], fences: Sequence[Fence], *, extend: bool
    ) -> dict[Partition, int]:
        """See ``BucketStore.note_times``."""
        arguments: list[object] = [self._keys.times, (extend and self._lifetime_ms) or 0]
        for partition, time_ms in times.items():
            arguments += (str(partition), time_ms)
        (reply,) = self._runner.run([self._fenced_call("note_times", 0, fences, arguments)])
        return _times(pairs_of(reply))

    def outdated(self, partitions: Sequence[Partition], time_ms: int, count: int) -> list[Listed]:
        """See ``BucketStore.outdated``."""
        lifetime_ms = self._lifetime_ms or 0
        documents = self._older(
            [self._keys.documents_listed(each) for each in partitions], time_ms - lifetime_ms, count
        )
        claims = self._older([self._keys.claims_listed(each) for each in partitions], time_ms - 2 * lifetime_ms, count)
        return [
            Listed(
                [_read(partition, _DOCUMENT, entry, Listing) for entry in of_documents],
                [_read(partition, _CLAIM, entry, ClaimListing) for entry in of_claims],
            )
            for partition, of_documents, of_claims in zip(partitions, documents, claims, strict=True)
        ]

    def _older(self, keys: Sequence[bytes], limit_ms: int, count: int) -> list[list[bytes]]:
        """Return the first entries of lists, each up to the first that is not older than a limit."""
        # Most looks find nothing that is too old: at first only the heads are asked for.
        heads = self._servers.ask_all([Command(key, ("LINDEX", key, 0)) for key in keys])
        older: dict[bytes, list[bytes]] = {key: [] for key in keys}
        due = [key for key, head in zip(keys, heads, strict=True) if head is not None and _time_of(head) < limit_ms]
        if due:
            found = self._servers.ask_all([Command(key, ("LRANGE", key, 0, count - 1)) for key in due])
            for key, entries in zip(due, found, strict=True):
                older[key] = list(takewhile(lambda entry: _time_of(entry) < limit_ms, entries))
        return [older[key] for key in keys]

    def drop_outdated(self, listed: Listed, fence: Fence) -> None:
        """See ``BucketStore.drop_outdated``."""
        calls = []
        for slot, members in by_slot(self._keys.record_slot(each.number) for each in listed.documents).items():
            arguments: list[object] = [self._keys.records(slot)]
            for index in members:
                number, position, time_ms = listed.documents[index]
                arguments += (encode_number(number), encode_number(time_ms) + encode_place(position))
            calls.append(self._fenced_call("drop_records", slot, [fence], arguments))
        for slot, members in by_slot(self._keys.claim_slot(each.pair_key) for each in listed.claims).items():
            arguments = [self._keys.claims(slot)]
            for index in members:
                pair_key, position, _ = listed.claims[index]
                arguments += (pair_key, str(position))
            calls.append(self._fenced_call("drop_claims", slot, [fence], arguments))
        self._runner.run(calls)
        # Only now: whatever is listed and gone does no harm, what is there and not listed stays.
        slot = self._keys.partition_slot(fence.partition)
        documents_key, claims_key = (
            self._keys.documents_listed(fence.partition),
            self._keys.claims_listed(fence.partition),
        )
        self._runner.run(
            [
                self._fenced_call("unlist", slot, [fence], [documents_key, *map(_document_entry, listed.documents)]),
                self._fenced_call("unlist", slot, [fence], [claims_key, *map(_claim_entry, listed.claims)]),
            ]
        )


def _document_entry(listing: Listing) -> bytes:
    return _DOCUMENT.pack(listing.number, listing.position.offset, listing.time_ms)


def _claim_entry(listing: ClaimListing) -> bytes:
    return _CLAIM.pack(listing.pair_key, listing.position.offset, listing.time_ms)


def _time_of(entry: bytes) -> int:
    return int.from_bytes(entry[-8:], "big", signed=True)


def _read(partition: Partition, layout: struct.Struct, entry: bytes, make: Callable[[Any, Position, int], T]) -> T:
    try:
        what, offset, time_ms = layout.unpack(entry)
    except struct.error as error:
        raise StoreMisconfigured(
            f"the list of {partition} is damaged: {error}; another program writes to the keys of this index"
        ) from error
    return make(what, Position(*partition, offset), time_ms)


def _times(noted: Mapping[bytes, bytes]) -> dict[Partition, int]:
    times = {}
    for name, time_ms in noted.items():
        topic, _, number = name.decode().rpartition(":")
        times[Partition(topic, int(number))] = int(time_ms)
    return times
