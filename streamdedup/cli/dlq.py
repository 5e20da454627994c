"""``streamdedup dlq``: inspect the dead-letter topic, and replay dead letters after their cause is fixed."""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Annotated

import typer
from rich.progress import BarColumn, TextColumn

from streamdedup.cli.assembly import kafka_options
from streamdedup.cli.dead_letters import DeadLetter, DeadLetterFilter, parse_offsets, parse_since
from streamdedup.cli.dlq_decisions import ReplayOptions, Tally
from streamdedup.cli.dlq_replay import DeadLetterReplay, group_of
from streamdedup.cli.guards import YesOption, confirm, require_confirmable
from streamdedup.cli.options import with_options
from streamdedup.cli.output import progress_bar, say
from streamdedup.cli.pace import RateOption
from streamdedup.cli.rendering.dead_letters import Summary, dead_letter_json, dead_letter_line
from streamdedup.cli.rendering.terminal import make_console
from streamdedup.cli.settings_options import (
    BootstrapServersOption,
    ConfigOption,
    SetOption,
    check_topic,
    load_settings,
    topic_names,
)
from streamdedup.cli.topic_reading import load_reading_settings, reading_options
from streamdedup.errors import SettingsError
from streamdedup.kafka.admin import check_topics
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Batch
from streamdedup.kafka.reader import RecordFetcher, SpanReader
from streamdedup.position import Partition, Position
from streamdedup.wire import ErrorCode

#: Longest wait for new records while following, in seconds; Ctrl-C ends it at once.
_POLL_S = 1.0
#: Offsets before the end in which ``--last`` searches first, and the growth of each further search.
_FIRST_SEARCH, _GROWTH = 1_000, 8

dlq = typer.Typer(no_args_is_help=True, help="Inspect the dead-letter topic, and replay dead letters.")


@dataclass(frozen=True)
class FilterOptions:
    """Conditions on the failed records."""

    code: Annotated[
        list[ErrorCode] | None, typer.Option("--code", metavar="CODE", help="Only this error code; may be repeated.")
    ] = None
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", help="Only records of this input topic; may be repeated.", autocompletion=topic_names
        ),
    ] = None
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Only records of this partition.")] = None
    offsets: Annotated[
        str | None,
        typer.Option("--offsets", metavar="RANGE", help="Only records at these offsets: 1042, 1000-2000, 1000-"),
    ] = None

    def filter(self, since: str | None = None) -> DeadLetterFilter:
        """Return the filter of these options and of ``--since``.

        Raises:
            SettingsError: Offsets or time cannot be read.
        """
        return DeadLetterFilter(
            codes=frozenset(map(str, self.code or ())),
            topics=frozenset(self.topic or ()),
            partition=self.partition,
            offsets=parse_offsets(self.offsets),
            since_s=parse_since(since),
        )


@dlq.command()
@with_options
def inspect(  # noqa: PLR0913  one argument per option
    config: ConfigOption = None,
    assignments: SetOption = None,
    bootstrap_servers: BootstrapServersOption = None,
    dead_letter_topic: Annotated[
        str | None,
        typer.Option(callback=check_topic, help="Topic to read; default: of the settings, or duplicates.dlq."),
    ] = None,
    *,
    conditions: FilterOptions,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only failures since: 2h, 2026-05-01T09:00")] = None,
    last: Annotated[int | None, typer.Option("--last", "-n", min=1, max=10_000, help="Only the last N.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new dead letters until Ctrl-C.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this many.")] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Count by code, topic and hour.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write each as one line of JSON, with the whole value.")
    ] = False,
) -> None:
    """Show dead letters, one per line: time, code, position of the record, reason, beginning of the value.

    Reads to the end of the dead-letter topic. Dead letters are in the order of each partition; with --last, in the
    order of time. Topic, partition and offsets are those of the failed record.

    Example:  streamdedup dlq inspect --config streamdedup.toml --last 20

    Example:  streamdedup dlq inspect --config streamdedup.toml --since 2h --summary
    """
    if follow and summary:
        raise SettingsError("--follow and --summary: give one of them")
    wanted = conditions.filter(since)
    settings = load_reading_settings(config, assignments, bootstrap_servers)
    source = dead_letter_topic or ("duplicates.dlq" if settings is None else settings.kafka.dead_letter_topic)
    options = reading_options(settings, bootstrap_servers, source)
    with SpanReader(options) as reader:
        letters = _read(reader.batches(), wanted) if last is None else _read_last(reader, options, wanted, last)
        if follow:
            letters = chain(letters, _read(_new_batches(reader), wanted))
        letters = islice(letters, limit)
        if summary:
            counts = Summary(letters)
            for line in [counts.as_json()] if as_json else counts.lines():
                typer.echo(line)
        else:
            _show(letters, as_json=as_json)


@dlq.command()
@with_options
def replay(  # noqa: PLR0913  one argument per option
    config: ConfigOption = None,
    assignments: SetOption = None,
    *,
    conditions: FilterOptions,
    max_attempts: Annotated[int, typer.Option(min=1, help="Leave out records with this many failures.")] = 3,
    limit: Annotated[int | None, typer.Option(min=1, help="Replay at most this many.")] = None,
    rate: RateOption = 0.0,
    again: Annotated[bool, typer.Option("--again", help="Include dead letters that were replayed before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count without sending anything.")] = False,
    yes: YesOption = False,
) -> None:
    """Send dead letters back to the topics of their records, after the cause of the failure is fixed.

    Key, value, headers, record time and partition are those of the record. Dead letters that arrive during the replay
    are left for the next one. The replay stores its progress, so that the next one sends only new dead letters. With
    --partition or --offsets, stored progress is neither used nor updated.

    Example:  streamdedup dlq replay --config streamdedup.toml --code too_large --dry-run

    Example:  streamdedup dlq replay --config streamdedup.toml --topic articles --partition 2 --offsets 1042
    """
    settings = load_settings(config, assignments)
    wanted = conditions.filter()
    options = kafka_options(settings)
    if others := sorted(wanted.topics.difference(options.topics)):
        raise SettingsError(
            f"--topic {others[0]}: no profile has this topic; the settings name {', '.join(options.topics)}"
        )
    if not dry_run:
        require_confirmable("sends records to input topics", yes=yes)
    choice = ReplayOptions(wanted, check_topics(options), max_attempts, again, limit, rate)
    with DeadLetterReplay(replace(options, topics=(settings.kafka.dead_letter_topic,)), choice) as work:
        if work.is_recreated:
            say(f"{settings.kafka.dead_letter_topic} was created again since the last replay; all of it is read")
        total = limit
        if dry_run or not yes:
            tally = work.count()
            _report("to replay", tally)
            if dry_run or not tally.replayed_count:
                return
            confirm("Replay them?", yes=yes)
            total = tally.replayed_count
        _report("replayed", _run(work, total))
    if choice.uses_progress:
        say(f"the consumer group {group_of(options.group_id)} stores the progress; --again includes all")


def _read(batches: Iterable[Batch], wanted: DeadLetterFilter) -> Iterator[DeadLetter]:
    """Yield the accepted dead letters; report unreadable records."""
    for batch in batches:
        for unreadable in batch.unreadable:
            say(f"passed over {unreadable.position}: {unreadable.reason}")
        yield from filter(wanted.accepts, map(DeadLetter, batch.records))


def _new_batches(reader: SpanReader) -> Iterator[Batch]:
    """Yield records written after the construction of the reader, without end."""
    reader.start_at(reader.ends)
    while True:
        yield reader.poll(_POLL_S)


def _read_last(reader: SpanReader, options: KafkaOptions, wanted: DeadLetterFilter, count: int) -> Iterator[DeadLetter]:
    """Yield the last accepted dead letters in order of time.

    Searches the offsets before the ends, and more of them until enough are found. Memory holds only positions, so that
    large dead letters do not exhaust it.
    """
    searched = max(_FIRST_SEARCH, count * 2)
    while True:
        starts = {each: max(reader.beginnings[each], end - searched) for each, end in reader.ends.items()}
        reader.start_at(starts)
        found: dict[Partition, deque[tuple[float, Position]]] = {each: deque(maxlen=count) for each in reader.ends}
        for letter in _read(reader.batches(), wanted):
            position = letter.record.position
            found[position.of].append((letter.time_s, position))
        if all(starts[each] == reader.beginnings[each] or len(found[each]) == count for each in found):
            break
        searched *= _GROWTH
    with RecordFetcher(options) as fetcher:
        for _, position in sorted(heapq.nlargest(count, chain.from_iterable(found.values()))):
            record = fetcher.fetch(position)
            if record is not None:  # else it has expired
                yield DeadLetter(record)


def _show(letters: Iterable[DeadLetter], *, as_json: bool) -> None:
    console, letter = make_console(), None
    for letter in letters:
        if as_json:
            typer.echo(dead_letter_json(letter))
        elif console.is_terminal:
            console.print(dead_letter_line(letter), soft_wrap=True)
        else:
            typer.echo(dead_letter_line(letter).plain)
    if letter is None:
        say("no dead letters, or none that the options accept")


def _run(work: DeadLetterReplay, total: int | None) -> Tally:
    """Replay, with progress on standard error; ``total`` is the number of dead letters, if known."""
    tally = Tally()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f} dead letters"))
    with progress_bar(*columns) as progress:
        task = progress.add_task("replay", total=total)
        for tally in work.run():
            progress.update(task, completed=tally.replayed_count)
    return tally


def _report(title: str, tally: Tally) -> None:
    for line in (f"{title}: {tally.replayed()}", *tally.left_out()):
        typer.echo(line)
