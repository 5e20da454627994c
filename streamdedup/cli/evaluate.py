"""``streamdedup evaluate``: a profile's recall and precision on files."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

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
from streamdedup.evaluation.pairs import concatenated, gathered, shingle_sets, similarities
from streamdedup.evaluation.scores import Evaluation, Truth, score, without_suppressed
from streamdedup.evaluation.trial import Trial, document_at
from streamdedup.index.contract import Index
from streamdedup.indexes import detector_options
from streamdedup.text.shingles import Shingler
from streamdedup.wire import Document

#: The pairs that count of a file with similarities, for the output.
ABOVE_THRESHOLD: Final = "those with at least the threshold's similarity"


def evaluate_documents(
    documents: Iterable[Document], options: DetectorOptions, store: Index, truth_file: Path | None = None
) -> Evaluation:
    """Run documents through the detector, and score its findings.

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
    parts = [shingle_sets(shingler, [])]
    for batch in batches(documents, BATCH_DOCUMENTS):
        trial.add(batch)
        texts, scopes = zip(*((document.text, document.scope) for document in batch), strict=True)
        parts.append(shingle_sets(shingler, texts, scopes))
        ids += [document.id for document in batch]
        sources += [document.source for document in batch]
    findings, sets = trial.findings(), concatenated(parts)
    started, unknown_count, ignores_threshold = time.perf_counter(), 0, False
    if truth_file is None:
        with steps("comparing all pairs", len(ids)) as progress:
            joined = join(sets.hashes, sets.offsets, options.least_similarity, progress, options.measure)
            pairs = gathered(block.within(sets.scopes) for block in joined)
        pairs = pairs.where(near_duplicates(pairs, options, sets))
        origin = "all pairs, by an exact join"
    else:
        judged = read_pairs(truth_file, {name: number for number, name in enumerate(ids)})
        pairs, unknown_count = judged.pairs.within(sets.scopes), judged.unknown_count
        if unknown_count and not len(judged.pairs.left):
            raise CorpusError(f"{truth_file}: names none of the documents by their ids")
        ignores_threshold = not judged.has_similarities
        if ignores_threshold:
            computed = similarities(sets, pairs.left, pairs.right, options.measure)
            pairs = pairs._replace(similarities=computed)
        origin = f"{truth_file}, {'all of its pairs' if ignores_threshold else ABOVE_THRESHOLD}"
    truth_seconds = time.perf_counter() - started
    alerted = without_suppressed(pairs, options.suppression, sources, sets)
    return Evaluation(
        options=options,
        ids=ids,
        run=trial.run,
        findings=findings,
        truth=origin,
        truth_seconds=truth_seconds,
        unknown_count=unknown_count,
        suppressed_count=len(pairs.left) - len(alerted.left),
        shingle_counts=sets.sizes,
        scores=score(Truth(alerted, truth_file is None, ignores_threshold), findings, options, sets, ids),
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
