"""Options of the commands on files, as fields of data classes.

``scan``, ``neighbours``, ``evaluate``, ``stop-shingles`` and ``tune`` compose their options of these data classes by
inheritance; the options of the last base class come first in ``--help``. A field with the name of a profile setting
overrides the setting, unless the field is None. ``with_options``, also used by ``dlq``, turns a function with data
classes as arguments into a command.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from streamdedup.cli.assembly import file_decoder
from streamdedup.cli.collection import FileEntries
from streamdedup.cli.output import tell, tell_prefixed
from streamdedup.corpora import FORMAT_TITLES, Columns, CorpusReader, Entry, Format, shown_name
from streamdedup.counts import counted
from streamdedup.errors import CorpusError
from streamdedup.settings import Profile
from streamdedup.settings.presets import default_profile_name, named_profile
from streamdedup.settings.profile_kinds import ENGLISH, NO_STOPS

OutputOption = Annotated[str | None, typer.Option("--output", "-o", help="Where to write; default: standard output.")]
FormatOption = Annotated[Format, typer.Option("--format", help="Format of the files.")]


@dataclasses.dataclass(frozen=True)
class CorpusOptions:
    files: Annotated[list[str], typer.Argument(help=f"Corpora: {FORMAT_TITLES}; - for stdin.")]
    config: Annotated[
        Path | None, typer.Option("--config", "-c", readable=False, help="Take the profile from this settings file.")
    ] = None
    profile: Annotated[
        str | None,
        typer.Option("--profile", "-p", help="articles (words), reviews (characters), news, or one of --config."),
    ] = None
    id_field: Annotated[str | None, typer.Option("--id-field", "--id-column", help="Field or column of the id.")] = None
    text_fields: Annotated[
        list[str] | None,
        typer.Option("--text-field", "--text-column", help="Field or column of the text; may be repeated."),
    ] = None
    source_field: Annotated[
        str | None, typer.Option("--source-field", "--source-column", help="Field or column of the source.")
    ] = None
    scope_field: Annotated[
        str | None,
        typer.Option("--scope-field", "--scope-column", help="Field or column of the scope to compare within."),
    ] = None
    corpus_format: FormatOption = "auto"

    @cached_property
    def profile_name(self) -> str:
        """The name of the profile, which may not exist."""
        return self.profile or default_profile_name(self.config)

    def inputs(self, profile: Profile) -> tuple[str | Path | None, ...]:
        """Return all files that the command reads, which its output must not replace; None for an absent option."""
        # A setting that is neither "none" nor "english" names a file.
        stop_files = (name for name in (profile.stop_words, profile.stop_shingles) if name not in (NO_STOPS, ENGLISH))
        return (*self.files, self.config, *stop_files)

    def entries(self, profile: Profile, command: str) -> Iterator[Entry]:
        """Yield the files' documents, with a progress bar; report and skip other operations and malformed lines."""
        # `tables_only=False`: the same options name fields of JSON.
        columns = Columns(self.id_field, tuple(self.text_fields or ()), self.source_field, tables_only=False)
        decoder, files = file_decoder(profile), FileEntries()
        for file in self.files:
            document_count = id_count = source_count = 0
            reader = CorpusReader(file, format=self.corpus_format, decoder=decoder, columns=columns)
            for entry in files.read(file, reader):
                if entry.problem is not None:
                    continue
                if entry.op != "upsert":
                    tell(f"{entry.file}:{entry.line}: op {entry.op} is passed over by {command}", err=True)
                else:
                    document_count += 1
                    id_count += entry.has_id  # with the field of --id-field
                    source_count += entry.source is not None
                    yield _scoped(entry, profile)
            # A field name that no document of a file has is probably misspelt.
            if document_count and self.id_field is not None and not id_count:
                tell_prefixed(
                    f"{shown_name(file)}: no document has --id-field {self.id_field}; files and lines are the ids"
                )
            if document_count and self.source_field is not None and not source_count:
                tell_prefixed(f"{shown_name(file)}: no document has --source-field {self.source_field}")
        files.require_document()
        if files.malformed.count:
            tell(f"{counted(files.malformed.count, 'line')} left out: no documents", err=True)


def _scoped(entry: Entry, profile: Profile) -> Entry:
    """Return a document with its scope. In formats without fields, the default scope of the profile is set."""
    if profile.scope_field is None or entry.scope is not None:
        return entry
    if profile.default_scope is None:
        raise CorpusError(f"{entry.file}: a file in this format has no field {profile.scope_field} for the scope")
    return dataclasses.replace(entry, scope=profile.default_scope)


@dataclasses.dataclass(frozen=True)
class ShingleSettings(CorpusOptions):
    shingle_unit: Annotated[str | None, typer.Option("--unit", help="Unit of shingles: word, char.")] = None
    shingle_size: Annotated[int | None, typer.Option("--size", help="Words or characters in a shingle.")] = None


@dataclasses.dataclass(frozen=True)
class ComparisonOptions(ShingleSettings):
    """All options for documents and the pairs to find, of ``scan`` and ``evaluate``."""

    threshold: Annotated[float | None, typer.Option("--threshold", "-t", help="Least similarity, above 0 up to 1.")] = (
        None
    )
    containment_threshold: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Also pairs below the threshold with this share of the smaller text in common, or none.",
        ),
    ] = None
    recall_from: Annotated[
        float | None, typer.Option("--recall-from", help="Similarity from which on pairs are found with min_recall.")
    ] = None


def chosen_profile(options: CorpusOptions, **overrides: object) -> Profile:
    """Return the profile that ``options`` name; their settings override it, and ``overrides`` override both."""
    overridden = {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(options)
        if field.name in Profile.model_fields
    }
    return named_profile(options.config, options.profile_name, overridden | overrides)


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Turn a function into a command: its argument ``options: ComparisonOptions`` becomes the options of the class."""
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    for name, annotation in get_type_hints(function, include_extras=True).items():
        if dataclasses.is_dataclass(annotation):
            assert isinstance(annotation, type)
            groups[name] = annotation
            parameters += inspect.signature(annotation).parameters.values()
        elif name != "return":
            parameters.append(inspect.signature(function).parameters[name])

    @functools.wraps(function)
    def command(**arguments: Any) -> None:
        for name, group in groups.items():
            arguments[name] = group(**{field.name: arguments.pop(field.name) for field in dataclasses.fields(group)})
        function(**arguments)

    # typer reads both the annotations and the signature.
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    # Required parameters precede those with defaults, as in any signature.
    parameters.sort(key=lambda parameter: parameter.default is not parameter.empty)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command
