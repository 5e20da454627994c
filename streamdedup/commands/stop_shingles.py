"""``streamdedup stop-shingles``: learn from a sample which shingles say nothing, and write them to a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from streamdedup.commands.assembly import decoder_of
from streamdedup.commands.collection import scan_profile
from streamdedup.commands.completion import profile_names
from streamdedup.commands.output import output_to
from streamdedup.commands.progress import read_with_progress
from streamdedup.corpora import Columns, CorpusReader
from streamdedup.corpora.detection import Format
from streamdedup.errors import SettingsError
from streamdedup.settings import Profile
from streamdedup.settings.units import counted
from streamdedup.stop_shingles import DEFAULT_SHARE, StopShingles, learn_stop_shingles


def _texts(
    files: list[str], profile: Profile, corpus_format: Format, columns: Columns, *, skip_unreadable: bool
) -> Iterator[str]:
    for file in files:
        reader = CorpusReader(
            file,
            format=corpus_format,
            on_bad="pass" if skip_unreadable else "raise",
            decoder=decoder_of(profile),
            columns=columns,
        )
        for entry in read_with_progress(reader, file):
            if entry.problem is not None:
                typer.echo(f"{entry.file}:{entry.line}: {entry.problem}", err=True)
            elif entry.op != "delete":
                yield entry.text


def stop_shingles(  # noqa: PLR0913  a command line has as many options as it has
    files: Annotated[
        list[str], typer.Argument(help="Corpora: JSON lines, CSV, TSV, plain text, Reuters-21578; - for stdin.")
    ],
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Where to write the shingles; standard output.")
    ] = None,
    share: Annotated[
        float, typer.Option(help="Least share of the documents that a stop shingle stands in, above 0 up to 1.")
    ] = DEFAULT_SHARE,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Take the profile from this settings file.")
    ] = None,
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            "-p",
            help="articles (words), reviews (characters), or one of --config.",
            autocompletion=profile_names,
        ),
    ] = "articles",
    unit: Annotated[str | None, typer.Option(help="Shingles of: word, char.")] = None,
    size: Annotated[int | None, typer.Option(help="Words or characters in a shingle.")] = None,
    id_field: Annotated[
        str | None, typer.Option("--id-field", "--id-column", help="Field or column of the id.")
    ] = None,
    text_field: Annotated[
        list[str] | None,
        typer.Option("--text-field", "--text-column", help="Field or column of the text; may be repeated."),
    ] = None,
    corpus_format: Annotated[Format, typer.Option("--format", help="What the files hold.")] = "auto",
    skip_unreadable: Annotated[bool, typer.Option(help="Report lines that cannot be read and go on.")] = False,
) -> None:
    """Learn from a sample which shingles are only a frame that many texts share.

    Writes a file for the key stop_shingles of a profile. A summary goes to standard error.

    Example:  streamdedup stop-shingles sample.jsonl.gz --share 0.05 --output frames.txt
    """
    overrides = {"shingle_unit": unit, "shingle_size": size, "id_field": id_field, "text_fields": text_field or None}
    # What is learnt anew does not depend on the file that is there, or on whether it is there yet.
    chosen = scan_profile(config, profile, overrides | {"stop_shingles": "none"})
    columns = Columns(id_field, tuple(text_field or ()), tables_only=False)
    texts = _texts(files, chosen, corpus_format, columns, skip_unreadable=skip_unreadable)
    try:
        found = learn_stop_shingles(texts, chosen.shingle_options(), share)
    except ValueError as error:
        raise SettingsError(f"--share {share:g}: {error}") from None
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
