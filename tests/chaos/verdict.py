"""Did a run lose or double anything? Told from its topics alone: input, duplicates, dead letters.

A pair is two documents *in certain versions*, an id and the digest of a content each. Two sets bound what may be
alerted:

* a pair of the versions that are left at the end was valid ever since the later one came, and must be alerted once;
* a pair of any two versions that ever were may be alerted, once; anything else must not be.

While no document changes both are P, the pairs that a comparison of all documents finds.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from streamdedup.messages import content_digest, decode_alert
from tests.made_corpus import the_expected
from tests.servers import read_topic

#: A document in one version: its id and the digest of its content, as an alert writes it.
Version = tuple[str, str]
#: Two versions, sorted.
VersionPair = tuple[Version, Version]
#: Topic, partition, offset.
Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class History:
    """What the records of an input topic say.

    Attributes:
        texts: Text of every version that ever was.
        final: The version of each document that is left at the end.
        poison: Key and value of each record that can never be processed, by place.
    """

    texts: dict[Version, str]
    final: set[Version]
    poison: dict[Place, tuple[bytes | None, bytes | None]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with a run.

    Attributes:
        expected_count: How many pairs there had to be.
        poison_count: How many dead letters there had to be.
        lost: Pairs that had to be alerted and were not.
        doubled: Pairs alerted more than once, with repetitions.
        invented: Pairs alerted that never were.
        letters_lost: Places without their dead letter.
        letters_doubled: Places with more than one.
        letters_invented: Places of dead letters whose record was good, or came out changed.
    """

    expected_count: int
    poison_count: int
    lost: list[VersionPair] = field(default_factory=list)
    doubled: list[VersionPair] = field(default_factory=list)
    invented: list[VersionPair] = field(default_factory=list)
    letters_lost: list[Place] = field(default_factory=list)
    letters_doubled: list[Place] = field(default_factory=list)
    letters_invented: list[Place] = field(default_factory=list)

    @property
    def lost_count(self) -> int:
        """Everything that a subscriber misses."""
        return len(self.lost) + len(self.letters_lost)

    @property
    def doubled_count(self) -> int:
        """Everything that a subscriber sees too often."""
        return len(self.doubled) + len(self.letters_doubled)

    @property
    def invented_count(self) -> int:
        """Everything that a subscriber must not see."""
        return len(self.invented) + len(self.letters_invented)

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost_count or self.doubled_count or self.invented_count)

    def __str__(self) -> str:
        examples = self.lost[:3] + self.doubled[:3] + self.invented[:3]
        return (
            f"lost {self.lost_count}  doubled {self.doubled_count}  invented {self.invented_count}  "
            f"(pairs expected {self.expected_count}, dead letters expected {self.poison_count})"
            + "".join(f"\n    {pair}" for pair in examples)
            + "".join(f"\n    dead letter {p}" for p in (self.letters_lost + self.letters_doubled)[:3])
        )


def history(records: Iterable[Any]) -> History:
    """Read an input topic: partition by partition, in order of offsets; all records of an id stand in one partition."""
    texts: dict[Version, str] = {}
    last: dict[str, Version] = {}
    poison: dict[Place, tuple[bytes | None, bytes | None]] = {}
    for record in records:
        try:
            fields = json.loads(record.value)
            identity, text = fields["id"], fields["text"]
        except (ValueError, KeyError, TypeError):
            poison[record.topic, record.partition, record.offset] = (record.key, record.value)
            continue
        version = (identity, content_digest(text).hex())
        texts[version] = text
        last[identity] = version
    return History(texts, set(last.values()), poison)


def pairs_among(texts: dict[Version, str]) -> set[VersionPair]:
    """Compare all versions with each other; a document is no duplicate of itself."""
    versions = sorted(texts)
    found = the_expected([(str(at), texts[version]) for at, version in enumerate(versions)])
    pairs = {tuple(sorted((versions[int(a)], versions[int(b)]))) for a, b in found}
    return {(a, b) for a, b in pairs if a[0] != b[0]}


def alerted(records: Iterable[Any]) -> Counter[VersionPair]:
    """Count each pair in the records of a duplicates topic."""
    seen: Counter[VersionPair] = Counter()
    for record in records:
        alert = decode_alert(record.value).alert
        for match in alert.matches:
            seen[tuple(sorted(((alert.document_id, alert.digest), (match.id, match.digest))))] += 1
    return seen


def lettered(records: Iterable[Any]) -> Counter[tuple[Place, bytes | None, bytes | None]]:
    """Count each record in the records of a dead-letter topic, as it came out."""
    seen: Counter[tuple[Place, bytes | None, bytes | None]] = Counter()
    for record in records:
        headers = {name: value.decode() for name, value in record.headers if name.startswith("streamdedup.dlq.")}
        topic, partition, offset = (headers[f"streamdedup.dlq.{name}"] for name in ("topic", "partition", "offset"))
        seen[(topic, int(partition), int(offset)), record.key, record.value] += 1
    return seen


def judge(inputs: Iterable[Any], duplicates: Iterable[Any], letters: Iterable[Any]) -> Verdict:
    """Compare what came out with what went in.

    Args:
        inputs: Records of the input topic, partition by partition in order.
        duplicates: Records of the duplicates topic that a read_committed subscriber sees.
        letters: Records of the dead-letter topic that such a subscriber sees.
    """
    told = history(inputs)
    may = pairs_among(told.texts)
    must = {(a, b) for a, b in may if a in told.final and b in told.final}
    seen = alerted(duplicates)
    kept = lettered(letters)
    bad = {(place, *record) for place, record in told.poison.items()}
    return Verdict(
        expected_count=len(must),
        poison_count=len(bad),
        lost=sorted(must - seen.keys()),
        doubled=sorted((seen - Counter(seen.keys())).elements()),
        invented=sorted(seen.keys() - may),
        letters_lost=sorted(place for place, *_ in bad - kept.keys()),
        letters_doubled=sorted(place for place, *_ in (kept - Counter(kept.keys())).elements()),
        letters_invented=sorted(place for place, *_ in kept.keys() - bad),
    )


def judge_topics(bootstrap: str, topic: str, duplicates: str) -> Verdict:
    """Compare the topics of an installation that has come to the end of its input."""
    return judge(
        read_topic(bootstrap, topic),
        read_topic(bootstrap, duplicates),
        read_topic(bootstrap, f"{duplicates}.dlq"),
    )
