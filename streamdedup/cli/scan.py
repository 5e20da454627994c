"""``streamdedup scan``: all near-duplicate pairs of files, without any server."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, NamedTuple

import msgspec
import typer

from streamdedup.cli.assembly import detector_options
from streamdedup.cli.collection import BATCH_DOCUMENTS, Collection, temporary_store
from streamdedup.cli.options import (
    CorpusOptions,
    LimitSettings,
    MatchSettings,
    RedisOption,
    ShingleSettings,
    TextSettings,
    chosen_profile,
    with_options,
)
from streamdedup.cli.output import Output, output_to
from streamdedup.cli.progress import batches
from streamdedup.detection.detector import Detector
from streamdedup.detection.model import DetectionResult
from streamdedup.index.contract import BucketStore
from streamdedup.position import Partition, Position
from streamdedup.settings import Profile
from streamdedup.settings.units import counted
from streamdedup.wire import Document

#: The one partition that all documents of a scan stand in.
_PARTITION = Partition("scan", 0)


class Pair(NamedTuple):
    """A near-duplicate pair; the ids are sorted."""

    id1: str
    id2: str
    similarity: float
    method: str
    shared_bands: int


class Scan:
    """Finds the pairs of a stream of documents; of what it has read it keeps the index only.

    Args:
        profile: How to compare.
        store: An empty index, open.
        max_candidates: Most candidates to compare a document with; None for no limit.
    """

    def __init__(self, profile: Profile, store: BucketStore, *, max_candidates: int | None = None) -> None:
        capped = profile.model_copy(update={"max_candidates": max_candidates})
        self._store = store
        self._fence = store.fence(_PARTITION, 0, 0)
        self._detector = Detector(detector_options("scan", capped), store)
        self.documents_count = 0
        self.skipped: Counter[str] = Counter()

    def pairs(self, documents: Iterable[Document]) -> Iterator[Pair]:
        """Yield the pairs as they are found."""
        for batch in batches(documents, BATCH_DOCUMENTS):
            outcome = self._detector.index(self._detector.prepare(batch), {_PARTITION: self._fence})
            # Nothing is replayed here, so what was saved for a replay can go.
            self._store.finish({}, outcome.pending_positions, [self._fence])
            self.documents_count += len(batch)
            self.skipped.update(reason.value for _, reason in outcome.skipped)
            self.skipped.update(error.code for _, error in outcome.refused)
            yield from _pairs_of(outcome)


def _pairs_of(outcome: DetectionResult) -> Iterator[Pair]:
    for detection in outcome.detections:
        for match in detection.matches:
            id1, id2 = sorted((detection.document.id, match.id))
            yield Pair(id1, id2, match.similarity, match.method, match.shared_bands)


def _documents(collection: Collection) -> Iterator[Document]:
    for offset, entry in enumerate(collection.entries()):
        yield Document(entry.id, entry.text, Position(*_PARTITION, offset), 0)


def write_pairs(pairs: Iterable[Pair], output: Output, *, as_json: bool) -> None:
    """Write pairs sorted by their ids, one a line."""
    for pair in sorted(pairs):
        line = (
            msgspec.json.encode(pair._asdict()).decode()
            if as_json
            else f"{pair.id1}\t{pair.id2}\t{pair.similarity:.6f}"
        )
        output.write(line + "\n")


def scan(
    corpus: CorpusOptions,
    shingles: ShingleSettings,
    texts: TextSettings,
    limits: LimitSettings,
    matching: MatchSettings,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Where to write the pairs; standard output.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON lines instead of tab-separated values.")] = False,
    redis: RedisOption = None,
) -> None:
    """Find all near-duplicate pairs of files; needs no server.

    Writes a line for each pair, sorted: id, id, similarity, separated by tabs. A summary goes to standard error.

    Example:  streamdedup scan articles.jsonl.gz --threshold 0.7 --output pairs.tsv
    """
    chosen = chosen_profile(corpus, shingles, texts, limits, matching)
    capped = corpus.config is not None
    collection = corpus.collection(chosen, "scan")
    started = time.perf_counter()
    with output_to(output) as target, temporary_store(redis, chosen, chosen.bucket_cap if capped else None) as store:
        work = Scan(chosen, store, max_candidates=chosen.max_candidates if capped else None)
        pairs = list(work.pairs(_documents(collection)))
        write_pairs(pairs, target, as_json=as_json)
    _summarise(work, len(pairs), chosen, time.perf_counter() - started)


def _summarise(work: Scan, pairs_count: int, profile: Profile, seconds: float) -> None:
    skipped = ", ".join(f"{count:,} {reason}" for reason, count in sorted(work.skipped.items())) or "none"
    typer.echo(
        f"{counted(work.documents_count, 'document')}, skipped: {skipped}; {counted(pairs_count, 'pair')} with "
        f"similarity of at least {profile.threshold:g}; {profile.banding()}; {seconds:.1f} s",
        err=True,
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(with_options(scan))
