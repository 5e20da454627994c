"""``streamdedup neighbours``: the documents nearest to one document in files; ``evaluation.nearest`` compares them."""

import json
from collections.abc import Iterable
from typing import Annotated

import typer

from streamdedup.cli.collection import batches, first_of_each_id
from streamdedup.cli.options import OutputOption, ShingleSettings, chosen_profile, with_options
from streamdedup.cli.output import output_to, tell
from streamdedup.cli.rendering.safe_text import printable
from streamdedup.corpora import Entry
from streamdedup.counts import counted
from streamdedup.errors import CorpusError
from streamdedup.evaluation.nearest import NearestDocuments
from streamdedup.evaluation.pairs import ShingleSets, shingle_sets
from streamdedup.settings import Profile
from streamdedup.similarity.measures import MEASURES
from streamdedup.text.shingles import Shingler


def find_neighbours(
    entries: Iterable[Entry], profile: Profile, document_id: str, top: int, threshold: float
) -> NearestDocuments:
    """Compare one document with all others of its scope, in one reading; of entries with one id, the first is used."""
    shingler = Shingler(profile.shingle_options())
    # Ids and shingle sets to compare: those of all batches until the document is found, then of one batch at a time.
    waiting: list[tuple[list[str], ShingleSets]] = []
    nearest: NearestDocuments | None = None
    for batch in batches(first_of_each_id(entries)):
        compared = [entry for entry in batch if entry.id != document_id]
        for entry in batch:
            if entry.id == document_id:
                target = shingle_sets(shingler, [entry.text], [entry.scope])
                nearest = NearestDocuments(target, top, threshold, MEASURES[profile.similarity])
        compared_sets = shingle_sets(shingler, [entry.text for entry in compared], [entry.scope for entry in compared])
        waiting.append(([entry.id for entry in compared], compared_sets))
        if nearest is not None:
            for ids, sets in waiting:
                nearest.compare(ids, sets)
            waiting.clear()
    if nearest is None:
        count = sum(len(ids) for ids, _ in waiting)
        raise CorpusError(f"--id {printable(document_id)}: none of {counted(count, 'document')} has this id")
    return nearest


def describe(nearest: NearestDocuments, document_id: str, top: int, threshold: float) -> str:
    """Return a sentence about the neighbours (``neighbours_count``), of which at most ``top`` are listed."""
    verb = "shares" if nearest.neighbours_count <= 1 else "share"
    criterion = f"with a similarity of at least {threshold:g}" if threshold else f"that {verb} a shingle"
    neighbours_text = f"{criterion}, among {counted(nearest.compared_count, 'document')}"
    name = printable(document_id)
    if not nearest.target.hashes.size:
        return f"{name}: none, because its text has no shingle"
    if not nearest.neighbours_count:
        return f"{name}: none {neighbours_text}"
    if nearest.neighbours_count == 1:
        return f"{name}: one {neighbours_text}" + ("" if top == 1 else f"; {top:,} were asked for")
    if nearest.neighbours_count < top:
        return f"{name}: {nearest.neighbours_count:,} {neighbours_text}; fewer than the {top:,} asked for"
    return f"{name}: the nearest {top:,} of {nearest.neighbours_count:,} {neighbours_text}"


@with_options
def neighbours(
    options: ShingleSettings,
    document_id: Annotated[str, typer.Option("--id", "-i", metavar="ID", help="The document.")],
    top: Annotated[int, typer.Option("--top", "-n", min=1, help="How many neighbours to show.")] = 10,
    threshold: Annotated[
        float, typer.Option("--threshold", "-t", min=0.0, max=1.0, help="Least similarity of a neighbour.")
    ] = 0.0,
    output: OutputOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object.")] = False,
) -> None:
    """Find the documents of files that are nearest to one of them.

    Every document is compared, exactly. Writes a line for each neighbour, the most similar first: id and similarity,
    separated by a tab, and a third column with the containment if the profile has a containment threshold (the default
    for words). A summary goes to standard error.

    Example:  streamdedup neighbours articles.jsonl.gz --id wire-902 --top 5
    """
    profile = chosen_profile(options)
    entries = options.entries(profile, "neighbours")
    with output_to(output, options.inputs(profile)) as target:
        result = find_neighbours(entries, profile, document_id, top, threshold)
        if as_json:
            shown = {
                "id": document_id,
                "asked_for": top,
                "threshold": threshold,
                "near": result.neighbours_count,
                "compared": result.compared_count,
                "neighbours": [neighbour._asdict() for neighbour in result.nearest],
            }
            target.write(json.dumps(shown, ensure_ascii=False) + "\n")
        else:
            for neighbour in result.nearest:
                more = f"\t{neighbour.containment:.6f}" if profile.containment_threshold is not None else ""
                target.write(f"{neighbour.id}\t{neighbour.similarity:.6f}{more}\n")
    tell(describe(result, document_id, top, threshold), err=True)
