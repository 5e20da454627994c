"""``streamdedup stop-shingles``: learn the shingles of boilerplate from a sample, and write them to a file."""

from dataclasses import dataclass
from typing import Annotated

import typer

from streamdedup.cli.options import CorpusOptions, ShingleSettings, chosen_profile, with_options
from streamdedup.cli.output import output_to
from streamdedup.errors import CorpusError, SettingsError
from streamdedup.settings.units import counted
from streamdedup.text.stop_shingles import DEFAULT_SHARE, learn_stop_shingles


@dataclass(frozen=True)
class LearningOptions(ShingleSettings, CorpusOptions):
    """Options of documents and shingles; texts are normalised as the profile says."""


def stop_shingles(
    options: LearningOptions,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Where to write the shingles; standard output.")
    ] = None,
    share: Annotated[
        float, typer.Option(help="Least share of the documents that contain a stop shingle, above 0 up to 1.")
    ] = DEFAULT_SHARE,
) -> None:
    """Learn from a sample which shingles are boilerplate that many texts share.

    Writes a file for the key stop_shingles of a profile. A summary goes to standard error.

    Example:  streamdedup stop-shingles sample.jsonl.gz --share 0.05 --output frames.txt
    """
    # The profile may name the file that is written; the old content must not matter.
    chosen = chosen_profile(options, stop_shingles="none")
    texts = (entry.text for entry in options.entries(chosen, "stop-shingles"))
    try:
        found = learn_stop_shingles(texts, chosen.shingle_options(), share)
    except ValueError as error:
        raise SettingsError(f"--share {share:g}: {error}") from None
    if not found.documents:
        raise CorpusError(f"{', '.join(options.files)}: no document to learn from")
    with output_to(output) as target:
        target.write(found.encoded())
    typer.echo(
        f"{counted(len(found.counts), 'stop shingle')}, each in at least {found.least_documents:,} of "
        f"{counted(found.documents, 'different document')}",
        err=True,
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(with_options(stop_shingles))
