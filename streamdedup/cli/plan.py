"""``streamdedup plan``: partitions, processes, servers, memory and network for a stream, from a measured machine."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Annotated, Final

import typer

from streamdedup.cli.assembly import decoder_of
from streamdedup.cli.collection import first_versions
from streamdedup.cli.options import CorpusOptions, OutputOption, measured_profile, with_options
from streamdedup.cli.output import json_text, output_to
from streamdedup.cli.plan_measure import MeasuredSetup, measured_machine
from streamdedup.cli.rendering.plan_text import plan_json, plan_text, table_text
from streamdedup.cli.tune_server import tune_server
from streamdedup.corpora import FORMAT_TITLES, CorpusReader, Entry, shown_name
from streamdedup.embedded import MissingToolError
from streamdedup.errors import CorpusError, SettingsError
from streamdedup.settings import Profile, Redis
from streamdedup.settings.units import BYTES, parse_duration, parse_size, read_utf8
from streamdedup.tuning.machine import Machine, decode_machine, encode_machine
from streamdedup.tuning.plan import DAY_S, Demand, plan_of
from streamdedup.tuning.sample import draw_sample

#: Rates of the table, in documents a minute.
TABLE_RATES: Final = (1_000, 10_000, 100_000, 1_000_000)
_MINUTES_PER_DAY: Final = 1_440
#: Bounds of retention in seconds, as of the setting, and of sizes in bytes.
_RETENTION_BOUNDS: Final = (1.0, 36_500 * DAY_S)
_DOCUMENT_BOUNDS: Final = (1, 1 << 30)
_SERVER_BOUNDS: Final = (100_000_000, 1 << 50)


@dataclass(frozen=True)
class PlanOptions(CorpusOptions):
    """The documents to measure; without files the built-in sample."""

    files: Annotated[
        list[str] | None, typer.Argument(help=f"Sample: {FORMAT_TITLES}; - for stdin; default: the built-in one.")
    ] = None  # type: ignore[assignment]


@dataclass(frozen=True)
class DemandOptions:
    """The demand; values that are not given are those of the sample."""

    documents_per_day: Annotated[float | None, typer.Option(help="Documents a day.")] = None
    retention: Annotated[
        str | None, typer.Option(help="How long documents are compared, such as 30d; default: that of the profile.")
    ] = None
    document_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Size of a record, such as 2KiB, for network and topics; default: that of the sample."
        ),
    ] = None
    alerts_share: Annotated[
        float | None, typer.Option(help="Share of the documents with an alert; default: that of the sample.")
    ] = None
    lookups_per_second: Annotated[
        float | None, typer.Option(help="Look-ups over HTTP in the busiest hour; default: 0; --table: one a document.")
    ] = None
    peak: Annotated[float, typer.Option(help="Documents of the busiest hour over those of a mean hour.")] = 2.0
    redis_memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory of one Redis server.")] = "64GB"

    def __post_init__(self) -> None:
        """Check all values.

        Raises:
            SettingsError: One is out of range.
        """
        _check("--documents-per-day", self.documents_per_day, 1.0, 1e12)
        _check("--alerts-share", self.alerts_share, 0.0, 1.0)
        _check("--lookups-per-second", self.lookups_per_second, 0.0, 1e9)
        _check("--peak", self.peak, 1.0, 1e4)
        self._retention_s()
        self._document_bytes()
        self._server_bytes()

    def _retention_s(self) -> float | None:
        return None if self.retention is None else _retention(self.retention)

    def _document_bytes(self) -> int | None:
        return None if self.document_bytes is None else _size("--document-bytes", self.document_bytes, _DOCUMENT_BOUNDS)

    def _server_bytes(self) -> int:
        return _size("--redis-memory", self.redis_memory, _SERVER_BOUNDS)

    def demand(self, machine: Machine, documents_per_day: float, *, lookups_per_document: float = 0.0) -> Demand:
        """Return the demand for so many documents a day.

        Args:
            machine: Measured machine, whose sample gives what the options do not.
            documents_per_day: Documents a day.
            lookups_per_document: Look-ups for each document, without ``--lookups-per-second``.
        """
        sample, profile = machine.sample, machine.profile
        retention_s, document_bytes = self._retention_s(), self._document_bytes()
        demand = Demand(
            documents_per_day=documents_per_day,
            retention_s=profile.retention_s if retention_s is None else retention_s,
            retention_slack_s=profile.retention_slack_s,
            document_bytes=sample.document_bytes if document_bytes is None else float(document_bytes),
            alerts_share=sample.alerts_share if self.alerts_share is None else self.alerts_share,
            lookups_per_s=self.lookups_per_second or 0.0,
            peak=self.peak,
            server_bytes=float(self._server_bytes()),
        )
        if self.lookups_per_second is None:
            demand = replace(demand, lookups_per_s=demand.documents_per_s * lookups_per_document)
        return demand


@with_options
def plan(  # noqa: PLR0913  a command line has as many options as it has
    options: PlanOptions,
    demands: DemandOptions,
    sample_size: Annotated[int, typer.Option("--sample", min=1, help="Most documents to measure.")] = 4_000,
    measured: Annotated[
        Path | None,
        typer.Option(metavar="FILE", readable=False, help="Take the costs from a file of --save; nothing is measured."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", readable=False, help="Write the measured costs to this file.")
    ] = None,
    table: Annotated[
        bool, typer.Option("--table", help="A table for 1, 10, 100 and 1,000 thousand documents a minute.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    output: OutputOption = None,
    redis: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Measure on this Redis, under a prefix of its own, deleted at the end."),
    ] = None,
) -> None:
    """Say what to scale for a stream: partitions, daemons, Redis, memory, network.

    Prints each number with its origin. Measures for some seconds the cost of documents on this machine: those of files,
    or of the built-in sample.

    Example:  streamdedup plan --documents-per-day 1000000 --retention 30d

    Example:  streamdedup plan articles.jsonl.gz --config streamdedup.toml --documents-per-day 1000000 --save here.json

    Example:  streamdedup plan --measured here.json --table --retention 7d
    """
    if demands.documents_per_day is None and not table:
        raise SettingsError("--documents-per-day: how many documents arrive on a day? Or a table of rates: --table")
    if table and (as_json or demands.documents_per_day is not None):
        raise SettingsError("--table has rates of its own, and is text: leave out --documents-per-day and --json")
    rates = [float(rate * _MINUTES_PER_DAY) for rate in TABLE_RATES] if table else [demands.documents_per_day or 0.0]
    if measured is not None:
        given = {"FILE": options.files, "--config": options.config, "--save": save, "--redis": redis}
        if wrong := [name for name, value in given.items() if value]:
            raise SettingsError(f"--measured {measured}: the file replaces the measurement; leave out {wrong[0]}")
        inputs: tuple[str | Path | None, ...] = (measured,)
        costs = partial(_read, measured)
    else:
        profile, redis_settings = measured_profile(options, demands.retention)
        inputs = options.inputs(profile)
        costs = partial(_measure, options, profile, redis_settings, sample_size, redis)
    with contextlib.ExitStack() as stack:
        # Files that cannot be written are reported before the work.
        target = stack.enter_context(output_to(output, inputs))
        saved = None if save is None else stack.enter_context(output_to(str(save), (*inputs, output), "--save"))
        machine = costs()
        if saved is not None:
            saved.write(encode_machine(machine).decode())
        per_document = 1.0 if table else 0.0
        plans = [plan_of(machine, demands.demand(machine, rate, lookups_per_document=per_document)) for rate in rates]
        layout = machine.profile.bucket_layout
        if table:
            target.write(table_text(plans, machine, layout))
        elif as_json:
            target.write(json_text(plan_json(plans[0], machine, layout)))
        else:
            target.write(plan_text(plans[0], machine, layout))


def _read(path: Path) -> Machine:
    try:
        content = read_utf8(path)
    except ValueError as error:
        raise SettingsError(f"--measured {path}: {error}") from error
    return decode_machine(content.encode(), f"--measured {path}")


def _measure(options: PlanOptions, profile: Profile, redis: Redis, sample_size: int, url: str | None) -> Machine:
    """Measure this machine with documents of the options.

    Raises:
        SettingsError: No server is installed.
        CorpusError: There is no document.
        StoreUnavailable: The server does not answer.
    """
    namespace = f"{redis.key_prefix}:{options.profile}"
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(tune_server(url, profile, namespace))
        except MissingToolError as error:
            raise SettingsError(f"nothing is measured without a server: {error}, or name one with --redis") from error
        sizes: list[int] = []
        entries = _counted(first_versions(_entries(options, profile)), profile, sizes)
        sample = draw_sample(((entry.id, entry.text, entry.source) for entry in entries), sample_size, "random")
        if not sample.ids:
            raise CorpusError(f"{', '.join(options.files or ())}: no document to measure")
        setup = MeasuredSetup(
            name=options.profile,
            profile=profile,
            namespace=namespace,
            bucket_layout=redis.bucket_layout,
            sample=sample,
            sample_name=", ".join(shown_name(Path(file).name) for file in options.files or ()) or "the built-in sample",
            record_bytes=sum(sizes) / len(sizes),
        )
        return measured_machine(server, setup)


def _entries(options: PlanOptions, profile: Profile) -> Iterator[Entry]:
    """Yield the documents of the files, or of the built-in sample."""
    if options.files:
        yield from options.entries(profile, "plan")
        return
    name = "reviews.jsonl" if profile.shingle_unit == "char" else "articles.jsonl"
    path = Path(str(resources.files("streamdedup") / "sample" / name))
    yield from (entry for entry in CorpusReader(path, on_bad="pass") if entry.problem is None and entry.op == "upsert")


def _counted(entries: Iterator[Entry], profile: Profile, sizes: list[int]) -> Iterator[Entry]:
    """Yield entries; the bytes of each as a record are appended to ``sizes``."""
    decoder = decoder_of(profile)
    for entry in entries:
        sizes.append(len(entry.value(decoder)))
        yield entry


def _check(option: str, value: float | None, least: float, most: float) -> None:
    """Raise for a number that is not in a range.

    Raises:
        SettingsError: It is not.
    """
    if value is not None and not (math.isfinite(value) and least <= value <= most):
        raise SettingsError(f"{option} {value:g}: must be at least {least:g} and at most {most:g}")


def _size(option: str, text: str, bounds: tuple[int, int]) -> int:
    """Return the bytes of an option.

    Raises:
        SettingsError: The text is no size, or out of range.
    """
    try:
        size = parse_size(text)
    except ValueError:
        raise SettingsError(
            f'{option} {text}: must be a size, such as "512KiB" or "64GB", in {", ".join(BYTES)} or without a unit'
        ) from None
    if not bounds[0] <= size <= bounds[1]:
        raise SettingsError(f"{option} {text}: must be from {bounds[0]:,} to {bounds[1]:,} bytes")
    return size


def _retention(text: str) -> float:
    """Return the seconds of ``--retention``.

    Raises:
        SettingsError: The text is no duration, or out of range.
    """
    try:
        seconds = parse_duration(text)
    except ValueError:
        raise SettingsError(f'--retention {text}: must be a duration, such as "12h" or "30d"') from None
    if not _RETENTION_BOUNDS[0] <= seconds <= _RETENTION_BOUNDS[1]:
        raise SettingsError(f"--retention {text}: must be at least 1s and at most 36500d")
    return seconds
