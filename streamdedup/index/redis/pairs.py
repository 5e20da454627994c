"""Pairs in Redis, a part of ``RedisIndex``: rules 4 and 5 of ``index.contract``.

Pending matches are hashes by position, claims fields of pages (``lua/_claims.lua``).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

from streamdedup.index.documents import PendingMatches
from streamdedup.index.entries import count_claims, decode_pending, encode_pending, position_token
from streamdedup.index.redis.errors import damage_translated
from streamdedup.index.redis.fenced import RedisPart
from streamdedup.index.redis.keys import by_slot
from streamdedup.index.redis.servers import Command
from streamdedup.index.values import Fences, claim_lifetime
from streamdedup.position import Position

#: Pairs to claim, or fields of pending matches, from which on a call is full: a batch may have 100,000s of pairs.
_FULL_CALL: Final = 2_000
#: The last bytes of a pair key, of 16, are the field of its claim: 12 bytes of a digest distinguish all pairs.
_FIELD_BYTES = 12


class RedisPairs(RedisPart):
    def save_pending_matches(
        self, pending: Sequence[tuple[Position, PendingMatches]], fences: Fences
    ) -> list[PendingMatches]:
        encoded = [encode_pending(matches) for _, matches in pending]
        slots = (self._keys.partition_slot(position.partition_incarnation) for position, _ in pending)
        groups = list(_split_calls(slots, [len(fields) for fields in encoded]))
        calls, encoded_fences = [], self._encode_fences(fences)
        for slot, rows in groups:
            arguments: list[Any] = [self._keys.pending_matches_prefix(slot), self.options.lifetime_ms]
            for row in rows:
                position, fields = pending[row][0], encoded[row]
                arguments += (position.key, len(fields), *chain.from_iterable(fields.items()))
            calls.append(self._fenced_call("save_pending_matches", slot, encoded_fences, arguments))
        replies = self._run(calls)
        saved = [matches for _, matches in pending]
        with damage_translated():
            for (_, rows), reply in zip(groups, replies, strict=True):
                for row, flat_fields in zip(rows, reply, strict=True):
                    saved_fields = dict(zip(flat_fields[::2], flat_fields[1::2], strict=True))
                    if saved_fields != encoded[row]:  # an earlier attempt saved others
                        saved[row] = decode_pending(saved_fields)
        return saved

    def claim_pairs(
        self, claims: Sequence[tuple[bytes, Position]], fences: Fences, extended_keys: Sequence[bytes] = ()
    ) -> list[bool]:
        pair_keys = [*(pair_key for pair_key, _ in claims), *extended_keys]
        tokens = [position_token(position) for _, position in claims]
        groups = list(_split_calls(map(self._keys.digest_slot, pair_keys), [1] * len(pair_keys)))
        calls, encoded_fences = [], self._encode_fences(fences)
        lifetime_ms = claim_lifetime(self.options.lifetime_ms)
        for slot, rows in groups:
            # Rows ascend, so the claims come before the pairs that are only extended, which have no token.
            claims_count = sum(row < len(claims) for row in rows)
            place = self._keys.claim_pages_prefix(slot), self._keys.claim_catalogue(slot)
            arguments: list[Any] = [*place, lifetime_ms, claims_count]
            for row in rows:
                arguments.append(pair_keys[row][-_FIELD_BYTES:])
                if row < len(claims):
                    arguments.append(tokens[row])
            calls.append(self._fenced_call("claim_pairs", slot, encoded_fences, arguments))
        owned = [False] * len(claims)
        for (_, rows), reply in zip(groups, self._run(calls), strict=True):
            for row, is_owned in zip(rows, reply, strict=False):  # a reply has only the claims, which come first
                owned[row] = is_owned == 1
        return owned

    def count_claims(self) -> int:
        keys = [self._keys.claim_catalogue(slot) for slot in self._slots]
        catalogues = self._servers.ask_many([Command(key, ("GET", key)) for key in keys])
        return sum(count_claims(catalogue) for catalogue in catalogues if catalogue)


def _split_calls(slots: Iterable[int], sizes: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield slot and rows, ascending, for each call; ``sizes`` has the pairs or fields of each row, never divided."""
    for slot, rows in by_slot(slots).items():
        start = call_size = 0
        for end, row in enumerate(rows, 1):
            call_size += sizes[row]
            if call_size >= _FULL_CALL or end == len(rows):
                yield slot, rows[start:end]
                start, call_size = end, 0
