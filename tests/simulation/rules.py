"""The eleven rules of delivery, each with a way to switch it off: the simulation must notice the lack of each.

A rule is switched off by replacing functions of the real code, of the index in memory or of the server in memory.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from streamdedup.daemon import attempts, losses, partitions, publisher, read_ahead, rebuild_run, recovery
from streamdedup.detection import appending, lifecycle
from streamdedup.detection.candidates import BucketHits
from streamdedup.detection.detector import Detector
from streamdedup.detection.lifecycle import Lifecycle
from streamdedup.detection.model import DetectionResult
from streamdedup.index import memory
from streamdedup.index.documents import InsertState
from streamdedup.index.values import AnnouncedAttempt
from tests.simulation import server
from tests.simulation.server import Connection, ServedIndex
from tests.simulation.transport import MemoryHistory

#: The owner of a function, its name, and what makes the replacement of the original.
Break = tuple[Any, str, Callable[[Any], Any]]


def _buckets_first(original: Any) -> Any:
    """Insert in the buckets and look up before the entries are inserted."""

    def index(self: Any, prepared: Any, fences: Any) -> Any:
        numbers = [entry.number for entry in prepared.entries]
        self._early = self._store.insert_and_look_up(numbers, prepared.band_keys, list(fences.values()))
        return original(self, prepared, fences)

    return index


def _looked_up_early(original: Any) -> Any:
    def look_up(self: Any, batch: Any, fences: Any) -> Any:
        early = self._early.candidates
        if any(row >= len(early) for row in batch.to_look_up):
            return original(self, batch, fences)
        hits = {row: BucketHits(early[row]) for row in batch.to_look_up}
        return {row: hit for row, hit in hits.items() if hit.candidates}, DetectionResult()

    return look_up


def _read_then_add(original: Any) -> Any:
    """Read the buckets in one call, and add the documents in the next."""

    def call(self: Any, name: str, *arguments: Any, **named: Any) -> Any:
        if name != "insert_and_look_up":
            return original(self, name, *arguments, **named)
        numbers, keys, _ = arguments
        found = original(self, "look_up", numbers, keys)
        original(self, name, *arguments, **named)
        for row, (candidates, of_row) in enumerate(zip(found.candidates, keys, strict=True)):
            for number, others in zip(numbers[:row], keys[:row], strict=True):  # documents of one call see each other
                if shared := int((others == of_row).sum()):
                    candidates[number] = shared
        return found

    return call


def _last_arrival_wins(original: Any) -> Any:
    def decide(stored: Any, new: Any) -> InsertState:
        state = original(stored, new)
        return InsertState.REPLACED if state is InsertState.SUPERSEDED else state

    return decide


def _nothing_saved(_original: Any) -> Any:
    def save(self: Any, pending: Any, fences: Any) -> Any:
        self._check_fences(fences)
        return [new for _, new in pending]

    return save


def _owns_all(_original: Any) -> Any:
    def claim(self: Any, claims: Any, fences: Any, _extended: Any = ()) -> Any:
        self._check_fences(fences)
        return [True] * len(claims)

    return claim


def _no_mark(original: Any) -> Any:
    def fence(self: Any, *state: Any) -> Any:
        return replace(original(self, *state), high_water_mark=0)

    return fence


def _unfenced(original: Any) -> Any:
    """Write under any fence; calls are numbered all the same."""

    def check(self: Any, _fences: Any) -> None:
        original(self, ())

    return check


def _does_nothing(_original: Any) -> Any:
    return lambda *_arguments, **_named: None


def _returns_none(original: Any) -> Any:
    def call(*arguments: Any) -> None:
        original(*arguments)

    return call


def _by_order(_original: Any) -> Any:
    return lambda attempt, committed_id: committed_id <= attempt.attempt_id


def _always(answer: bool) -> Callable[[Any], Any]:
    return lambda _original: lambda *_arguments: answer


def _at_present(_original: Any) -> Any:
    """What is missing now counts, and not what was missing at the first attempt."""
    return lambda _store, missing_now, _undecided, _fences: frozenset(missing_now)


#: What switches each rule off.
RULES: dict[str, Sequence[Break]] = {
    "entry first": [(Detector, "index", _buckets_first), (Detector, "_insert_and_look_up", _looked_up_early)],
    "add before read": [(Connection, "_call", _read_then_add)],
    "position order": [(module, "decide_version", _last_arrival_wins) for module in (memory, lifecycle)],
    "pending matches saved": [(ServedIndex, "save_pending_matches", _nothing_saved)],
    "claim": [(ServedIndex, "claim_pairs", _owns_all)],
    "high-water mark": [(ServedIndex, "fence", _no_mark)],
    "fence": [(ServedIndex, "_check_fences", _unfenced)],
    "claims seeded": [(rebuild_run.RebuildRun, "_seed", _does_nothing)],
    "remove before change": [(Lifecycle, "_remove_from_buckets", _does_nothing)],
    "no late or forgotten writes": [(ServedIndex, "_count_call", _does_nothing)],
    "announce": [(losses, "loss_reason", _does_nothing)],
}

#: By kept story, what switches off the branch of the code that the story needs.
BRANCHES: dict[str, Sequence[Break]] = {
    "announced-by-a-stale-fence": [(AnnouncedAttempt, "knows", _by_order)],
    "append-to-nothing": [(appending, "missing_at_first_attempt", _at_present)],
    "batch-ahead-undone": [(read_ahead.ReadAhead, "discard", _returns_none)],
    "dead-letter-set-back": [(publisher.Publisher, "_is_to_publish", _always(True))],
    "drop-forced": [(server, "PARTS", lambda parts: (*parts[1:], parts[0]))],
    "drop-slow": [(server.Staging, "extend_lease", _does_nothing)],
    "frozen-at-rebuild": [
        (partitions, "require_index", _does_nothing),
        (recovery.Recovery, "_compare_parameters", _does_nothing),
    ],
    "gap-of-removed-records": [(MemoryHistory, "keeps_all", _always(True))],
    "redelivery-by-another-partition": [(lifecycle, "_is_compared_again", _always(False))],
    "live-restore-before-a-batch": [(recovery.Recovery, "confirm_index", _does_nothing)],
    "left-before-a-commit": [(AnnouncedAttempt, "knows", _by_order)],
    "mark-of-an-idle-partition": [(partitions, "_is_behind", _always(False))],
    "recreated-rebuild": [(lifecycle, "with_incarnation", lambda _original: lambda entry, _stored: entry)],
    "restart-between-batches": [(recovery.Recovery, "_check_connections", _does_nothing)],
    "stale-end": [(partitions.PartitionOwnership, "_confirm_membership", _does_nothing)],
    "static-clock": [(attempts.AttemptIds, "observe", _does_nothing)],
}


@contextlib.contextmanager
def without(rule: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, make in {**RULES, **BRANCHES}[rule]:
            patch.setattr(owner, name, make(getattr(owner, name)))
        yield
