"""``streamdedup tune``: what settings find, miss and cost on a sample, before they go live."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import typer

from streamdedup.cli.options import CorpusOptions, LimitSettings, TextSettings, chosen_profile, with_options
from streamdedup.cli.output import Output, output_to
from streamdedup.cli.tune_figures import figures_of
from streamdedup.cli.tune_server import TuneServer, tune_server
from streamdedup.cli.tune_tables import show
from streamdedup.cli.tune_work import Question, work
from streamdedup.embedded import MissingToolError
from streamdedup.errors import CorpusError, SettingsError
from streamdedup.settings import Profile, Redis, Settings
from streamdedup.text.shingles import ShingleOptions
from streamdedup.tuning.sample import Sample, Sampling, take

#: What is tried unless told otherwise.
THRESHOLDS: Final = (0.7, 0.8, 0.9)
RECALLS: Final = (0.95, 0.99)
SIZES: Final = {"word": (3, 5), "char": (5, 9)}


def tune(  # noqa: PLR0913  a command line has as many options as it has
    corpus: CorpusOptions,
    texts: TextSettings,
    limits: LimitSettings,
    sample: Annotated[int, typer.Option(min=1, help="Most documents to look at.")] = 20_000,
    sampling: Annotated[Sampling, typer.Option(help="Read all and choose at random, or take the first.")] = "random",
    unit: Annotated[list[str] | None, typer.Option(help="Shingles of: word, char; may be repeated.")] = None,
    size: Annotated[list[int] | None, typer.Option(help="Words or characters in a shingle; may be repeated.")] = None,
    threshold: Annotated[
        list[float] | None, typer.Option("--threshold", "-t", help="Least similarity; may be repeated.")
    ] = None,
    min_recall: Annotated[list[float] | None, typer.Option(help="Share of the pairs to find; may be repeated.")] = None,
    recall_on: Annotated[
        Literal["theory", "sample"],
        typer.Option(help="Where the minimum recall must be reached: at the threshold by theory, or on the sample."),
    ] = "theory",
    documents_per_day: Annotated[float, typer.Option(help="Documents that come in a day, for the forecast.")] = 10_000,
    retention: Annotated[str | None, typer.Option(help="How long documents are compared, such as 30d.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
    output: Annotated[str | None, typer.Option("--output", "-o", help="Where to write; standard output.")] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a report with plots.")] = None,
    redis: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Measure memory on this Redis, under a prefix of its own, deleted at the end."
        ),
    ] = None,
    server: Annotated[bool, typer.Option(help="Measure on a private server, where one is installed.")] = True,
) -> None:
    """Try settings on a sample: what they find, miss and cost, and which to take.

    Example:  streamdedup tune articles.jsonl.gz --documents-per-day 200000 --retention 14d --report tuning.html
    """
    config, name = corpus.config, corpus.profile
    # Without a settings file the topic of the profile has its name.
    topics: dict[str, object] = {} if config is not None else {"topics": name}
    base = chosen_profile(corpus, texts, limits, retention=retention, **topics)
    if base.min_shared_bands > 1:
        raise SettingsError(f"profiles.{name}.min_shared_bands is {base.min_shared_bands}; tune knows 1 only")
    keys = Settings.load(config).redis if config is not None else Redis.model_construct()
    question = Question(
        name=name,
        profile=base,
        kinds=_kinds(base, unit, size),
        thresholds=_numbers("--threshold", threshold, _with(THRESHOLDS, base.threshold, config), 1.0),
        recalls=_numbers("--min-recall", min_recall, _with(RECALLS, base.min_recall, config), 1.0 - 1e-9),
        documents_per_day=_documents_per_day(documents_per_day),
        basis=recall_on,
        key_prefix=keys.key_prefix,
        bucket_layout=keys.bucket_layout,
    )
    report_of = _report_maker(wanted=report is not None)
    collection = corpus.collection(base, "tune")
    # A server and files that cannot be used are named before the work.
    with _server(question, url=redis, wanted=server or redis is not None) as (measured_on, missing):
        taken = take(((entry.id, entry.text) for entry in collection.first_versions()), sample, sampling)
        if not taken.ids:
            raise CorpusError(f"{', '.join(corpus.files)}: no document to look at")
        with output_to(output) as target, _report_to(report) as page:
            figures = figures_of(question, taken, work(question, taken, measured_on))
            figures["warnings"] += missing
            if as_json:
                target.write(msgspec.json.format(msgspec.json.encode(figures), indent=2).decode() + "\n")
            else:
                show(figures, target)
            if page is not None:
                page.write(report_of(figures, taken))


@contextlib.contextmanager
def _server(question: Question, *, url: str | None, wanted: bool) -> Iterator[tuple[TuneServer | None, list[str]]]:
    """Yield the server to measure on, or None and a sentence about what is missing from the figures.

    Raises:
        SettingsError: The URL cannot be used.
        StoreUnavailable: The server does not answer.
        StoreMisconfigured: It is too old, or drops keys when it is full.
    """
    with contextlib.ExitStack() as stack:
        found, reason = None, "--no-server"
        if wanted:
            try:
                found = stack.enter_context(tune_server(url, question.profile, question.namespace_bytes))
            except MissingToolError as error:
                reason = str(error)
        yield found, [] if found else [f"memory is not forecast without a server ({reason}); --redis names one"]


def _with(values: tuple[float, ...], own: float, config: Path | None) -> tuple[float, ...]:
    """Return what is tried, with what a settings file asks for."""
    return tuple(sorted({*values, own})) if config is not None else values


def _kinds(profile: Profile, units: list[str] | None, sizes: list[int] | None) -> tuple[ShingleOptions, ...]:
    """Return the kinds of shingles to try.

    Raises:
        SettingsError: There is no such unit, or a size is out of range.
    """
    own = profile.shingle_options()
    wrong = [unit for unit in units or () if unit not in SIZES] + [size for size in sizes or () if not 1 <= size <= 64]
    if wrong:
        raise SettingsError(f"{wrong[0]}: --unit is word or char, --size from 1 to 64")
    kinds = dict.fromkeys([own] if not units and not sizes else [])
    for unit in dict.fromkeys(units or SIZES):
        for size in dict.fromkeys(sizes or SIZES[unit]):
            kinds[_kind(own, "word" if unit == "word" else "char", size)] = None
    return tuple(kinds)


def _kind(own: ShingleOptions, unit: Literal["word", "char"], size: int) -> ShingleOptions:
    """Return a kind of shingles that is like the profile's in all else, as far as that is for this kind."""
    if (unit, size) == (own.unit, own.size):
        return own
    # Stop shingles were learnt for one unit and size.
    other = replace(own, size=size, stop_shingles=frozenset())
    if unit == own.unit:
        return other
    return replace(other, unit=unit, stop_words=frozenset(), keep_white_space=True)


def _numbers(option: str, given: list[float] | None, usual: tuple[float, ...], most: float) -> tuple[float, ...]:
    """Return the values of an option, sorted.

    Raises:
        SettingsError: One is out of range.
    """
    for value in given or ():
        if not 0.0 < value <= most:
            raise SettingsError(f"{option} {value:g}: must be above 0 and {'at most' if most == 1.0 else 'below'} 1")
    return tuple(sorted(set(given or usual)))


def _documents_per_day(value: float) -> float:
    if not 1.0 <= value <= 1e12:
        raise SettingsError(f"--documents-per-day {value:g}: must be at least 1 and at most 10^12")
    return value


def _report_maker(*, wanted: bool) -> Callable[[dict[str, Any], Sample], str]:
    """Return the function that makes the report; a missing library is noticed before the work begins.

    Raises:
        SettingsError: A library of the extra "report" is not installed.
    """
    if not wanted:
        return lambda _figures, _sample: ""
    try:
        from streamdedup.cli.tune_report import page  # noqa: PLC0415  needs the extra "report"
    except ModuleNotFoundError as error:
        raise SettingsError(f"--report needs {error.name}: pip install 'streamdedup[report]'") from error
    return page


def _report_to(path: Path | None) -> contextlib.AbstractContextManager[Output | None]:
    """Open the file of the report, where one is wanted."""
    return contextlib.nullcontext() if path is None else output_to(str(path))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(with_options(tune))
