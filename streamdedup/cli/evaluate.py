"""``streamdedup evaluate``: recall and precision of a profile on the documents of files."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer

from streamdedup.cli.collection import BATCH_DOCUMENTS, first_versions, temporary_store
from streamdedup.cli.options import ComparisonOptions, OutputOption, RedisOption, chosen_profile, with_options
from streamdedup.cli.output import batches, output_to, steps
from streamdedup.cli.pairs_file import read_pairs
from streamdedup.cli.rendering.scores import Evaluation, as_lines, as_object
from streamdedup.detection.model import DetectorOptions
from streamdedup.errors import CorpusError
from streamdedup.evaluation.scores import Truth, near_duplicates, score, without_suppressed
from streamdedup.evaluation.trial import Trial, document_at
from streamdedup.evaluation.truth import ShingleSets, concatenated, gathered, join, shingle_sets, similarities
from streamdedup.index.contract import Index
from streamdedup.indexes import detector_options
from streamdedup.text.shingles import Shingler
from streamdedup.wire import Document

#: Pairs of a file with similarities that count, in words.
ABOVE_THRESHOLD: Final = "those with at least the threshold's similarity"


def evaluate_documents(
    documents: Iterable[Document], options: DetectorOptions, store: Index, truth_file: Path | None = None
) -> Evaluation:
    """Run documents through the detector, and score its findings.

    Args:
        documents: Made by ``document_at``, with different ids.
        options: Options of the detector.
        store: An empty index, open.
        truth_file: File with the true pairs; None for all near-duplicates of ``options``, by an exact join.

    Raises:
        CorpusError: The documents or the true pairs cannot be read, or these name none of the documents.
        StoreUnavailable: The server of the store does not answer.
    """
    trial, shingler = Trial(options, store), Shingler(options.shingles)
    ids: list[str] = []
    sources: list[str | None] = []
    parts: list[ShingleSets] = []
    for batch in batches(documents, BATCH_DOCUMENTS):
        trial.add(batch)
        parts.append(shingle_sets(shingler, [document.text for document in batch]))
        ids += [document.id for document in batch]
        sources += [document.source for document in batch]
    findings, sets = trial.findings(), concatenated(parts)
    started, unknown_count, is_whole = time.perf_counter(), 0, False
    if truth_file is None:
        with steps("comparing all pairs", len(ids)) as progress:
            pairs = gathered(join(sets.hashes, sets.offsets, options.least_similarity, progress, options.measure))
        pairs = pairs.where(near_duplicates(pairs, options, sets))
        origin = "all pairs, by an exact join"
    else:
        judged = read_pairs(truth_file, {name: at for at, name in enumerate(ids)})
        pairs, unknown_count = judged.pairs, judged.unknown_count
        if unknown_count and not len(pairs.left):
            raise CorpusError(f"{truth_file}: names none of the documents by their ids")
        is_whole = not judged.has_similarities
        if is_whole:
            computed = similarities(sets, pairs.left, pairs.right, options.measure)
            pairs = pairs._replace(similarities=computed)
        origin = f"{truth_file}, {'all of its pairs' if is_whole else ABOVE_THRESHOLD}"
    truth_seconds = time.perf_counter() - started
    alerted = without_suppressed(pairs, options.suppression, sources, sets)
    return Evaluation(
        options=options,
        ids=ids,
        findings=findings,
        truth=origin,
        truth_seconds=truth_seconds,
        unknown_count=unknown_count,
        suppressed_count=len(pairs.left) - len(alerted.left),
        shingle_counts=sets.sizes,
        scores=score(Truth(alerted, truth_file is None, is_whole), findings, options, sets, ids),
    )


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
    redis: RedisOption = None,
) -> None:
    """Measure a profile on files: recall, precision, missed pairs and the reasons.

    An exact join, without buckets, finds the true pairs, unless --truth has them; suppressed pairs are left out. Of
    pairs without a similarity all count; their similarity is computed, and the number of pairs that each threshold can
    find.

    Example:  streamdedup evaluate articles.jsonl.gz --threshold 0.7
    """
    chosen = chosen_profile(options)
    entries = first_versions(options.entries(chosen, "evaluate"))
    documents = (document_at(at, entry.id, entry.text, source=entry.source) for at, entry in enumerate(entries))
    with output_to(output, (*options.inputs(chosen), truth)) as target:
        with temporary_store(redis, chosen, chosen.bucket_cap) as store:
            result = evaluate_documents(documents, detector_options("evaluate", chosen), store, truth)
        lines = [json.dumps(as_object(result), ensure_ascii=False)] if as_json else as_lines(result)
        target.write("".join(f"{line}\n" for line in lines))
