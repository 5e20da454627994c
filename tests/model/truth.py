"""The verdict: compares the published pairs with those that the logs and the commit times require."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.model.documents import (
    NEVER_DELETED,
    NOTHING_SUPPRESSED,
    Content,
    Marker,
    Pair,
    Position,
    Record,
    Side,
    Suppression,
    Texts,
)
from tests.model.index import NEVER, Index
from tests.model.kafka import Alert, Kafka


@dataclass(slots=True)
class Verdict:
    """Mistakes by kind; each entry describes one.

    Attributes:
        lost: Pairs that are valid at the end, are not suppressed, and were never published for these incarnations.
        doubled: Pairs of versions published twice although, between the two alerts, neither an index entry was absent
            nor the versions were dissimilar for longer than a lifetime. Also pairs published for two incarnations of a
            document that was neither deleted nor expired between the two alerts.
        invented: Published pairs that were never valid: the replacement or deletion of one version was committed before
            the other version was produced; or the versions are not similar, too far apart in time, or suppressed.
        garbled: Documents whose entry differs from their log.
        remaining: Data of deleted documents that is left at the end.
        misaddressed: Missing and superfluous dead letters.
        unfinished: Steps after which a run that does not end was given up.
    """

    lost: Sequence[object] = ()
    doubled: Sequence[object] = ()
    invented: Sequence[object] = ()
    garbled: Sequence[object] = ()
    remaining: Sequence[object] = ()
    misaddressed: Sequence[object] = ()
    unfinished: Sequence[object] = ()

    def kinds(self) -> dict[str, Sequence[object]]:
        """Return the kinds with mistakes."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: entries for name, entries in found.items() if entries}


@dataclass(slots=True)
class State:
    """State of a document between two operations: its time span, and the times of the records with this state."""

    version: int
    content: Content
    since: float
    times: list[int]
    until: float = NEVER
    #: Whether every record up to here was committed within the slack.
    prompt: bool = True
    #: Whether no record up to here can have found an expired document.
    known: bool = True
    #: Time span in which its index entry certainly exists, if every record up to here was processed as expected.
    first: float = 0
    last: float = -1
    #: Source of the upsert.
    source: int | None = None
    #: Position of the deletion before the first insertion.
    incarnation: Position = NEVER_DELETED
    #: Whether the index certainly knows the incarnation: neither the marker nor an entry of it can have expired.
    certain: bool = True


@dataclass(slots=True)
class History:
    """All states of a document; the last one is its state at the end, unless it is deleted."""

    states: list[State] = field(default_factory=list)
    alive: bool = False
    known: bool = False
    #: The last deletion, and its record time.
    deleted: tuple[Position, int] | None = None
    unknown_appends: list[Position] = field(default_factory=list)


class Truth:
    """The pairs that the logs require.

    Args:
        kafka: The broker, at the end.
        texts: Similarity.
        window: Greatest difference of record times; None for no limit.
        slack: Longest time from a record to its commit under which pairs are promised; only with a window.
        suppression: Rules about what is alerted.
    """

    def __init__(
        self, kafka: Kafka, texts: Texts, window: int | None, slack: int, suppression: Suppression = NOTHING_SUPPRESSED
    ) -> None:
        self._kafka = kafka
        self._texts = texts
        self._window = window
        self._slack = slack
        self._suppression = suppression
        #: Lifetime of index entries, which is also the longest interruption of a pair that is not published again.
        self._lifetime = NEVER if window is None else window + slack
        self._histories: dict[int, History] = {}
        #: Version of an incarnation -> its states, with appended parts.
        self._sides: dict[Side, list[State]] = {}
        self._read_logs()

    def _read_logs(self) -> None:
        entries = [
            (operation.time, topic, Position(partition, offset, topic), operation)
            for topic, logs in enumerate([*self._kafka.deleted, self._kafka.log])
            for partition, log in enumerate(logs)
            for offset, operation in enumerate(log)
        ]
        # Times ascend with the offsets of a partition; between partitions the time decides.
        for _, _, position, operation in sorted(entries, key=lambda entry: entry[:3]):
            self._apply(position, *operation)
        for doc, history in self._histories.items():
            for state in history.states:
                self._sides.setdefault((doc, state.version, state.incarnation), []).append(state)

    def _apply(self, position: Position, kind: str, doc: int, part: int | None, time: int, source: int | None) -> None:
        history = self._histories.setdefault(doc, History())
        old = history.states[-1] if history.alive else None
        committed_at = self._kafka.committed_at[position]
        prompt = committed_at - time <= self._slack
        if kind == "append" and part is not None:
            if old is None:
                history.unknown_appends.append(position)
                return
            if len(old.content) > 1 and old.content[-1] == part and old.times[0] == time:
                return
            # An append certainly applies only to a document that certainly has not expired.
            certain = committed_at <= old.times[0] + self._lifetime
            prompt = prompt and old.prompt and certain
            new = State(old.version, (*old.content, part), time, [time], prompt=prompt, source=old.source)
            new.incarnation, new.certain = old.incarnation, old.certain and self._window is None
            new.known = old.known and certain
        elif part is None:
            history.deleted = position, time
            if old is not None:
                old.until, history.alive = committed_at, False
                old.last = min(old.last, time)
            return
        else:
            if old is not None and old.content == (part,):
                old.times.append(time)
                old.since = min(old.since, time)
                old.prompt &= prompt
                old.certain &= self._window is None
                return
            new = State(part, (part,), time, [time], prompt=prompt, source=source)
            self._set_incarnation(new, history, old, committed_at)
            new.known = old is None or old.known
        if new.known:
            new.first, new.last = committed_at, time + self._lifetime
        if old is not None:
            old.until = committed_at
            old.last = min(old.last, time)
        history.states.append(new)
        history.alive = history.known = True

    def _set_incarnation(self, new: State, history: History, old: State | None, committed_at: float) -> None:
        """Set the incarnation of an upsert."""
        if old is not None:
            new.incarnation, new.certain = old.incarnation, old.certain and self._window is None
        elif history.deleted is not None:
            new.incarnation, deleted_at = history.deleted
            # The marker lives for three lifetimes.
            new.certain = self._window is None or committed_at - deleted_at < 3 * self._lifetime

    def judge(self, index: Index) -> Verdict:
        """Compare with the published pairs and with the data in the index."""
        verdict = Verdict()
        reported = Counter(alert.pair for alert in self._kafka.alerts)
        verdict.lost = [pair for pair in self._promised() if not any(map(self._accepts(pair), reported))]
        verdict.doubled = [pair for pair, count in reported.items() if count > 1 and self._is_doubled(pair)]
        verdict.doubled += self._doubled_by_incarnation()
        verdict.invented = [pair for pair in reported if not self._was_valid(pair)]
        if self._window is None:
            expected = Counter(position for history in self._histories.values() for position in history.unknown_appends)
            sent = Counter(self._kafka.dead_letters)
            verdict.misaddressed = sorted(((expected - sent) + (sent - expected)).elements())
            verdict.garbled = [doc for doc, history in self._histories.items() if self._is_garbled(doc, history, index)]
        verdict.remaining = sorted(set(self._remains(index)))
        return verdict

    def _accepts(self, promised: Pair) -> Callable[[Pair], bool]:
        """Return whether a published pair is a promised one; its incarnations may differ where they are uncertain."""
        certain = [self._histories[doc].states[-1].certain for doc, _, _ in promised]

        def accepts(pair: Pair) -> bool:
            return all(
                side == wanted if is_certain else side[:2] == wanted[:2]
                for side, wanted, is_certain in zip(pair, promised, certain, strict=True)
            )

        return accepts

    def _promised(self) -> Iterable[Pair]:
        last = [(doc, history.states[-1]) for doc, history in sorted(self._histories.items()) if history.alive]
        for row, (doc, a) in enumerate(last):
            for other, b in last[row + 1 :]:
                if (self._window is None or (a.prompt and b.prompt and self._always_within(a, b))) and (
                    self._is_alerted(a, b)
                ):
                    yield (doc, a.version, a.incarnation), (other, b.version, b.incarnation)

    def _is_alerted(self, a: State, b: State) -> bool:
        return self._texts.similar(a.content, b.content) and not self._suppression.suppresses(a, b)

    def _always_within(self, a: State, b: State) -> bool:
        times = a.times + b.times
        return self._window is not None and max(times) - min(times) <= self._window

    def _is_doubled(self, pair: Pair) -> bool:
        """Tell whether a pair was published again too soon after it last existed."""
        if self._window is None:
            return True
        if not self._is_followed(pair):
            return False
        times = sorted(alert.committed_at for alert in self._kafka.alerts if alert.pair == pair)
        return any(self._is_never_interrupted(pair, one, next_one) for one, next_one in itertools.pairwise(times))

    def _doubled_by_incarnation(self) -> list[Pair]:
        """Return the pairs published again for another incarnation, although the documents existed throughout."""
        by_version: dict[object, list[Alert]] = {}
        for alert in self._kafka.alerts:
            by_version.setdefault(tuple(side[:2] for side in alert.pair), []).append(alert)
        return [
            later.pair
            for alerts in by_version.values()
            for earlier, later in itertools.pairwise(alerts)
            if earlier.pair != later.pair
            and all(self._exists_throughout(doc, earlier.committed_at, later.committed_at) for doc, _, _ in later.pair)
        ]

    def _exists_throughout(self, doc: int, since: float, until: float) -> bool:
        """Tell whether a document certainly existed throughout a time span, in one incarnation."""
        states = self._histories[doc].states
        covered: dict[Position, float] = {}
        for state, following in zip(states, [*states[1:], None], strict=True):
            incarnation = state.incarnation
            end = state.last
            if following is not None and following.incarnation == incarnation:
                end = min(following.first, state.times[0] + self._lifetime)  # replaced, not deleted
            if 0 < state.first <= covered.get(incarnation, since - 1):
                covered[incarnation] = max(end, covered.get(incarnation, end))
        return any(end > until for end in covered.values())

    def _is_followed(self, pair: Pair) -> bool:
        """Tell whether claims are guaranteed to follow a pair: all of its records came within the slack."""
        states = [state for doc, _, _ in pair for state in self._histories[doc].states]
        return all(state.prompt for state in states)

    def _is_never_interrupted(self, pair: Pair, since: float, until: float) -> bool:
        """Tell whether both versions certainly exist, with short interruptions, throughout a time span."""
        one, other = (self._sides.get(side, []) for side in pair)
        there = sorted(
            (max(a.first, b.first), min(a.last, b.last))
            for a in one
            for b in other
            if self._texts.similar(a.content, b.content)
        )
        covered = since
        for first, last in there:
            if first <= last and first - covered <= self._lifetime:
                covered = max(covered, last)
        return until - covered <= self._lifetime

    def _was_valid(self, pair: Pair) -> bool:
        a, b = pair
        return any(
            self._is_alerted(x, y)
            and x.since < y.until
            and y.since < x.until
            and (self._window is None or any(abs(s - t) <= self._window for s in x.times for t in y.times))
            for x in self._states_of(a)
            for y in self._states_of(b)
        )

    def _states_of(self, side: Side) -> list[State]:
        """Return the states of a version in all incarnations: the index may have forgotten the incarnation."""
        return [state for state in self._histories[side[0]].states if state.version == side[1]]

    def _is_garbled(self, doc: int, history: History, index: Index) -> bool:
        stored = [record for slot in index.slots for number, record in slot.records.items() if number == doc]
        if not history.alive:
            return any(isinstance(record, Record) for record in stored)
        return [record.content for record in stored if isinstance(record, Record)] != [history.states[-1].content]

    def _remains(self, index: Index) -> Iterable[str]:
        """Find data of deleted documents; markers and claims contain only a hash and a position."""
        gone = {doc for doc, history in self._histories.items() if history.known and not history.alive}
        for slot in index.slots:
            for bucket, members in slot.buckets.items():
                yield from (f"{doc} in bucket {bucket}" for doc in members if self._stays(doc, members, gone, index))
            yield from (
                f"record of {doc}" for doc, old in slot.records.items() if doc in gone and not isinstance(old, Marker)
            )
            yield from (f"buckets of {doc} to be left" for doc in slot.removals if doc in gone)
            for position, pairs in slot.pending_matches.items():
                if any(pair is not None and {pair[0][0], pair[1][0]} & gone for pair in pairs):
                    yield f"pending_matches of {position}"

    def _stays(self, doc: int, members: Mapping[int, int], gone: set[int], index: Index) -> bool:
        """Tell whether a member should have been removed from its bucket."""
        if index.lifetime is None:
            return doc in gone
        return members[doc] + 2 * index.lifetime <= index.clock.now
