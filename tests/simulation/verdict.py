"""The verdict: the pairs that a subscriber saw, beside those that a comparison of all documents gives.

A pair is lost that is near at the end and was not published; invented that was never near while both versions existed;
doubled that was published more often than there are incarnations of its documents. The exceptions are those of
docs/guarantees.md, and each is counted.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from hashlib import blake2b
from typing import NamedTuple

from streamdedup.detection.captions import label_of
from streamdedup.detection.model import DetectorOptions, document_number
from streamdedup.index.documents import IndexEntry
from streamdedup.wire import Alert, Match, content_digest, decode_alert
from streamdedup.wire.alerts import DocumentVersion
from streamdedup.wire.dead_letters import read_headers
from tests.reference_pairs import expected_pairs
from tests.simulation.faults import play
from tests.simulation.server import ServedIndex
from tests.simulation.simulation import LABEL_BYTES, Produced, Simulation
from tests.simulation.story import Story
from tests.simulation.world import DEAD_LETTERS, DUPLICATES, scope_of, source_of

#: Order of an event that never happens.
NEVER = 10**9
#: Exception of pairs whose publications name other incarnations of their documents.
FORGOTTEN = "publications for another incarnation, where an index need not know a deletion"


def judged(story: Story) -> tuple[list[str], Simulation]:
    """Play a story; return its mistakes and the world at its end."""
    simulation = Simulation(story.setup)
    try:
        play(simulation, story.steps)
        return Verdict(simulation).wrong(), simulation
    finally:
        simulation.close()


def kinds(story: Story) -> set[str]:
    """Return the kinds of the mistakes of a story, such as ``lost``."""
    return {mistake.split()[0] for mistake in judged(story)[0]}


@dataclass
class State:
    """A document from one of its records to the next that changes it.

    Attributes:
        sources: The records of which the text consists: one that replaced the document, and appends.
        records: The records with this state: the last source, and redeliveries.
        incarnation: Number of deletions before.
        ended: The record that ended it; None for the last state.
    """

    sources: list[Produced]
    records: list[Produced]
    incarnation: int
    ended: Produced | None = None

    @property
    def id(self) -> str:
        return self.sources[0].sent.id

    @cached_property
    def texts(self) -> list[str]:
        return [record.sent.text or "" for record in self.sources]

    @cached_property
    def text(self) -> str:
        return "\n".join(self.texts)

    @property
    def side(self) -> "Side":
        return Side(self.id, self.texts[0])

    @property
    def since(self) -> int:
        return min(record.order for record in self.records)

    @property
    def until(self) -> int:
        """Order of the commit of the record that ended the state."""
        return NEVER if self.ended is None or self.ended.commit is None else self.ended.commit.order


class Side(NamedTuple):
    """A version of a document; appends make no other version."""

    id: str
    replacing_text: str


Pair = tuple[Side, Side]


class Publication(NamedTuple):
    """What the subscriber saw of a pair: its time, and by id whether each document was in its first incarnation."""

    time_ms: int
    first: dict[str, bool]


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


def digest_of(texts: Sequence[str], scope: str | None) -> str:
    """Return the digest of a text with its appends, as alerts name it in a scope."""

    def appended(before: bytes, digest: bytes) -> bytes:
        return blake2b(before + digest, digest_size=16).digest()

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
        if before is None and sent.op == "append":
            unknown.append(produced)
            continue
        if before is not None:
            if sent.op == "upsert" and before.texts == [sent.text]:
                before.records.append(produced)
                continue
            before.ended = produced
        alive.pop(sent.id, None)
        if sent.op == "delete":
            deletions[sent.id] += 1
            continue
        sources = [produced] if before is None or sent.op == "upsert" else [*before.sources, produced]
        alive[sent.id] = State(sources, [produced], deletions[sent.id])
        states.setdefault(sent.id, []).append(alive[sent.id])
    return states, unknown


class Verdict:
    """What is wrong with a history that has settled."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._excused = simulation.excused
        self._states, self._unknown = states_of(simulation)
        self._all = [state for states in self._states.values() for state in states]
        self._side_of = {
            (state.id, digest_of(state.texts, scope)): state.side
            for state in self._all
            for scope in (None, "all", scope_of(*state.side))
        }
        versions = {p.commit.installation.version for p in simulation.produced if p.commit} | {1}
        self._options = {version: simulation.options(version) for version in versions}
        texts = sorted({state.text for state in self._all})
        self._near = {
            version: expected_pairs([(text, text) for text in texts], options)
            for version, options in self._options.items()
        }
        self._window_ms = simulation.window_ms

    def wrong(self) -> list[str]:
        skipped = (p for p in self._simulation.produced if p.commit is None and p.removed is None)
        found = [*self._simulation.wrong, *(f"skipped {produced.sent.id}" for produced in skipped)]
        coexisting, published = self._coexisting(), {}
        for record in self._simulation.broker.records(DUPLICATES):
            alert = decode_alert(record.value or b"")
            found += self._misdescribed(alert)
            for match in alert.matches:
                sides = [self._side_of.get((document.id, document.digest)) for document in (alert.document, match)]
                pair = None if None in sides else tuple(sorted(sides))
                if pair in coexisting:
                    published.setdefault(pair, []).append(self._publication(alert, match))
                elif None not in sides or not all(
                    self._continues_returned(document)
                    for document, side in zip((alert.document, match), sides, strict=True)
                    if side is None
                ):
                    found.append(f"invented {alert.document.id} {match.id}")
        doubled = (pair for pair, of_pair in published.items() if self._is_doubled(pair, of_pair, coexisting[pair]))
        for kind, pairs in ("doubled", doubled), ("lost", self._promised(published)):
            found += [f"{kind} {' '.join(side.id for side in pair)}" for pair in pairs]
        return [*found, *self._misaddressed(), *self._remains()]

    def _misdescribed(self, alert: Alert) -> Iterator[str]:
        """Yield the mistakes of an alert in labels and cluster: a cluster resembles its first document."""
        document = alert.document
        # A document that was deleted since an earlier attempt at its record is in no set, so its cluster has no
        # sources.
        is_gone = any(state.ended and state.ended.sent.op == "delete" for state in self._states.get(document.id, ()))
        for version in (document, *alert.matches):
            labels = {label_of(text, LABEL_BYTES) for text in self._texts(version.id)}
            is_unlabelled = version is document and version.label == "" and self._is_superseded_append(document)
            if version.label not in labels and not is_unlabelled:
                yield f"mislabelled {version.id}"
        if alert.cluster_id != document.id and not any(
            self._is_in_scope(a, b) and alike(a.text, b.text, options)
            for a in self._states.get(document.id, ())
            for b in self._states.get(alert.cluster_id, ())
            for options in self._options.values()
        ):
            yield f"misplaced {document.id} in the cluster of {alert.cluster_id}"
        earliest = {source_of(state.texts[0]) for state in self._states.get(alert.cluster_earliest_id, ())}
        least = 0 if is_gone and alert.cluster_size == 1 else 1
        if alert.cluster_sources is None and (self._window_ms is not None or self._simulation.losses):
            self._excused["alerts of clusters whose documents expired or were lost meanwhile"] += 1
        elif not least <= (alert.cluster_sources or 0) <= min(alert.cluster_size or 0, 3):
            yield f"miscounted {alert.cluster_sources} sources of {alert.cluster_size} documents"
        if alert.cluster_earliest_source not in {*earliest, None}:
            yield f"missourced {alert.cluster_earliest_id}"

    def _is_superseded_append(self, document: DocumentVersion) -> bool:
        """Tell whether a document was alerted by an append, and a later record changed it: then no label is known."""
        return any(
            state.ended is not None
            and (record := state.sources[-1]).sent.op == "append"
            and (record.partition.partition, record.offset) == (document.partition, document.offset)
            for state in self._states.get(document.id, ())
        )

    def _texts(self, document: str | None) -> list[str]:
        return [state.text for state in self._states.get(document or "", ())]

    def _publication(self, alert: Alert, match: Match) -> Publication:
        document = alert.document
        first = {document.id: not document.incarnation, match.id: not match.incarnation}
        # Record and text of the alert tell the incarnation of its document. Records of a topic and of the one that was
        # created in its place may have the same offset; their times differ.
        side = self._side_of.get((document.id, document.digest))
        records = [
            (state.incarnation, record.time_ms)
            for state in self._states.get(document.id, ())
            if state.side == side
            for record in state.records
            if (record.partition.partition, record.offset) == (document.partition, document.offset)
        ]
        numbers = {number for number, time_ms in records if time_ms == document.time_ms} or {n for n, _ in records}
        if len(numbers) == 1 and not self._is_uncertain(document.id):
            is_first = numbers == {0}
            self._excused["alerts that do not name the incarnation of their document"] += first[document.id] != is_first
            first[document.id] = is_first
        return Publication(alert.detected_at_ms, first)

    def _coexisting(self) -> dict[Pair, set[tuple[int, int]]]:
        """Return the pairs of versions that were near at some time, with the incarnations for which they were."""
        found: dict[Pair, set[tuple[int, int]]] = {}
        for a, b in itertools.combinations(sorted(self._all, key=lambda state: state.side), 2):
            if a.id != b.id and a.since < self._until(b) and b.since < self._until(a) and self._may_match(a, b):
                found.setdefault((a.side, b.side), set()).add((a.incarnation, b.incarnation))
        return found

    def _until(self, state: State) -> int:
        """Return the end of a state: never, if the state returns."""
        if not self._returns(state):
            return state.until
        self._excused["versions that return because the later one of another partition is gone"] += 1
        return NEVER

    def _returns(self, state: State) -> bool:
        """Tell whether index and topic have lost the successor of a state, in another partition."""
        last = state.ended
        return last is not None and last.partition != state.records[-1].partition and self._is_lost(last)

    def _continues_returned(self, document: DocumentVersion) -> bool:
        """Tell whether a text is that of a version that returned, with later appends."""
        sent = (produced.sent for produced in self._simulation.produced)
        appends = [each.text or "" for each in sent if (each.id, each.op) == (document.id, "append")]
        is_excused = any(
            document.digest == digest_of([*state.texts, *appends[first:last]], scope)
            for state in self._states.get(document.id, ())
            if self._returns(state)
            for first, last in itertools.combinations(range(len(appends) + 1), 2)
            for scope in (None, "all", scope_of(*state.side))
        )
        self._excused["appends to versions that return"] += is_excused
        return is_excused

    def _may_match(self, a: State, b: State) -> bool:
        is_within = self._window_ms is None or min(_distances_ms(a, b)) <= self._window_ms
        return is_within and any(self._is_near(a, b, version) for version in self._options)

    def _is_near(self, a: State, b: State, version: int) -> bool:
        """Tell whether two texts are near-duplicates in one scope, without regard to the window."""
        if not self._is_in_scope(a, b):
            return False
        least = max(self._simulation.setup.min_shingles, 1)
        if not all(text.strip() and len(shingles(text)) >= least for text in (a.text, b.text)):
            return False
        first, second = sorted((a.text, b.text))
        return first == second or (first, second) in self._near[version]

    def _is_in_scope(self, a: State, b: State) -> bool:
        return not self._simulation.setup.scopes or scope_of(*a.side) == scope_of(*b.side)

    # Promises

    def _promised(self, published: dict[Pair, list[Publication]]) -> Iterator[Pair]:
        """Yield the promised pairs that were not published."""
        last = [states[-1] for _, states in sorted(self._states.items()) if states[-1].ended is None]
        for a, b in itertools.combinations(last, 2):
            pair = a.side, b.side
            if (
                self._must_match(a, b)
                and not self._is_published(a, b, published.get(pair, ()))
                and not self._is_beyond_cap(a, b, published)
            ):
                yield pair

    def _must_match(self, a: State, b: State) -> bool:
        commits = [commit for state in (a, b) if (commit := state.records[0].commit) is not None]
        if len(commits) < 2:
            return False
        # For records that were committed before other parameters nothing is published under these.
        later = max(commits, key=lambda commit: commit.order)
        if not self._is_near(a, b, later.installation.version):
            return False
        if self._window_ms is not None and max(_distances_ms(a, b)) > self._window_ms:
            return False
        if excuse := self._excuse(a) or self._excuse(b):
            self._excused[excuse] += 1
        return not excuse

    def _is_beyond_cap(self, a: State, b: State, published: Collection[Pair]) -> bool:
        """Tell whether a full bucket may hide the pair: copies of a text have each a pair with another copy.

        Unless members have left the bucket: it then lacks the copies that came while it was full.
        """
        if self._simulation.setup.bucket_cap is None:
            return False
        paired = {side for of in published if of[0].replacing_text == of[1].replacing_text for side in of}
        has_left = (state for state in self._all if state.ended is not None)
        is_hidden = a.side.replacing_text != b.side.replacing_text or paired >= {a.side, b.side}
        is_hidden = is_hidden or any(self._may_match(state, a) for state in has_left)
        self._excused["pairs beyond the cap of a bucket"] += is_hidden
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

    def _is_published(self, a: State, b: State, published: Sequence[Publication]) -> bool:
        """Tell whether a pair was published for these incarnations, or for others that an index need not know."""
        others = [
            {state.id for state in (a, b) if each.first[state.id] != (state.incarnation == 0)} for each in published
        ]
        if set() in others:
            return True
        is_excused = any(all(map(self._is_uncertain, of)) for of in others)
        self._excused[FORGOTTEN] += is_excused
        return is_excused

    def _is_doubled(self, pair: Pair, published: list[Publication], incarnations: set[tuple[int, int]]) -> bool:
        """Tell whether a pair was published more often than for its incarnations, without an exception."""
        seen = Counter(tuple(each.first[side.id] for side in pair) for each in published)
        is_doubled = not seen <= Counter(tuple(number == 0 for number in numbers) for numbers in incarnations)
        if is_doubled and any(self._is_uncertain(side.id) for side in pair):
            is_doubled = len(published) > max(len(incarnations), len(seen))
            self._excused[FORGOTTEN] += not is_doubled
        if is_doubled and self._window_ms is not None:
            times = itertools.pairwise(sorted(each.time_ms for each in published))
            is_late = not all(self._is_prompt(side.id) for side in pair)
            if is_late or any(later - earlier > 2 * self._window_ms for earlier, later in times):
                self._excused["pairs published again after a lifetime, or committed late"] += 1
                return False
        return is_doubled

    # What else is left

    def _remains(self) -> Iterator[str]:
        """Yield what the index has of versions that are no more."""
        simulation = self._simulation
        if self._window_ms is not None:
            return
        data = simulation.server.index(simulation.installation.prefix)
        homes = Counter(name for name, _ in {(p.sent.id, p.partition) for p in simulation.produced})
        moved = {document_number("articles", name) for name, count in homes.items() if count > 1}
        stored = {number: entry for number, (entry, _) in data._entries._entries.items() if not entry.deleted}
        band_keys = simulation.pipeline("articles", data).detector._preparer.band_keys
        keys = {number: band_keys([entry.content])[0].tolist() for number, entry in stored.items()}
        for (band, key), (members, _) in data._buckets._entries.items():
            for number in members:
                is_left = number not in keys or keys[number][band] != key
                if is_left and number in moved:
                    self._excused["numbers left in buckets by documents in two partitions"] += 1
                elif is_left:
                    yield f"left {number} in a bucket"
        yield from self._miscounted(data, {number: stored[number] for number in stored.keys() - moved}, moved)
        for position in data._pending_matches.all_keys():
            partition = position.topic_partition
            own = simulation.at_position.get((simulation.topic_number, partition, position.offset))
            records = (p for p in simulation.produced if p.partition == partition and p.commit)
            orders = (p.commit.order for p in records if p.commit.installation == simulation.installation)
            # The next fence of the partition deletes them, before the next batch.
            if own is not None and own.commit is not None and max(orders, default=0) > own.commit.order:
                # A replay of committed records saves which documents it does not find; the fact expires.
                is_replayed = any(loss > own.commit.order for loss in simulation.losses)
                self._excused["pending matches saved by a replay"] += is_replayed
                if not is_replayed:
                    yield f"left pending matches of {position}"

    def _miscounted(self, data: ServedIndex, stored: dict[int, IndexEntry], moved: set[int]) -> Iterator[str]:
        """Yield the documents that are not counted in their cluster, or counted in another or with another source."""
        counted = {
            (member.number, cluster): member.source
            for cluster in data._cluster_sets.all_keys()
            for member in data._cluster_set(cluster)._members
            if member.number not in moved
        }
        for number, entry in stored.items():
            if entry.cluster != number and (number, entry.cluster) not in counted:
                yield f"uncounted {entry.id}"
        for (number, cluster), source in counted.items():
            entry = stored.get(number)
            is_first = number == cluster and (entry is None or source != entry.content.source)
            if is_first and len(self._simulation.setup.daemons) > 1:
                self._excused["first documents deleted or replaced while another daemon let one join"] += 1
            elif entry is None or cluster not in (number, entry.cluster) or source != entry.content.source:
                yield f"miscounted {number} in a cluster"

    def _misaddressed(self) -> list[str]:
        """Return the dead letters that are missing or too many: of appends to no document, each has one."""
        simulation = self._simulation
        letters = [read_headers(record.headers) for record in simulation.broker.records(DEAD_LETTERS)]
        sent = Counter((int(letter["partition"]), int(letter["offset"])) for letter in letters)
        expected = Counter((p.partition.partition, p.offset) for p in self._unknown if p.commit)
        if any(map(self._is_lost, simulation.produced)):
            self._excused["appends to documents that the input topics do not have"] += sent != expected
            return []
        return [f"dead-letter {at}" for at in ((sent - expected) + (expected - sent)).elements()]


def _distances_ms(a: State, b: State) -> list[int]:
    """Return how far the records of two states are apart in time."""
    return [abs(x.time_ms - y.time_ms) for x in a.records for y in b.records]
