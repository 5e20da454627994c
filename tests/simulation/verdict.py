"""The verdict: the pairs that a subscriber saw, beside those that a comparison of all documents gives.

A pair is lost that is near at the end and was not published; invented that was never near while both versions existed;
doubled that was published more often than there are incarnations of its documents. The exceptions are those of
docs/guarantees.md, and each is counted.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from hashlib import blake2b
from typing import NamedTuple

from streamdedup.detection.captions import label_of
from streamdedup.detection.model import DetectorOptions, document_number
from streamdedup.index.documents import IndexEntry
from streamdedup.wire import Alert, Match, content_digest, decode_alert
from streamdedup.wire.dead_letters import read_headers
from tests.reference_pairs import expected_by_options
from tests.simulation.server import ServedIndex
from tests.simulation.simulation import LABEL_BYTES, Produced, Simulation
from tests.simulation.world import DEAD_LETTERS, DUPLICATES, source_of

#: Order of an event that never happens.
NEVER = 10**9


@dataclass
class State:
    """A document from one of its records to the next that changes it.

    Attributes:
        id, digest: As in alerts.
        version: Digest of the upserted text, which an append keeps.
        text: The whole text.
        incarnation: Number of deletions before.
        records: The records with this state: the first, and redeliveries.
        sources: The records of which the text consists.
        ended: The record that ended it; None for the last state.
    """

    id: str
    digest: str
    version: str
    text: str
    incarnation: int
    records: list[Produced]
    sources: list[Produced]
    ended: Produced | None = None

    @property
    def since(self) -> int:
        return min(record.order for record in self.records)

    @property
    def until(self) -> int:
        """Order of the commit of the record that ended the state."""
        return NEVER if self.ended is None else NEVER if self.ended.commit is None else self.ended.commit.order


class Side(NamedTuple):
    """A version of a document."""

    id: str
    version: str


Pair = tuple[Side, Side]


@dataclass
class Publication:
    """A pair that the subscriber saw.

    Attributes:
        document, match: Id and digest of the two.
        time_ms: Time of the detection.
        first: Whether each document was in its first incarnation, by id.
    """

    document: tuple[str, str]
    match: tuple[str, str]
    time_ms: int
    first: dict[str, bool] = field(default_factory=dict)


@cache
def near(a: str, b: str, options: DetectorOptions) -> bool:
    """Tell whether two texts are near-duplicates, whatever the window and the scope."""
    least = 0 if options.suppression is None else options.suppression.min_shingles
    if not all(text.strip() and len(shingles(text)) >= least for text in (a, b)):
        return False
    return bool(expected_by_options([("a", a), ("b", b)], options))


def shingles(text: str) -> set[tuple[str, ...]]:
    """Return the shingles of a text, pairs of words; of a shorter text the whole."""
    words = text.split()
    return set(itertools.pairwise(words)) or {tuple(words)}


def alike(a: str, b: str, options: DetectorOptions) -> bool:
    """Tell whether two texts are similar enough for a cluster, with or without a common band key."""
    sets = shingles(a), shingles(b)
    similarity = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
    contained = options.containment is not None and (sets[0] <= sets[1] or sets[1] <= sets[0])
    return contained or similarity >= options.threshold


def appended(before: bytes, digest: bytes) -> bytes:
    """Return the digest after an append."""
    return blake2b(before + digest, digest_size=16).digest()


def digest_of(texts: Sequence[str], scope: str | None) -> str:
    """Return the digest of an upserted text with its appends, as alerts name it in a scope."""
    return reduce(appended, map(content_digest, texts[1:]), content_digest(texts[0], scope)).hex()


def states_of(simulation: Simulation) -> tuple[dict[str, list[State]], list[Produced]]:
    """Return the states of each document, in order, and the appends to no document."""
    states: dict[str, list[State]] = {}
    unknown: list[Produced] = []
    deletions: Counter[str] = Counter()
    alive: dict[str, State] = {}
    for produced in simulation.produced:
        sent, before = produced.sent, alive.get(produced.sent.id)
        if produced.removed is not None and produced.commit is None:
            continue
        if sent.op == "delete":
            deletions[sent.id] += 1
            if before is not None:
                before.ended = alive.pop(sent.id) and produced
            continue
        digest = content_digest(sent.text)
        if sent.op == "append":
            if before is None:
                unknown.append(produced)
                continue
            digest = appended(bytes.fromhex(before.digest), digest)
            text, version = f"{before.text}\n{sent.text}", before.version
            sources = [*before.sources, produced]
        else:
            text, version, sources = sent.text or "", digest.hex(), [produced]
        if before is not None:
            if before.digest == digest.hex():
                before.records.append(produced)
                continue
            before.ended = produced
        state = State(sent.id, digest.hex(), version, text, deletions[sent.id], [produced], sources)
        states.setdefault(sent.id, []).append(state)
        alive[sent.id] = state
    return states, unknown


class Verdict:
    """What is wrong with a history that has settled."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._states, self._unknown = states_of(simulation)
        self._all = [state for states in self._states.values() for state in states]
        self._version_of = {
            (state.id, digest_of([record.sent.text or "" for record in state.sources], scope)): state.version
            for state in self._all
            for scope in (None, "all")
        }
        versions = sorted({p.commit.installation.version for p in simulation.produced if p.commit} | {1})
        self._options = [simulation.options(version) for version in versions]
        self._window_ms = None if simulation.setup.window_s is None else 1_000 * simulation.setup.window_s

    def wrong(self) -> list[str]:
        """Return the mistakes."""
        publications = list(self._publications())
        skipped = (p for p in self._simulation.produced if p.commit is None and p.removed is None)
        found = [*self._simulation.wrong, *(f"skipped {produced.sent.id}" for produced in skipped)]
        by_pair: dict[Pair, list[Publication]] = {}
        for publication in publications:
            if (pair := self._pair_of(publication)) is None:
                found.append(f"invented {publication.document[0]} {publication.match[0]}")
            else:
                by_pair.setdefault(pair, []).append(publication)
        coexisting = self._coexisting()
        for pair, of_pair in by_pair.items():
            names = " ".join(side.id for side in pair)
            if pair not in coexisting:
                found.append(f"invented {names}")
            elif self._is_doubled(pair, of_pair, coexisting[pair]):
                found.append(f"doubled {names}")
        found += [f"lost {' '.join(side.id for side in pair)}" for pair in self._promised(by_pair)]
        return found + self._misaddressed() + list(self._remains())

    def _publications(self) -> Iterator[Publication]:
        for record in self._simulation.broker.records(DUPLICATES):
            alert = decode_alert(record.value or b"")
            self._simulation.wrong += self._misdescribed(alert)
            for match in alert.matches:
                yield self._publication(alert, match)

    def _misdescribed(self, alert: Alert) -> Iterator[str]:
        """Yield the mistakes of an alert in labels and cluster: a cluster resembles its first document."""
        texts = {name: [state.text for state in states] for name, states in self._states.items()}
        document = alert.document
        for version in (document, *alert.matches):
            if version.label not in {label_of(text, LABEL_BYTES) for text in texts.get(version.id, ())}:
                yield f"mislabelled {version.id}"
        if alert.cluster_id != document.id and not any(
            alike(a, b, options)
            for a in texts.get(document.id, ())
            for b in texts.get(alert.cluster_id, ())
            for options in self._options
        ):
            yield f"misplaced {document.id} in the cluster of {alert.cluster_id}"
        earliest = {source_of(state.sources[0].sent.text) for state in self._states.get(alert.cluster_earliest_id, ())}
        # A document that was deleted since an earlier attempt at its record is in no set: its cluster has no sources.
        is_gone = any(state.ended and state.ended.sent.op == "delete" for state in self._states.get(document.id, ()))
        least = 0 if is_gone and alert.cluster_size == 1 else 1
        if alert.cluster_sources is None and (self._window_ms is not None or self._simulation.losses):
            self._simulation.excused["alerts of clusters whose documents expired or were lost meanwhile"] += 1
        elif not least <= (alert.cluster_sources or 0) <= min(alert.cluster_size or 0, 3):
            yield f"miscounted {alert.cluster_sources} sources of {alert.cluster_size} documents"
        if alert.cluster_earliest_source not in {*earliest, None}:
            yield f"missourced {alert.cluster_earliest_id}"

    def _publication(self, alert: Alert, match: Match) -> Publication:
        document = alert.document
        first = {document.id: not document.incarnation, match.id: not match.incarnation}
        # The record of the alert tells the incarnation of its document.
        numbers = {
            state.incarnation
            for state in self._states.get(document.id, ())
            if any((p.partition.partition, p.offset) == (document.partition, document.offset) for p in state.records)
        }
        if len(numbers) == 1:
            is_first = numbers == {0}
            if first[document.id] != is_first and not self._is_uncertain(document.id) and self._window_ms is None:
                self._simulation.excused["alerts that do not name the incarnation of their document"] += 1
            first[document.id] = is_first
        return Publication((document.id, document.digest), (match.id, match.digest), alert.detected_at_ms, first)

    def _pair_of(self, publication: Publication) -> Pair | None:
        try:
            sides = [Side(of[0], self._version_of[of]) for of in (publication.document, publication.match)]
        except KeyError:
            return None
        first, second = sorted(sides)
        return first, second

    def _coexisting(self) -> dict[Pair, set[tuple[int, int]]]:
        """Return the pairs of versions that were near at some time, with the incarnations for which they were."""
        found: dict[Pair, set[tuple[int, int]]] = {}
        for a, b in itertools.combinations(sorted(self._all, key=lambda state: (state.id, state.version)), 2):
            if a.id != b.id and a.since < self._until(b) and b.since < self._until(a) and self._may_match(a, b):
                pair = Side(a.id, a.version), Side(b.id, b.version)
                found.setdefault(pair, set()).add((a.incarnation, b.incarnation))
        return found

    def _until(self, state: State) -> int:
        """Return the end of a state: never, if index and topic have lost its successor in another partition."""
        last = state.ended
        if last is None or last.partition == state.records[-1].partition or not self._is_lost(last):
            return state.until
        self._simulation.excused["versions that return because the later one of another partition is gone"] += 1
        return NEVER

    def _may_match(self, a: State, b: State) -> bool:
        is_within = self._window_ms is None or min(_distances_ms(a, b)) <= self._window_ms
        return is_within and any(near(a.text, b.text, options) for options in self._options)

    # Promises

    def _promised(self, published: dict[Pair, list[Publication]]) -> Iterator[Pair]:
        """Yield the promised pairs that were not published."""
        last = [states[-1] for _, states in sorted(self._states.items()) if states[-1].ended is None]
        for a, b in itertools.combinations(last, 2):
            first, second = sorted((Side(a.id, a.version), Side(b.id, b.version)))
            if (
                self._must_match(a, b)
                and not any(
                    self._is_for(publication, a) and self._is_for(publication, b)
                    for publication in published.get((first, second), ())
                )
                and not self._is_beyond_cap(a, b, published)
            ):
                yield first, second

    def _must_match(self, a: State, b: State) -> bool:
        commits = [commit for state in (a, b) if (commit := state.records[0].commit) is not None]
        if len(commits) < 2:
            return False
        # For records that were committed before other parameters nothing is published under these.
        later = max(commits, key=lambda commit: commit.order)
        if not near(a.text, b.text, self._simulation.options(later.installation.version)):
            return False
        if self._window_ms is not None and max(_distances_ms(a, b)) > self._window_ms:
            return False
        if excuse := self._excuse(a) or self._excuse(b):
            self._simulation.excused[excuse] += 1
        return not excuse

    def _is_beyond_cap(self, a: State, b: State, published: Collection[Pair]) -> bool:
        """Tell whether a full bucket may hide the pair: copies of a text have each a pair with another copy."""
        if self._simulation.setup.bucket_cap is None:
            return False
        paired = {side for pair in published if pair[0].version == pair[1].version for side in pair}
        is_hidden = a.version != b.version or all(Side(each.id, each.version) in paired for each in (a, b))
        self._simulation.excused["pairs beyond the cap of a bucket"] += is_hidden
        return is_hidden

    def _excuse(self, state: State) -> str:
        """Return the exception by which a document need not be found; empty without one."""
        if any(self._is_lost(record) for record in state.sources):
            return "pairs of documents that the input topics do not have"
        if self._window_ms is not None and not self._is_prompt(state.id):
            return "pairs of documents committed later than the slack allows"
        return ""

    def _is_prompt(self, document: str) -> bool:
        """Tell whether all records of a document were committed within the slack, which is as long as the window."""
        records = (p for p in self._simulation.produced if p.sent.id == document)
        return all(p.commit is not None and p.commit.time_ms - p.time_ms <= (self._window_ms or 0) for p in records)

    def _is_lost(self, record: Produced) -> bool:
        """Tell whether a record may be missing in an index: it was removed before or soon after the index was lost."""
        if record.removed is None:
            return False
        settled = max((order for order in self._simulation.settled if order < record.removed), default=0)
        return any(loss > settled for loss in self._simulation.losses)

    def _is_uncertain(self, document: str) -> bool:
        """Tell whether an index need not know the incarnation of a document."""
        deletions = (p for p in self._simulation.produced if p.sent.id == document and p.sent.op == "delete")
        return self._window_ms is not None or any(map(self._is_lost, deletions))

    def _is_for(self, publication: Publication, state: State) -> bool:
        """Tell whether a publication may be about this incarnation of a document."""
        return publication.first[state.id] == (state.incarnation == 0) or self._is_uncertain(state.id)

    def _is_doubled(self, pair: Pair, published: list[Publication], incarnations: set[tuple[int, int]]) -> bool:
        """Tell whether a pair was published more often than for its incarnations, without an exception."""
        if any(self._is_uncertain(side.id) for side in pair):
            is_doubled = len(published) > len(incarnations)
        else:
            seen = Counter(tuple(each.first[side.id] for side in pair) for each in published)
            is_doubled = not seen <= Counter(tuple(number == 0 for number in numbers) for numbers in incarnations)
        if is_doubled and self._window_ms is not None:
            times = itertools.pairwise(sorted(each.time_ms for each in published))
            is_late = not all(self._is_prompt(side.id) for side in pair)
            if is_late or any(later - earlier > 2 * self._window_ms for earlier, later in times):
                self._simulation.excused["pairs published again after a lifetime, or committed late"] += 1
                return False
        return is_doubled

    # What else is left

    def _remains(self) -> Iterator[str]:
        """Yield what the index has of versions that are no more."""
        simulation = self._simulation
        if self._window_ms is not None:
            return
        data = simulation.server.index(simulation.installation.prefix)
        pipeline = simulation.pipeline("articles", data, simulation.installation)
        entries = {number: entry for number, (entry, _) in data._entries._entries.items()}
        moved = self._moved()
        keys = {}
        for number, entry in entries.items():
            if not entry.deleted:
                (keys[number],) = pipeline.detector._lifecycle._band_keys([entry.content]).tolist()
        for (band, key), (members, _) in data._buckets._entries.items():
            for number in members:
                is_left = number not in keys or keys[number][band] != key
                if is_left and number in moved:
                    simulation.excused["numbers left in buckets by documents in two partitions"] += 1
                elif is_left:
                    yield f"left {number} in a bucket"
        yield from self._miscounted(data, entries, moved)
        for position in data._pending_matches.all_keys():
            own = simulation.at_position.get((simulation.topic_number, position.topic_partition, position.offset))
            later = [
                p.commit.order
                for p in simulation.produced
                if p.partition == position.topic_partition
                and p.commit
                and p.commit.installation == simulation.installation
            ]
            # The next fence of the partition deletes them, before the next batch.
            if own is not None and own.commit is not None and max(later, default=0) > own.commit.order:
                yield f"left pending matches of {position}"

    def _miscounted(self, data: ServedIndex, entries: dict[int, IndexEntry], moved: set[int]) -> Iterator[str]:
        """Yield the documents that are not counted in their cluster, or counted in another or with another source."""
        counted = {
            (member.number, cluster): member.source
            for cluster in data._cluster_sets.all_keys()
            for member in data._cluster_set(cluster)._members
        }
        stored = {number: entry for number, entry in entries.items() if not entry.deleted and number not in moved}
        for number, entry in stored.items():
            if entry.cluster != number and (number, entry.cluster) not in counted:
                yield f"uncounted {entry.id}"
        for (number, cluster), source in counted.items():
            if number in moved:
                continue
            entry = stored.get(number)
            if entry is None and number == cluster and len(self._simulation.setup.daemons) > 1:
                self._simulation.excused["first documents deleted while another daemon let one join"] += 1
            elif entry is None or cluster not in (number, entry.cluster) or source != entry.content.source:
                yield f"miscounted {number} in a cluster"

    def _moved(self) -> set[int]:
        """Return the numbers of the documents with records in two partitions."""
        homes = Counter(name for name, _ in {(p.sent.id, p.partition) for p in self._simulation.produced})
        return {document_number("articles", name) for name, count in homes.items() if count > 1}

    def _misaddressed(self) -> list[str]:
        """Return the dead letters that are missing or too many: of appends to no document, each has one."""
        simulation = self._simulation
        letters = [read_headers(record.headers) for record in simulation.broker.records(DEAD_LETTERS)]
        sent = Counter((int(letter["partition"]), int(letter["offset"])) for letter in letters)
        expected = Counter((p.partition.partition, p.offset) for p in self._unknown if p.commit)
        if any(map(self._is_lost, simulation.produced)):
            simulation.excused["appends to documents that the input topics do not have"] += sent != expected
            return []
        return [f"dead-letter {at}" for at in ((sent - expected) + (expected - sent)).elements()]


def _distances_ms(a: State, b: State) -> list[int]:
    """Return how far the records of two states are apart in time."""
    return [abs(x.time_ms - y.time_ms) for x in a.records for y in b.records]
