"""Claims in Redis: pages that hold many of them each, in the slot of the pair. The layout: ``lua/_claims.lua``."""

from collections.abc import Sequence
from typing import Any, Final

from streamdedup.index.entries import position_token
from streamdedup.index.redis.keys import Keys, by_slot
from streamdedup.index.redis.partitions import RedisPartitions
from streamdedup.index.redis.runner import Call, ScriptRunner, portions
from streamdedup.index.redis.servers import Command, Servers
from streamdedup.index.values import Fence, ListedClaim, claim_lifetime
from streamdedup.position import Position

#: Bytes of a pair key that name the claim in its page; with the four before, which choose the slot, all 16 count.
_FIELD_BYTES = 12
#: For how many lifetimes of an index entry a claim is stored in the steady state, mean: the two generations before as
#: wholes, and half of the present one.
CLAIM_LIFETIMES: Final = 2.5
#: Where the number of claims is among the numbers of a generation in a catalogue.
_CLAIMS_AT = 2


class RedisClaims:
    """The claims of one index; its methods are those of ``Index``.

    Args:
        servers: Where the index is.
        keys: Names of its keys.
        runner: Calls its scripts.
        partitions: Makes calls under fences.
        lifetime_ms: How long index entries live after they were written; None for ever.
    """

    def __init__(
        self,
        servers: Servers,
        keys: Keys,
        runner: ScriptRunner,
        partitions: RedisPartitions,
        lifetime_ms: int | None,
    ) -> None:
        self._servers = servers
        self._keys = keys
        self._runner = runner
        self._fenced_call = partitions.fenced_call
        self._lifetime_ms = claim_lifetime(lifetime_ms) or 0

    def claim_pairs(
        self,
        claims: Sequence[tuple[bytes, Position]],
        fences: Sequence[Fence],
        extended: Sequence[tuple[bytes, Position]] = (),
    ) -> list[bool]:
        """See ``PairStore.claim_pairs``."""
        every = [*claims, *extended]
        groups = [
            (slot, part)
            for slot, members in by_slot(self._keys.claim_slot(pair_key) for pair_key, _ in every).items()
            for part in portions(members, [1] * len(members))
        ]
        calls = []
        for slot, members in groups:
            # Members are in order: the pairs that are asked for come before those that are only extended.
            asked_count = sum(index < len(claims) for index in members)
            arguments: list[Any] = [*self._places(slot), self._lifetime_ms, asked_count]
            for index in members:
                arguments += _field_and_token(*every[index])
            calls.append(self._fenced_call("claim_pairs", slot, fences, arguments))
        owned = [False] * len(claims)
        for (_, members), reply in zip(groups, self._runner.run(calls), strict=True):
            for index, own in zip(members, reply, strict=False):
                owned[index] = own == 1
        return owned

    def drop_calls(self, claims: Sequence[ListedClaim], fence: Fence) -> list[Call]:
        """Return the calls that drop claims, each where the listed position was the last to ask.

        Args:
            claims: As the partition of the fence lists them.
            fence: Right to write for it.
        """
        calls = []
        for slot, members in by_slot(self._keys.claim_slot(each.pair_key) for each in claims).items():
            arguments: list[Any] = [*self._places(slot)]
            for index in members:
                arguments += _field_and_token(claims[index].pair_key, claims[index].position)
            calls.append(self._fenced_call("drop_claims", slot, [fence], arguments))
        return calls

    def count_claims(self) -> int:
        """See ``StoreHealth.count_claims``."""
        keys = [self._keys.claim_catalogue(slot) for slot in range(self._keys.slots_count)]
        found = self._servers.ask_all([Command(key, ("GET", key)) for key in keys])
        generations = [entry for catalogue in found if catalogue for entry in catalogue.split(b",")]
        return sum(int(entry.split()[_CLAIMS_AT]) for entry in generations)

    def _places(self, slot: int) -> tuple[bytes, bytes]:
        return self._keys.claims(slot), self._keys.claim_catalogue(slot)


def _field_and_token(pair_key: bytes, position: Position) -> tuple[bytes, bytes]:
    return pair_key[-_FIELD_BYTES:], position_token(position)
