"""``streamdedup stop-shingles``: learn from a sample which shingles say nothing, and write them to a file."""

from typing import Annotated

import typer

from streamdedup.commands.bad_lines import SkipUnreadableOption
from streamdedup.commands.collection import (
    Collection,
    ConfigOption,
    FilesArgument,
    FormatOption,
    IdFieldOption,
    ProfileOption,
    SizeOption,
    TextFieldOption,
    UnitOption,
    given_settings,
    scan_profile,
)
from streamdedup.commands.output import output_to
from streamdedup.errors import CorpusError, SettingsError
from streamdedup.settings.units import counted
from streamdedup.stop_shingles import DEFAULT_SHARE, StopShingles, learn_stop_shingles


def stop_shingles(  # noqa: PLR0913  a command line has as many options as it has
    files: FilesArgument,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Where to write the shingles; standard output.")
    ] = None,
    share: Annotated[
        float, typer.Option(help="Least share of the documents that a stop shingle stands in, above 0 up to 1.")
    ] = DEFAULT_SHARE,
    config: ConfigOption = None,
    profile: ProfileOption = "articles",
    unit: UnitOption = None,
    size: SizeOption = None,
    id_field: IdFieldOption = None,
    text_field: TextFieldOption = None,
    corpus_format: FormatOption = "auto",
    skip_unreadable: SkipUnreadableOption = False,
) -> None:
    """Learn from a sample which shingles are only a frame that many texts share.

    Writes a file for the key stop_shingles of a profile. A summary goes to standard error.

    Example:  streamdedup stop-shingles sample.jsonl.gz --share 0.05 --output frames.txt
    """
    # What is learnt anew does not depend on the file that is there, or on whether it is there yet.
    overrides = given_settings(
        unit=unit, size=size, exact_limit=None, text_field=text_field, id_field=id_field, stop_shingles="none"
    )
    chosen = scan_profile(config, profile, overrides)
    collection = Collection(files, chosen, corpus_format, id_field, text_field, skip_unreadable, "stop-shingles")
    texts = (entry.text for entry in collection.entries())
    try:
        found = learn_stop_shingles(texts, chosen.shingle_options(), share)
    except ValueError as error:
        raise SettingsError(f"--share {share:g}: {error}") from None
    if not found.documents:
        raise CorpusError(f"{', '.join(files)}: no document to learn from")
    with output_to(output) as target:
        target.write(found.encoded())
    typer.echo(_summary(found), err=True)


def _summary(found: StopShingles) -> str:
    return (
        f"{counted(len(found.counts), 'stop shingle')}, each in at least {found.least_documents:,} of "
        f"{counted(found.documents, 'different document')}"
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(stop_shingles)
