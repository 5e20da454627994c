"""``streamdedup tune``: tries settings on a sample (``streamdedup.tuning``); shows pairs found and missed, and costs.

A new option is a field of ``StudyOptions``, and of ``tuning.comparison.TuningPlan``; settings that ``tune`` cannot
study are refused in ``_plan``.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from streamdedup.cli.applied_settings import apply_section, check_target
from streamdedup.cli.collection import first_of_each_id
from streamdedup.cli.options import CorpusOptions, chosen_profile, with_options
from streamdedup.cli.output import output_to, showing_share
from streamdedup.cli.rendering.tuning_tables import tables_text
from streamdedup.errors import CorpusError, SettingsError
from streamdedup.settings import Profile, Redis, Settings
from streamdedup.text.shingles import ShingleOptions
from streamdedup.tuning.comparison import TIME_S, TuningPlan, compare_in_budget
from streamdedup.tuning.results import results_of
from streamdedup.tuning.sample import Sample, draw_sample

THRESHOLDS: Final = (0.5, 0.6, 0.7, 0.8, 0.9)  # thresholds to try without ``--threshold``
SIZES: Final = {"word": (3, 5), "char": (5, 9)}  # shingle sizes to try without ``--size``, by unit
RECALLS: Final = (0.95, 0.99, 0.997)  # minimum recalls, which are always tried


@dataclass(frozen=True)
class StudyOptions:
    """The sample, the settings to try on it, and the documents a day of the forecast."""

    sample_size: Annotated[int, typer.Option("--sample", min=1, help="Most documents in the random sample.")] = 20_000
    unit: Annotated[list[str] | None, typer.Option(help="Shingles of: word, char; may be repeated.")] = None
    size: Annotated[list[int] | None, typer.Option(help="Words or characters in a shingle; may be repeated.")] = None
    threshold: Annotated[
        list[float] | None, typer.Option("--threshold", "-t", help="Least similarity; may be repeated.")
    ] = None
    time_s: Annotated[float, typer.Option("--time", metavar="SECONDS", min=1, help="Time on a usual machine.")] = TIME_S
    documents_per_day: Annotated[float, typer.Option(help="Documents a day, for the forecast.")] = 10_000


@with_options
def tune(
    options: CorpusOptions,
    study: StudyOptions,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", readable=False, help="Write a report with plots.")
    ] = None,
    apply: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml", readable=False, help="Write recommendation and proposals into this settings file."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
) -> None:
    """Try settings on a sample: pairs found and missed, cost, and a recommendation.

    All settings that do not vary are those of the profile. --time limits the characters compared: the same sample
    gives the same result on any machine, except for documents/s.

    Example:  streamdedup tune articles.jsonl.gz --documents-per-day 200000 --report tuning.html
    """
    plan = _plan(options, study, apply)
    if apply is not None:
        if report is not None and os.path.realpath(report) == os.path.realpath(apply):
            raise SettingsError(f"--report {report}: --apply writes this file; name another one")
        check_target(apply, options.profile_name, options.config)
    with _report_writer(report, options.inputs(plan.profile)) as write_report:
        entries = first_of_each_id(options.entries(plan.profile, "tune"))
        documents = ((entry.id, entry.text, entry.source, entry.scope) for entry in entries)
        sample = draw_sample(documents, study.sample_size)
        if not sample.ids:
            raise CorpusError(f"{', '.join(options.files)}: no document to look at")
        results = results_of(compare_in_budget(plan, sample, showing_share, study.time_s), showing_share)
        as_text = (
            json.dumps(results, indent=2, ensure_ascii=False) + "\n" if as_json else tables_text(results, sys.stdout)
        )
        sys.stdout.write(as_text)
        sys.stdout.flush()
        write_report(results, sample)
    if apply is not None:
        if results["proposed"] is None:
            # `results_of` puts the reason first.
            raise SettingsError(f"--apply {apply}: nothing is written: {results['warnings'][0]}")
        apply_section(apply, options.profile_name, results["proposed"])


def _plan(options: CorpusOptions, study: StudyOptions, apply: Path | None) -> TuningPlan:
    name = options.profile_name
    profile, redis = _profile_and_redis(options)
    if profile.min_shared_bands > 1:
        raise SettingsError(
            f"profiles.{name}.min_shared_bands is {profile.min_shared_bands}; tune knows 1 only: take a copy of the "
            "settings without this key"
        )
    if not 1.0 <= study.documents_per_day <= 1e12:
        raise SettingsError(f"--documents-per-day {study.documents_per_day:g}: must be at least 1 and at most 10^12")
    has_settings_file = options.config is not None
    # Values of a settings file are also tried. Without a file the profile has only defaults.
    own_thresholds = (profile.threshold,) if has_settings_file else ()
    recalls: tuple[float, ...] = (*RECALLS, profile.min_recall) if has_settings_file else RECALLS
    # The path is absolute, so that the printed section is valid in a settings file of any folder.
    folder = Path.cwd() if apply is None else apply.absolute().parent
    return TuningPlan(
        name=name,
        profile=profile,
        kinds=_kinds(profile, study.unit, study.size),
        thresholds=_thresholds(study.threshold, own_thresholds),
        recalls=tuple(sorted(set(recalls))),
        documents_per_day=study.documents_per_day,
        bucket_layout=redis.bucket_layout,
        has_settings_file=has_settings_file,
        stops_path=folder / f"boilerplate-{name}.txt",
    )


def _profile_and_redis(options: CorpusOptions) -> tuple[Profile, Redis]:
    if options.config is None:
        # Without a settings file the topic has the name of the profile. Redis has its defaults; `model_construct` does
        # not validate, because validation would demand a URL.
        return chosen_profile(options, topics=options.profile_name), Redis.model_construct()
    return chosen_profile(options), Settings.load(options.config, needs_servers=False).redis


def _kinds(profile: Profile, units: list[str] | None, sizes: list[int] | None) -> tuple[ShingleOptions, ...]:
    """Return the shingle kinds to try: those of the options; without options, that of the profile and ``SIZES``."""
    preferred = profile.shingle_options()
    for unit in units or ():
        if unit not in SIZES:
            raise SettingsError(f"--unit {unit}: must be word or char")
    for size in sizes or ():
        if not 1 <= size <= 64:
            raise SettingsError(f"--size {size}: must be a whole number from 1 up to 64")
    kinds = [] if units or sizes else [preferred]
    for unit in units or SIZES:
        # The type checker accepts only a literal as a unit.
        kinds += [_kind(preferred, "word" if unit == "word" else "char", size) for size in sizes or SIZES[unit]]
    return tuple(dict.fromkeys(kinds))


def _kind(preferred: ShingleOptions, unit: Literal["word", "char"], size: int) -> ShingleOptions:
    if (unit, size) == (preferred.unit, preferred.size):
        return preferred
    # Stop shingles were learnt for one unit and size.
    kind = replace(preferred, size=size, stop_shingles=frozenset())
    if unit == preferred.unit:
        return kind
    # Stop words are for words, and `keep_white_space` is for characters: another unit has the defaults.
    return replace(kind, unit=unit, stop_words=frozenset(), keep_white_space=True)


def _thresholds(values: list[float] | None, own: tuple[float, ...]) -> tuple[float, ...]:
    """Return the thresholds to try, sorted: ``values``, by default ``THRESHOLDS``, and those of a settings file."""
    for value in values or ():
        if not 0.0 < value <= 1.0:
            raise SettingsError(f"--threshold {value:g}: must be above 0 and at most 1")
    return tuple(sorted({*(values or THRESHOLDS), *own}))


@contextmanager
def _report_writer(
    report: Path | None, inputs: Iterable[str | Path | None]
) -> Iterator[Callable[[dict[str, Any], Sample], object]]:
    """Yield a function that writes the report; what prevents the report is reported here, before the work."""
    if report is None:
        yield lambda _results, _sample: None
        return
    if str(report) == "-":
        raise SettingsError("--report -: standard output has the tables; name a file")
    try:
        from streamdedup.cli.rendering.tuning_report import report_page  # noqa: PLC0415  needs the extra "report"
    except ModuleNotFoundError as error:
        raise SettingsError(f"--report needs {error.name}: pip install 'streamdedup[report]'") from error
    with output_to(str(report), inputs, "--report") as file:
        yield lambda results, sample: file.write(report_page(results, sample))
