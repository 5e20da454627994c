"""Base classes for the parts of an index in Redis: options, servers, keys, and script calls under fences.

``RedisPart`` is the base of the parts that ``redis.store`` joins, ``RedisReading`` also that of ``redis.reader``. Read
``index.contract`` first: rules 7 and 10 are about fences and call numbers (``lua/_fence.lua``).
"""

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from streamdedup import clock
from streamdedup.index.documents import IndexEntry
from streamdedup.index.entries import LAYOUT, decode_entries, encode_fence
from streamdedup.index.fingerprints import compare_fingerprints, decode_fingerprint
from streamdedup.index.redis.errors import damage_translated
from streamdedup.index.redis.keys import Keys, by_slot
from streamdedup.index.redis.scripts import Call, FencedScripts
from streamdedup.index.redis.servers import Command, Servers
from streamdedup.index.values import Fence, Fingerprint, Opening

#: Time slices in a lifetime; documents are counted by slice.
SLICES_PER_LIFETIME = 8
#: Seconds after a call in which the slot certainly has its number; the key of the number expires after an hour.
_REMEMBERED_S = 3000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisIndexOptions:
    """Place and limits of an index in Redis, the same for all processes that use it.

    Attributes:
        namespace: Prefix and profile, joined by a colon.
        shards: Slots for each band; 1 except on a cluster.
        lifetime_ms: Time to live of index entries, bucket members and pending matches after the last write. Claims
            live twice as long, at least.
        bucket_cap: None for no limit.
        bucket_layout: A key of ``buckets.LAYOUTS``.
    """

    namespace: str
    bands: int
    lifetime_ms: int
    shards: int = 1
    bucket_cap: int | None = None
    bucket_layout: str = "sets"

    def stored_fingerprint(self, fingerprint: Fingerprint) -> dict[str, object]:
        """Return the fingerprint to store: the settings, and the parameters that decide on the keys."""
        layouts = {"bucket_layout": self.bucket_layout, "layout": LAYOUT}
        # Keys of pages contain the number of a generation: the time divided by this length (``lua/_pages.lua``).
        generation = {"page_generation_ms": self.lifetime_ms} if self.bucket_layout == "packed" else {}
        return {**fingerprint, "shards": self.shards, **layouts, **generation}


class RedisReading:
    """Reads an index in Redis; the base for ``RedisPart`` and ``RedisIndexReader``.

    ``run`` calls scripts: ``FencedScripts.run``, or the reader's own function, which needs no right to write.
    """

    def __init__(
        self,
        servers: Servers,
        options: RedisIndexOptions,
        keys: Keys,
        run: Callable[[Sequence[Call]], list[Any]],
        now_ms: Callable[[], float] = clock.now_ms,
    ) -> None:
        self.options = options
        self._servers = servers
        self._keys = keys
        self._slots = range(keys.slots_count)
        self._run = run
        self._now_ms = now_ms

    def _compare_fingerprint(self, stored: bytes, fingerprint: Fingerprint) -> Opening:
        """Compare a stored fingerprint with the settings; raise ``IndexMismatch`` or ``StoreMisconfigured``."""
        # Through JSON, as the stored value was: a tuple becomes a list.
        configured = msgspec.json.decode(msgspec.json.encode(self.options.stored_fingerprint(fingerprint)))
        return compare_fingerprints(decode_fingerprint(self._keys.fingerprint, stored), configured)

    def get_entries(self, numbers: Sequence[int]) -> dict[int, IndexEntry]:
        distinct = list(dict.fromkeys(numbers))
        groups = by_slot(self._keys.entry_slot(number) for number in distinct)
        keys = [[self._keys.entry(distinct[row]) for row in rows] for rows in groups.values()]
        replies = self._servers.ask_many([Command(slot_keys[0], ("MGET", *slot_keys)) for slot_keys in keys])
        stored = {}
        for rows, values in zip(groups.values(), replies, strict=True):
            for row, data in zip(rows, values, strict=True):
                if data is not None:
                    stored[distinct[row]] = data
        return _decoded(stored)

    def read_entries(self, numbers: Sequence[int], limit_bytes: int) -> dict[int, IndexEntry | None]:
        groups = by_slot(self._keys.entry_slot(number) for number in numbers)
        slot_limit_bytes = max(1, limit_bytes // max(1, len(groups)))  # without numbers there is no group
        calls = [
            Call("read_entries", [self._keys.entry(numbers[row]) for row in rows], [slot_limit_bytes])
            for rows in groups.values()
        ]
        read = {
            numbers[row]: data
            for rows, reply in zip(groups.values(), self._run(calls), strict=True)
            # A reply ends where the limit was reached.
            for row, data in zip(rows, reply, strict=False)
        }
        entries = _decoded({number: data for number, data in read.items() if data is not None})
        return {number: entries.get(number) for number in read}

    def count_documents(self) -> int:
        """Return the document count by HyperLogLogs, standard error 0.81 %.

        Elements cannot be removed from a HyperLogLog, so each time slice has its own, of 12 kB. It expires after the
        last index entry in the slice.
        """
        last_slice = self._document_slice()
        time_slices = range(last_slice - SLICES_PER_LIFETIME, last_slice + 1)
        keys = [self._keys.document_count(time_slice) for time_slice in time_slices]
        return int(self._servers.ask(keys[0], "PFCOUNT", *keys))

    def _document_slice(self) -> int:
        """Return the number of the present time slice."""
        return int(self._now_ms() * SLICES_PER_LIFETIME / self.options.lifetime_ms)

    def close(self) -> None:
        self._servers.close()


def _decoded(stored: Mapping[int, bytes]) -> dict[int, IndexEntry]:
    with damage_translated():
        entries = decode_entries(list(stored), list(stored.values()))
    return dict(zip(stored, entries, strict=True))


class _LastCall(NamedTuple):
    """The last call in a slot: number of its run (``ScriptRunner.run``), failed runs before it, its monotonic time."""

    run_number: int
    failures_count: int
    called_at_s: float


class EncodedFences(NamedTuple):
    """Fences for the calls of an operation: partitions as text, for the keys; and the expected value at each key."""

    partitions: list[bytes]
    values: list[str]


class RedisPart(RedisReading):
    """Base class for the parts that ``RedisIndex`` joins; each part implements one Protocol in the contract.

    With ``in_staging`` this index belongs to a ``StagingIndex``, into which a rebuild writes.
    """

    def __init__(
        self,
        servers: Servers,
        options: RedisIndexOptions,
        *,
        in_staging: bool = False,
        now_ms: Callable[[], float] = clock.now_ms,
    ) -> None:
        keys = Keys(options.namespace, options.bands, options.shards, in_staging=in_staging)
        self._runner = FencedScripts(servers, keys.fingerprint)
        super().__init__(servers, options, keys, self._runner.run, now_ms)
        #: Random name of this index object (rule 7), a part of its fences and of the keys of its call numbers.
        self._writer = secrets.token_bytes(8)
        #: By slot; a single server has slot 0 for all. Empty before the first call and after ``forget_calls``.
        self._last_calls: dict[int, _LastCall] = {}

    def _encode_fences(self, fences: Sequence[Fence]) -> EncodedFences:
        """Return fences with this index object as the writer."""
        return EncodedFences(
            [str(fence.partition).encode() for fence in fences],
            [encode_fence(fence.generation, self._writer) for fence in fences],
        )

    def _fenced_call(
        self, name: str, slot: int, fences: EncodedFences, arguments: Iterable[Any], documents_count: int = 0
    ) -> Call:
        """Return a call of a writing script under fences, and remember it; ``documents_count``: see ``Call``.

        The call carries the number of the next run of ``ScriptRunner`` (``lua/_fence.lua``), and belongs to that run.
        """
        run_number = self._runner.run_number
        # A single server loses the last writes of all slots together, so slot 0 has the number for all slots.
        call_slot = slot if self._servers.mode == "cluster" else 0
        keys = self._keys.fencing(slot, fences.partitions, self._writer, call_slot)
        arguments = [*fences.values, run_number, self._remember_call(call_slot, run_number), *arguments]
        return Call(name, keys, arguments, documents_count)

    def forget_calls(self) -> None:
        """Forget the calls so far, when all keys were deleted, the call numbers among them."""
        self._last_calls.clear()

    def _remember_call(self, slot: int, run_number: int) -> int:
        """Remember a call in a slot; return the smallest number that the slot must have, 0 if unknown (rule 10).

        A slot with a smaller number has lost writes, and refuses the call (``lua/_fence.lua``). The first call of a run
        expects the number of the slot's last call, unless a run has failed since, or the last call is too old. Further
        calls expect the number of this run, which the first call has stored, so they are refused if the first call is.
        Three calls of run 7 after run 6 expect 6, 7 and 7.
        """
        failures_count, now_s = self._runner.failures_count, time.monotonic()
        never = _LastCall(run_number=0, failures_count=0, called_at_s=0.0)
        last = self._last_calls.get(slot, never)
        if last.run_number == run_number:
            return run_number
        self._last_calls[slot] = _LastCall(run_number, failures_count, now_s)
        is_certain = last.failures_count == failures_count and now_s - last.called_at_s < _REMEMBERED_S
        return last.run_number if is_certain else 0

    def _calls_by_slot(
        self,
        name: str,
        slots: Iterable[int],
        fences: Sequence[Fence],
        first_arguments: Callable[[int], Sequence[Any]],
        arguments: Sequence[Iterable[Any]],
    ) -> list[Call]:
        """Return a fenced call for each slot that occurs, from rows such as documents or changes.

        ``slots`` and ``arguments`` have an element for each row. A call gets ``first_arguments(slot)``, then the
        arguments of its rows, in order.
        """
        encoded_fences = self._encode_fences(fences)
        calls = []
        for slot, rows in by_slot(slots).items():
            slot_arguments = [*first_arguments(slot), *chain.from_iterable(arguments[row] for row in rows)]
            calls.append(self._fenced_call(name, slot, encoded_fences, slot_arguments))
        return calls
