"""The buckets of exact copies of an index in Redis: numbers of documents, by the digest of their content."""

from collections.abc import Mapping, Sequence
from itertools import chain

from streamdedup.index.redis.keys import Keys, by_slot
from streamdedup.index.redis.partitions import RedisPartitions
from streamdedup.index.redis.runner import Call, ScriptRunner
from streamdedup.index.redis.servers import Command, Servers
from streamdedup.index.values import COPIES_CAP, Fence, FoundNearCapacity


class RedisCopies:
    """The buckets of exact copies of one index; its methods are those of ``Index``.

    Args:
        servers: Servers of the index.
        keys: Names of its keys.
        runner: Calls its scripts.
        partitions: Makes calls under fences.
        lifetime: Time to live of a bucket, in milliseconds as decimal digits; "0" for ever.
    """

    def __init__(
        self, servers: Servers, keys: Keys, runner: ScriptRunner, partitions: RedisPartitions, lifetime: bytes
    ) -> None:
        self._servers = servers
        self._keys = keys
        self._runner = runner
        self._partitions = partitions
        self._lifetime = lifetime

    def leave(self, documents: Sequence[tuple[int, bytes]], fences: Sequence[Fence]) -> None:
        """See ``Index.remove_copies``."""
        calls: list[Call] = []
        for slot, members in by_slot(self._keys.copies_slot(digest) for _, digest in documents).items():
            arguments = [self._keys.copies(slot), self._keys.departures(slot)]
            pairs = chain.from_iterable((documents[index][1], documents[index][0]) for index in members)
            calls.append(self._partitions.fenced_call("remove_copies", slot, fences, [*arguments, *pairs]))
        self._runner.run(calls)

    def copy_removals(self) -> dict[int, int]:
        """See ``Index.copy_removals``; the parts are the slots."""
        keys = [self._keys.departures(slot) for slot in range(self._keys.slots_count)]
        counts = self._servers.ask_all([Command(key, ("HGET", key, "count")) for key in keys])
        return {slot: int(count or 0) for slot, count in enumerate(counts)}

    def enter(
        self, documents: Sequence[tuple[int, bytes]], fences: Sequence[Fence], found: FoundNearCapacity | None = None
    ) -> list[list[int]]:
        """See ``Index.insert_copies``."""
        others = found.documents if found is not None else ()
        departures: Mapping[int, int] = found.removals if found is not None else {}
        groups = by_slot(self._keys.copies_slot(digest) for _, digest in documents)
        groups_of_others = by_slot(self._keys.copies_slot(digest) for _, digest in others)
        calls: list[Call] = []
        own_of_call: list[list[int]] = []
        for slot in dict.fromkeys([*groups_of_others, *groups]):
            own, of_others = groups.get(slot, []), groups_of_others.get(slot, [])
            head = [self._keys.copies(slot), self._keys.departures(slot), self._lifetime, COPIES_CAP]
            entering = [*(others[index] for index in of_others), *(documents[index] for index in own)]
            pairs = chain.from_iterable((digest, number) for number, digest in entering)
            arguments = [*head, departures.get(slot, 0), len(of_others), *pairs]
            calls.append(self._partitions.fenced_call("insert_copies", slot, fences, arguments))
            own_of_call.append(own)
        copies: list[list[int]] = [[] for _ in documents]
        for own, reply in zip(own_of_call, self._runner.run(calls), strict=True):
            for index, members in zip(own, reply, strict=True):
                copies[index] = [int(member) for member in members]
        return copies
