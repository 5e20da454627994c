"""``streamdedup evaluate``: a profile's recall and precision on files.

Finds pairs with the detector, and computes or reads the true pairs; ``streamdedup.evaluation`` compares the two.
``benchmarks/quality.py`` also calls ``evaluate_documents``.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from streamdedup.cli.collection import batches, empty_index, first_of_each_id
from streamdedup.cli.options import ComparisonOptions, OutputOption, chosen_profile, with_options
from streamdedup.cli.output import output_to, showing_share
from streamdedup.cli.rendering.evaluation import as_lines, as_object
from streamdedup.cli.rendering.terminal import fitted
from streamdedup.corpora.sources import ByteStream, Lines, open_file, unzipped
from streamdedup.detection.model import DetectorOptions
from streamdedup.errors import CorpusError
from streamdedup.evaluation.join import join
from streamdedup.evaluation.misses import near_duplicates
from streamdedup.evaluation.pairs import Pairs, ShingleSets, shingle_sets, similarities
from streamdedup.evaluation.scores import Evaluation, least_joined_similarity, score, without_suppressed
from streamdedup.evaluation.trial import Trial, document_at
from streamdedup.index.contract import Index
from streamdedup.indexes import detector_options
from streamdedup.text.shingles import Shingler
from streamdedup.wire import Document


def evaluate_documents(
    documents: Iterable[Document], options: DetectorOptions, index: Index, truth_file: Path | None = None
) -> Evaluation:
    """Insert documents of ``document_at``, in the order of their rows, into an empty open index; score the pairs."""
    trial, shingler = Trial(options, index), Shingler(options.shingles)
    ids: list[str] = []
    sources: list[str | None] = []
    parts = [shingle_sets(shingler, [])]  # `concatenated` needs a part
    for batch in batches(documents):
        trial.add(batch)
        texts = [document.text for document in batch]
        parts.append(shingle_sets(shingler, texts, [document.scope for document in batch]))
        ids += [document.id for document in batch]
        sources += [document.source for document in batch]
    found, sets = trial.found_pairs(), ShingleSets.concatenated(parts)
    started = time.perf_counter()
    if truth_file is None:
        pairs, unknown_pairs_count = _joined_pairs(sets, options), 0
    else:
        pairs, unknown_pairs_count = _pairs_of_file(truth_file, ids, sets, options)
    truth_seconds = time.perf_counter() - started
    expected = without_suppressed(pairs, options.suppression, sources, sets)
    return Evaluation(
        options=options,
        ids=ids,
        run=trial.detector_run,
        found_pairs=found,
        truth_file=truth_file,
        truth_seconds=truth_seconds,
        unknown_pairs_count=unknown_pairs_count,
        suppressed_count=len(pairs.left) - len(expected.left),
        scores=score(expected, found, options, sets, ids, is_computed=truth_file is None),
    )


def _joined_pairs(sets: ShingleSets, options: DetectorOptions) -> Pairs:
    """Return the near-duplicates among the pairs from ``least_joined_similarity`` on, by either threshold."""
    with showing_share("comparing all pairs", len(sets.sizes)) as progress:
        joined = join(sets.hashes, sets.offsets, least_joined_similarity(options), progress, options.measure)
        pairs = Pairs.concatenated(block.within(sets.scopes) for block in joined)
    return pairs.where(near_duplicates(pairs, options, sets))


def _pairs_of_file(path: Path, ids: Sequence[str], sets: ShingleSets, options: DetectorOptions) -> tuple[Pairs, int]:
    """Return the pairs in a file with their exact similarities, and the count of its lines with an unknown id."""
    (left, right), unknown_pairs_count = _read_pairs(path, {document_id: row for row, document_id in enumerate(ids)})
    if unknown_pairs_count and not len(left):
        raise CorpusError(f"{path}: names none of the documents by their ids")
    pairs = Pairs(left, right, similarities(sets, left, right, options.measure))
    return pairs.within(sets.scopes), unknown_pairs_count  # documents of two scopes are never compared


def _read_pairs(path: Path, row_by_id: Mapping[str, int]) -> tuple[NDArray[np.int64], int]:
    """Read pairs of ids with a tab between them; the file may be gzip-compressed, and further columns are not read.

    Returns the pairs as rows, int64 (2, n), each pair once, the smaller row first; and the count of lines left out,
    because no document has one of their ids.
    """
    pairs: dict[tuple[int, int], None] = {}
    unknown_count = 0
    for line_number, line in _lines(path):
        ids = line.split("\t")[:2]
        if len(set(ids)) != 2:
            raise CorpusError(f"{path}:{line_number}: not a pair: expected two different ids, separated by a tab")
        rows = sorted(row_by_id[document_id] for document_id in ids if document_id in row_by_id)
        if len(rows) == 2:
            pairs[rows[0], rows[1]] = None
        else:
            unknown_count += 1
    return np.array(list(pairs), np.int64).reshape(-1, 2).T, unknown_count  # reshaped, because there may be no pair


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with open_file(str(path)) as stored:
        for line_number, line in Lines(unzipped(ByteStream(stored.read1, str(path)))).filled():
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                raise CorpusError(f"{path}:{line_number}: not UTF-8 text") from error
            yield line_number, text


@with_options
def evaluate(
    options: ComparisonOptions,
    truth: Annotated[
        Path | None,
        typer.Option(
            metavar="PAIRS",
            readable=False,
            help="File of true pairs: two ids, separated by a tab; computed by default.",
        ),
    ] = None,
    output: OutputOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object.")] = False,
) -> None:
    """Measure a profile on files: recall, precision, missed pairs and the reasons.

    An exact join, without buckets, finds the true pairs, unless --truth has them; suppressed pairs are left out.

    Example:  streamdedup evaluate articles.jsonl.gz --threshold 0.7
    """
    profile = chosen_profile(options)
    entries = first_of_each_id(options.entries(profile, "evaluate"))
    documents = (document_at(row, entry.id, entry.text, entry.source, entry.scope) for row, entry in enumerate(entries))
    with output_to(output, (*options.inputs(profile), truth)) as target:  # refuses an output that is also an input
        result = evaluate_documents(documents, detector_options("evaluate", profile), empty_index(profile), truth)
        lines = "\n".join(as_lines(result))
        target.write((json.dumps(as_object(result), ensure_ascii=False) if as_json else fitted(lines, target)) + "\n")
