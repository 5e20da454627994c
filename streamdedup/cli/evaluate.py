"""``streamdedup evaluate``: what a profile finds and misses among the documents of files."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

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
from streamdedup.cli.output import output_to
from streamdedup.cli.pairs_file import read_pairs
from streamdedup.cli.progress import batches, steps
from streamdedup.cli.quality import Evaluation, as_lines, as_object
from streamdedup.detection.model import DetectorOptions
from streamdedup.errors import CorpusError
from streamdedup.evaluation import SetCollector, ShingleSets, Trial, Truth, document_at, gathered, join, score
from streamdedup.index.contract import BucketStore
from streamdedup.similarity.measures import MEASURES, Measure
from streamdedup.wire import Document


class GivenTruth(NamedTuple):
    """The truth, where it is from, and how many of its pairs name a document that is not there."""

    truth: Truth
    origin: str
    unknown_count: int = 0


#: Makes the truth of the shingles of all documents and their ids.
MakeTruth = Callable[[ShingleSets, list[str]], GivenTruth]


def evaluate_documents(
    documents: Iterable[Document], options: DetectorOptions, store: BucketStore, make_truth: MakeTruth
) -> Evaluation:
    """Run documents through the detector, and score what it finds.

    Args:
        documents: Made by ``document_at``, each id once.
        options: How to compare them.
        store: An empty index, open.
        make_truth: Called when all documents have been read.

    Raises:
        CorpusError: The documents or their truth cannot be read.
        StoreUnavailable: The server of the store does not answer.
    """
    trial, collector = Trial(options, store), SetCollector(options.shingles)
    ids: list[str] = []
    for batch in batches(documents, BATCH_DOCUMENTS):
        trial.add(batch)
        collector.add([document.text for document in batch])
        ids += [document.id for document in batch]
    findings, sets = trial.findings(), collector.sets()
    started = time.perf_counter()
    given = make_truth(sets, ids)
    truth_seconds = time.perf_counter() - started
    return Evaluation(
        options=options,
        ids=ids,
        skipped=dict(findings.skipped_counts),
        seconds=findings.seconds,
        truth=given.origin,
        truth_seconds=truth_seconds,
        unknown_count=given.unknown_count,
        shingle_counts=sets.sizes,
        found=findings.pairs,
        scores=score(given.truth, findings, options, sets, ids),
    )


def all_pairs(threshold: float, measure: Measure = MEASURES["set"]) -> MakeTruth:
    """Return what finds all pairs from a threshold on, with a bar on standard error."""

    def make(sets: ShingleSets, _ids: list[str]) -> GivenTruth:
        with steps("comparing all pairs", len(sets.sizes)) as progress:
            pairs = gathered(join(sets.hashes, sets.offsets, threshold, progress, measure))
        return GivenTruth(Truth(pairs, computed=True), "all pairs, by an exact join")

    return make


def _pairs_of(file: Path) -> MakeTruth:
    """Return what reads the true pairs from a file."""

    def make(_sets: ShingleSets, ids: list[str]) -> GivenTruth:
        judged = read_pairs(file, {document_id: place for place, document_id in enumerate(ids)})
        if judged.unknown_count and not len(judged.pairs.left):
            raise CorpusError(f"{file}: names none of the documents by their ids")
        what = "those with at least the threshold's similarity" if judged.has_similarities else "all of its pairs"
        return GivenTruth(Truth(judged.pairs, computed=False), f"{file}, {what}", judged.unknown_count)

    return make


def _documents(collection: Collection) -> Iterator[Document]:
    for place, entry in enumerate(collection.first_versions()):
        yield document_at(place, entry.id, entry.text)


def evaluate(  # noqa: PLR0913  a command line has as many options as it has
    corpus: CorpusOptions,
    shingles: ShingleSettings,
    texts: TextSettings,
    limits: LimitSettings,
    matching: MatchSettings,
    truth: Annotated[
        Path | None,
        typer.Option(
            metavar="PAIRS",
            help="The true pairs: id, id and perhaps a similarity, with tabs between; else they are computed.",
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Where to write the scores; standard output.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object.")] = False,
    redis: RedisOption = None,
) -> None:
    """Measure what a profile finds in files: recall, precision, what was missed and why.

    All true pairs are found by an exact join, which knows no bucket, unless --truth names them.

    Example:  streamdedup evaluate articles.jsonl.gz --threshold 0.7
    """
    chosen = chosen_profile(corpus, shingles, texts, limits, matching)
    collection = corpus.collection(chosen, "evaluate")
    with output_to(output) as target:
        with temporary_store(redis, chosen, chosen.bucket_cap) as store:
            make_truth = all_pairs(chosen.threshold, MEASURES[chosen.similarity]) if truth is None else _pairs_of(truth)
            result = evaluate_documents(_documents(collection), detector_options("evaluate", chosen), store, make_truth)
        lines = [json.dumps(as_object(result), ensure_ascii=False)] if as_json else as_lines(result)
        target.write("".join(f"{line}\n" for line in lines))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(with_options(evaluate))
