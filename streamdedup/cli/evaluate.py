"""``streamdedup evaluate``: recall and precision of a profile on the documents of files."""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from streamdedup.cli.assembly import detector_options
from streamdedup.cli.collection import BATCH_DOCUMENTS, temporary_store
from streamdedup.cli.options import ComparisonOptions, RedisOption, chosen_profile, with_options
from streamdedup.cli.output import batches, output_to, steps
from streamdedup.cli.pairs_file import read_pairs
from streamdedup.cli.rendering.scores import Evaluation, as_lines, as_object
from streamdedup.detection.model import DetectorOptions
from streamdedup.errors import CorpusError
from streamdedup.evaluation.scores import Truth, score
from streamdedup.evaluation.trial import Trial, document_at
from streamdedup.evaluation.truth import ShingleSets, concatenated, gathered, join, shingle_sets
from streamdedup.index.contract import Index
from streamdedup.similarity.measures import MEASURES, Measure
from streamdedup.text.shingles import Shingler
from streamdedup.wire import Document


class GivenTruth(NamedTuple):
    """A truth, its origin in words, and the number of its pairs with a document that is in no file."""

    truth: Truth
    origin: str
    unknown_count: int = 0


#: Returns the truth for the shingles and the ids of all documents.
MakeTruth = Callable[[ShingleSets, list[str]], GivenTruth]


def evaluate_documents(
    documents: Iterable[Document], options: DetectorOptions, store: Index, make_truth: MakeTruth
) -> Evaluation:
    """Run documents through the detector, and score its findings.

    Args:
        documents: Made by ``document_at``, with different ids.
        options: Options of the detector.
        store: An empty index, open.
        make_truth: Called when all documents have been read.

    Raises:
        CorpusError: The documents or their truth cannot be read.
        StoreUnavailable: The server of the store does not answer.
    """
    trial, shingler = Trial(options, store), Shingler(options.shingles)
    ids: list[str] = []
    parts: list[ShingleSets] = []
    for batch in batches(documents, BATCH_DOCUMENTS):
        trial.add(batch)
        parts.append(shingle_sets(shingler, [document.text for document in batch]))
        ids += [document.id for document in batch]
    findings, sets = trial.findings(), concatenated(parts)
    started = time.perf_counter()
    given = make_truth(sets, ids)
    truth_seconds = time.perf_counter() - started
    return Evaluation(
        options=options,
        ids=ids,
        findings=findings,
        truth=given.origin,
        truth_seconds=truth_seconds,
        unknown_count=given.unknown_count,
        shingle_counts=sets.sizes,
        scores=score(given.truth, findings, options, sets, ids),
    )


def all_pairs(threshold: float, measure: Measure = MEASURES["set"]) -> MakeTruth:
    """Return a function that finds all pairs from a threshold on, with a progress bar on standard error."""

    def make(sets: ShingleSets, _ids: list[str]) -> GivenTruth:
        with steps("comparing all pairs", len(sets.sizes)) as progress:
            pairs = gathered(join(sets.hashes, sets.offsets, threshold, progress, measure))
        return GivenTruth(Truth(pairs, computed=True), "all pairs, by an exact join")

    return make


def _pairs_of(file: Path) -> MakeTruth:
    """Return a function that reads the true pairs from a file."""

    def make(_sets: ShingleSets, ids: list[str]) -> GivenTruth:
        judged = read_pairs(file, {document_id: number for number, document_id in enumerate(ids)})
        if judged.unknown_count and not len(judged.pairs.left):
            raise CorpusError(f"{file}: names none of the documents by their ids")
        what = "those with at least the threshold's similarity" if judged.has_similarities else "all of its pairs"
        return GivenTruth(Truth(judged.pairs, computed=False), f"{file}, {what}", judged.unknown_count)

    return make


def evaluate(
    options: ComparisonOptions,
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
    """Measure a profile on files: recall, precision, missed pairs and the reasons.

    All true pairs are found by an exact join, which knows no bucket, unless --truth names them.

    Example:  streamdedup evaluate articles.jsonl.gz --threshold 0.7
    """
    chosen = chosen_profile(options)
    collection = options.collection(chosen, "evaluate")
    documents = (document_at(at, entry.id, entry.text) for at, entry in enumerate(collection.first_versions()))
    make_truth = all_pairs(chosen.threshold, MEASURES[chosen.similarity]) if truth is None else _pairs_of(truth)
    with output_to(output) as target:
        with temporary_store(redis, chosen, chosen.bucket_cap) as store:
            result = evaluate_documents(documents, detector_options("evaluate", chosen), store, make_truth)
        lines = [json.dumps(as_object(result), ensure_ascii=False)] if as_json else as_lines(result)
        target.write("".join(f"{line}\n" for line in lines))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(with_options(evaluate))
