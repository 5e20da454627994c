"""``streamdedup evaluate``: a profile's recall and precision on files."""

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from streamdedup.cli.collection import BATCH_DOCUMENTS, empty_index, first_versions
from streamdedup.cli.options import ComparisonOptions, OutputOption, chosen_profile, with_options
from streamdedup.cli.output import batches, output_to, steps
from streamdedup.cli.pairs_file import read_pairs
from streamdedup.cli.rendering.evaluation_json import as_object
from streamdedup.cli.rendering.evaluation_lines import as_lines
from streamdedup.cli.rendering.terminal import fitted
from streamdedup.detection.model import DetectorOptions
from streamdedup.errors import CorpusError
from streamdedup.evaluation.join import join
from streamdedup.evaluation.misses import near_duplicates
from streamdedup.evaluation.pairs import Pairs, ShingleSets, concatenated, gathered, shingle_sets, similarities
from streamdedup.evaluation.scores import Evaluation, Truth, joined_from, score, without_suppressed
from streamdedup.evaluation.trial import Trial, document_at
from streamdedup.index.contract import Index
from streamdedup.indexes import detector_options
from streamdedup.text.shingles import Shingler
from streamdedup.wire import Document

#: Words of the output for the true pairs that count, if their file has similarities.
ABOVE_THRESHOLD: Final = "those with at least the threshold's similarity"


class _TruePairs(NamedTuple):
    """The pairs that should be found, before suppressed ones are left out.

    Attributes:
        origin: Where the pairs are from, in words.
        unknown_count: Pairs in the file with a document that was not read.
        ignores_threshold: Whether all pairs count, because the file has no similarities.
    """

    pairs: Pairs
    origin: str
    unknown_count: int = 0
    ignores_threshold: bool = False


def evaluate_documents(
    documents: Iterable[Document], options: DetectorOptions, store: Index, truth_file: Path | None = None
) -> Evaluation:
    """Run documents through the detector, and score its findings; also used by the benchmarks.

    Args:
        documents: Made by ``document_at``, with different ids.
        options: Detector options.
        store: An empty index, open.
        truth_file: File with the true pairs; None for all near-duplicates of ``options``, by an exact join.

    Raises:
        CorpusError: The documents or the true pairs cannot be read, or no true pair is of two of the documents.
    """
    trial, shingler = Trial(options, store), Shingler(options.shingles)
    ids: list[str] = []
    sources: list[str | None] = []
    parts = [shingle_sets(shingler, [])]  # without documents, one part is needed
    for batch in batches(documents, BATCH_DOCUMENTS):
        trial.add(batch)
        texts = [document.text for document in batch]
        parts.append(shingle_sets(shingler, texts, [document.scope for document in batch]))
        ids += [document.id for document in batch]
        sources += [document.source for document in batch]
    findings, sets = trial.findings(), concatenated(parts)
    started = time.perf_counter()
    truth = _joined_pairs(sets, options) if truth_file is None else _judged_pairs(truth_file, ids, sets, options)
    truth_seconds = time.perf_counter() - started
    alerted = without_suppressed(truth.pairs, options.suppression, sources, sets)
    scored_truth = Truth(alerted, computed=truth_file is None, ignores_threshold=truth.ignores_threshold)
    return Evaluation(
        options=options,
        ids=ids,
        run=trial.run,
        findings=findings,
        truth=truth.origin,
        truth_seconds=truth_seconds,
        unknown_count=truth.unknown_count,
        suppressed_count=len(truth.pairs.left) - len(alerted.left),
        shingle_counts=sets.sizes,
        scores=score(scored_truth, findings, options, sets, ids),
    )


def _joined_pairs(sets: ShingleSets, options: DetectorOptions) -> _TruePairs:
    """Return all near-duplicates of the options by an exact join, whose pairs the containment rule then filters."""
    with steps("comparing all pairs", len(sets.sizes)) as progress:
        joined = join(sets.hashes, sets.offsets, joined_from(options), progress, options.measure)
        pairs = gathered(block.within(sets.scopes) for block in joined)
    return _TruePairs(pairs.where(near_duplicates(pairs, options, sets)), "all pairs, by an exact join")


def _judged_pairs(path: Path, ids: Sequence[str], sets: ShingleSets, options: DetectorOptions) -> _TruePairs:
    """Return the pairs in a file; similarities that the file lacks are computed."""
    judged = read_pairs(path, {name: number for number, name in enumerate(ids)})
    if judged.unknown_count and not len(judged.pairs.left):
        raise CorpusError(f"{path}: names none of the documents by their ids")
    pairs = judged.pairs.within(sets.scopes)  # documents of two scopes are never compared
    if judged.has_similarities:
        return _TruePairs(pairs, f"{path}, {ABOVE_THRESHOLD}", judged.unknown_count)
    computed = similarities(sets, pairs.left, pairs.right, options.measure)
    pairs = pairs._replace(similarities=computed)
    return _TruePairs(pairs, f"{path}, all of its pairs", judged.unknown_count, ignores_threshold=True)


@with_options
def evaluate(
    options: ComparisonOptions,
    truth: Annotated[
        Path | None,
        typer.Option(
            metavar="PAIRS",
            readable=False,
            help="File of true pairs: id, id and optionally a similarity, separated by tabs; computed by default.",
        ),
    ] = None,
    output: OutputOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object.")] = False,
) -> None:
    """Measure a profile on files: recall, precision, missed pairs and the reasons.

    An exact join, without buckets, finds the true pairs, unless --truth has them; suppressed pairs are left out. Where
    the file of --truth has no similarities, all of its pairs count, and the output tells how many each threshold can
    find.

    Example:  streamdedup evaluate articles.jsonl.gz --threshold 0.7
    """
    profile = chosen_profile(options)
    entries = first_versions(options.entries(profile, "evaluate"))
    documents = (
        document_at(number, entry.id, entry.text, entry.source, entry.scope) for number, entry in enumerate(entries)
    )
    with output_to(output, (*options.inputs(profile), truth)) as target:
        result = evaluate_documents(documents, detector_options("evaluate", profile), empty_index(profile), truth)
        lines = "\n".join(as_lines(result))
        target.write((json.dumps(as_object(result), ensure_ascii=False) if as_json else fitted(lines, target)) + "\n")
