"""``streamdedup scan``: near-duplicate pairs in files, by the daemon's detector over an index in memory."""

import time
from collections.abc import Iterable, Iterator
from typing import Annotated, NamedTuple, TextIO

import msgspec
import typer

from streamdedup.cli.collection import BATCH_DOCUMENTS, empty_index
from streamdedup.cli.options import ComparisonOptions, OutputOption, chosen_profile, with_options
from streamdedup.cli.output import output_to, tell
from streamdedup.counts import counted, listed_counts
from streamdedup.detection.chunks import CHUNK_CHARACTERS, split_documents
from streamdedup.evaluation.trial import DetectorRun, document_at
from streamdedup.indexes import detector_options
from streamdedup.settings import Profile
from streamdedup.wire import Document, Match


class Pair(NamedTuple):
    """A near-duplicate pair; the ids are sorted. ``contained`` is the smaller document: "id1", "id2" or "both"."""

    id1: str
    id2: str
    similarity: float
    method: str
    shared_bands: int
    containment: float
    containment_error: float
    contained: str
    reason: str


def find_pairs(run: DetectorRun, documents: Iterable[Document]) -> Iterator[Pair]:
    """Yield the pairs of documents as they are found; documents are not kept, apart from the index of ``run``.

    Each version of a document is compared with the documents before it, as in the daemon.
    """
    for batch in split_documents(documents, BATCH_DOCUMENTS, CHUNK_CHARACTERS):
        for detection in run.add(batch).detections:
            yield from (_pair(detection.document.id, match) for match in detection.matches)


def _pair(document_id: str, match: Match) -> Pair:
    id1, id2 = sorted((document_id, match.id))
    contained_id = {"document": document_id, "match": match.id}.get(match.contained or "both")
    # The fields about containment are optional in the type alone: matches of the detector have them.
    return Pair(
        id1=id1,
        id2=id2,
        similarity=match.similarity,
        method=match.method,
        shared_bands=match.shared_bands,
        containment=match.containment or 0.0,
        containment_error=match.containment_error or 0.0,
        contained="both" if contained_id is None else "id1" if contained_id == id1 else "id2",
        reason=match.reason or "similarity",
    )


def _write_pairs(pairs: Iterable[Pair], output: TextIO, *, as_json: bool, with_containment: bool) -> None:
    """Write pairs sorted by id, as JSON lines, or with tabs: id, id, similarity, perhaps containment and reason."""
    for pair in sorted(pairs):
        if as_json:
            output.write(msgspec.json.encode(pair._asdict()).decode() + "\n")
        else:
            more = f"\t{pair.containment:.6f}\t{pair.reason}" if with_containment else ""
            output.write(f"{pair.id1}\t{pair.id2}\t{pair.similarity:.6f}{more}\n")


@with_options
def scan(
    options: ComparisonOptions,
    output: OutputOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON lines instead of tab-separated values.")] = False,
) -> None:
    """Find near-duplicate pairs of files as the daemon does; needs no server.

    Bands and rows decide how probably a pair is found: `config check` prints it, and evaluate lists missed pairs.

    Writes a line for each pair, sorted: id, id, similarity, separated by tabs; with a containment threshold also
    containment and reason. A summary goes to standard error. The limits for storms are those of --config: where
    documents reach them, the summary says so; without it there are none.

    Example:  streamdedup scan articles.jsonl.gz -t 0.7 --output pairs.tsv
    """
    profile = chosen_profile(options)
    if options.config is None:
        # The limits for storms protect a daemon; a file is compared as a whole.
        profile = profile.model_copy(update={"bucket_cap": None, "max_candidates": None})
    entries = options.entries(profile, "scan")
    documents = (document_at(row, entry.id, entry.text, entry.source, entry.scope) for row, entry in enumerate(entries))
    started = time.perf_counter()
    with output_to(output, options.inputs(profile)) as target:
        detector = detector_options("scan", profile)
        index = empty_index(profile)
        run = DetectorRun(detector, index)
        pairs = list(find_pairs(run, documents))
        _write_pairs(pairs, target, as_json=as_json, with_containment=profile.containment_threshold is not None)
    suppressed = f", suppressed: {listed_counts(run.suppressed)}" if detector.suppression is not None else ""
    is_below = detector.threshold < detector.recall_from
    chosen_for = f", chosen for pairs from {detector.recall_from:g} on" if is_below else ""
    tell(
        f"{counted(run.documents_count, 'document')}, skipped: {listed_counts(run.skipped)}; "
        f"{counted(len(pairs), 'pair')} with similarity of at least {profile.threshold:g}"
        f"{_by_containment(profile, pairs)}{suppressed}; {profile.banding()}{chosen_for}; "
        f"{time.perf_counter() - started:.1f} s",
        err=True,
    )
    if versions_count := run.documents_count - index.count_documents():
        tell(f"new versions: {counted(versions_count, 'document')} whose id occurred before", err=True)
    if reached := run.limits.sentence():
        tell(reached, err=True)


def _by_containment(profile: Profile, pairs: Iterable[Pair]) -> str:
    rule = profile.containment_rule()
    if rule is None:
        return ""
    count = sum(pair.reason == "containment" for pair in pairs)
    return f" or containment of at least {rule.threshold:g} ({count:,} by containment)"
