"""``streamdedup tune``: pairs found, pairs missed and cost of settings on a sample, before they go live."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from streamdedup.cli.collection import first_versions
from streamdedup.cli.options import (
    CorpusOptions,
    LimitSettings,
    OutputOption,
    TextSettings,
    measured_profile,
    with_options,
)
from streamdedup.cli.output import json_text, output_to
from streamdedup.cli.rendering.tuning_tables import tables_text
from streamdedup.cli.tune_server import TuneServer, tune_server
from streamdedup.cli.tune_work import LARGEST_SIGNATURE, MOST_PERMUTATIONS, Question, Tuning
from streamdedup.embedded import MissingToolError
from streamdedup.errors import CorpusError, SettingsError
from streamdedup.settings import Profile
from streamdedup.text.shingles import ShingleOptions
from streamdedup.tuning.rows import Basis
from streamdedup.tuning.sample import Sample, Sampling, draw_sample

#: Defaults: thresholds, minimum recalls, and sizes of shingles by unit.
THRESHOLDS: Final = (0.7, 0.8, 0.9)
RECALLS: Final = (0.95, 0.99)
SIZES: Final = {"word": (3, 5), "char": (5, 9)}


@dataclass(frozen=True)
class TuneOptions(LimitSettings, TextSettings, CorpusOptions):
    """Options of documents, and settings that do not vary."""


@dataclass(frozen=True)
class StudyOptions:
    """The sample, the settings to try on it, and the demand of the forecast."""

    sample_size: Annotated[int, typer.Option("--sample", min=1, help="Most documents in the sample.")] = 20_000
    sampling: Annotated[Sampling, typer.Option(help="Read all and choose at random, or take the first.")] = "random"
    unit: Annotated[list[str] | None, typer.Option(help="Shingles of: word, char; may be repeated.")] = None
    size: Annotated[list[int] | None, typer.Option(help="Words or characters in a shingle; may be repeated.")] = None
    threshold: Annotated[
        list[float] | None, typer.Option("--threshold", "-t", help="Least similarity; may be repeated.")
    ] = None
    min_recall: Annotated[list[float] | None, typer.Option(help="Share of the pairs to find; may be repeated.")] = None
    recall_on: Annotated[
        Basis,
        typer.Option(help="Where the minimum recall must be reached: at the threshold by theory, or on the sample."),
    ] = "theory"
    most_permutations: Annotated[
        int,
        typer.Option(
            "--permutations",
            min=1,
            max=LARGEST_SIGNATURE,
            help="Most values of a signature; not fewer than the profile's.",
        ),
    ] = MOST_PERMUTATIONS
    documents_per_day: Annotated[float, typer.Option(help="Documents a day, for the forecast.")] = 10_000
    retention: Annotated[str | None, typer.Option(help="How long documents are compared, such as 30d.")] = None


@with_options
def tune(
    options: TuneOptions,
    study: StudyOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
    output: OutputOption = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", readable=False, help="Write a report with plots.")
    ] = None,
    redis: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Measure memory on this Redis, under a prefix of its own, deleted at the end."
        ),
    ] = None,
    server: Annotated[bool, typer.Option(help="Measure on a private server, where one is installed.")] = True,
) -> None:
    """Try settings on a sample: pairs found and missed, cost, and a recommendation.

    Example:  streamdedup tune articles.jsonl.gz --documents-per-day 200000 --retention 14d --report tuning.html
    """
    question = _question(options, study)
    page = None if report is None else _report_page()
    with contextlib.ExitStack() as stack:
        # Errors of the server and of the files are reported before the work.
        measured_on, warning = _server(stack, question, redis, wanted=server or redis is not None)
        entries = first_versions(options.entries(question.profile, "tune"))
        documents = ((entry.id, entry.text, entry.source) for entry in entries)
        sample = draw_sample(documents, study.sample_size, study.sampling)
        if not sample.ids:
            raise CorpusError(f"{', '.join(options.files)}: no document to look at")
        inputs = options.inputs(question.profile)
        target = stack.enter_context(output_to(output, inputs))
        report_file = (
            None if report is None else stack.enter_context(output_to(str(report), (*inputs, output), "--report"))
        )
        results = Tuning(question, sample, measured_on).results()
        results["warnings"] += warning
        target.write(json_text(results) if as_json else tables_text(results, target))
        if report_file is not None and page is not None:
            report_file.write(page(results, sample))


def _question(options: TuneOptions, study: StudyOptions) -> Question:
    """Return the question that the options ask.

    Raises:
        SettingsError: The profile does not exist, or an option is wrong or contradicts the profile.
    """
    name = options.profile
    base, redis = measured_profile(options, study.retention)
    if base.min_shared_bands > 1:
        raise SettingsError(
            f"profiles.{name}.min_shared_bands is {base.min_shared_bands}; tune knows 1 only: take a copy of the "
            "settings without this key"
        )
    if not 1.0 <= study.documents_per_day <= 1e12:
        raise SettingsError(f"--documents-per-day {study.documents_per_day:g}: must be at least 1 and at most 10^12")
    own = () if options.config is None else (base,)
    thresholds = (*THRESHOLDS, *(one.threshold for one in own))
    recalls = (*RECALLS, *(one.min_recall for one in own))
    question = Question(
        name=name,
        profile=base,
        kinds=_kinds(base, study.unit, study.size),
        thresholds=_numbers("--threshold", study.threshold, thresholds, most=1.0),
        recalls=_numbers("--min-recall", study.min_recall, recalls, most=1.0 - 1e-9),
        documents_per_day=study.documents_per_day,
        basis=study.recall_on,
        redis=redis,
        arguments=options.arguments(),
        most_permutations=max(base.permutations, study.most_permutations),
        has_servers=options.config is not None,
    )
    if base.containment_threshold is not None and question.threshold <= base.containment_min_similarity:
        raise SettingsError(
            f"--threshold {question.threshold:g}: must be above profiles.{name}.containment_min_similarity, which is "
            f"{base.containment_min_similarity:g}"
        )
    return question


def _server(
    stack: contextlib.ExitStack, question: Question, url: str | None, *, wanted: bool
) -> tuple[TuneServer | None, list[str]]:
    """Open the server to measure on; without one return None and a warning.

    Raises:
        SettingsError: The URL cannot be used.
        StoreUnavailable: The server does not answer.
        StoreMisconfigured: It is too old, or drops keys when it is full.
    """
    reason = "--no-server"
    if wanted:
        try:
            return stack.enter_context(
                tune_server(url, question.profile, f"{question.redis.key_prefix}:{question.name}")
            ), []
        except MissingToolError as error:
            reason = str(error)
    return None, [f"memory is not forecast without a server ({reason}); --redis names one"]


def _kinds(profile: Profile, units: list[str] | None, sizes: list[int] | None) -> tuple[ShingleOptions, ...]:
    """Return the kinds of shingles to try.

    Raises:
        SettingsError: There is no such unit, or a size is out of range.
    """
    own = profile.shingle_options()
    for unit in units or ():
        if unit not in SIZES:
            raise SettingsError(f"--unit {unit}: must be word or char")
    for size in sizes or ():
        if not 1 <= size <= 64:
            raise SettingsError(f"--size {size}: must be a whole number from 1 up to 64")
    kinds = [] if units or sizes else [own]
    for unit in units or SIZES:
        kinds += [_kind(own, "word" if unit == "word" else "char", size) for size in sizes or SIZES[unit]]
    return tuple(dict.fromkeys(kinds))


def _kind(own: ShingleOptions, unit: Literal["word", "char"], size: int) -> ShingleOptions:
    """Return a kind of shingles with all settings of the profile that apply to it."""
    if (unit, size) == (own.unit, own.size):
        return own
    # Stop shingles were learnt for one unit and size.
    other = replace(own, size=size, stop_shingles=frozenset())
    if unit == own.unit:
        return other
    return replace(other, unit=unit, stop_words=frozenset(), keep_white_space=True)


def _numbers(option: str, given: list[float] | None, default: tuple[float, ...], *, most: float) -> tuple[float, ...]:
    """Return the values of an option, sorted.

    Raises:
        SettingsError: One is out of range.
    """
    for value in given or ():
        if not 0.0 < value <= most:
            raise SettingsError(f"{option} {value:g}: must be above 0 and {'at most' if most == 1.0 else 'below'} 1")
    return tuple(sorted(set(given or default)))


def _report_page() -> Callable[[dict[str, Any], Sample], str]:
    """Return the function that renders the report; a missing library is reported before the work.

    Raises:
        SettingsError: A library of the extra "report" is not installed.
    """
    try:
        from streamdedup.cli.rendering.tuning_report import page  # noqa: PLC0415  needs the extra "report"
    except ModuleNotFoundError as error:
        raise SettingsError(f"--report needs {error.name}: pip install 'streamdedup[report]'") from error
    return page
