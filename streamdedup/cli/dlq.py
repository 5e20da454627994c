"""``streamdedup dlq``: look into the dead-letter topic, and give records to a mended daemon again."""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from streamdedup.cli.asking import YesOption, ask, refuse_unasked
from streamdedup.cli.assembly import kafka_options
from streamdedup.cli.completion import topic_names
from streamdedup.cli.config import BootstrapServersOption, ConfigOption, SetOption, load_settings
from streamdedup.cli.dlq_plan import Rules, Tally
from streamdedup.cli.dlq_replay import Choice, Replay, group_of
from streamdedup.cli.letters import (
    Letter,
    Summary,
    Wanted,
    letter_json,
    letter_line,
    parse_offsets,
    parse_since,
)
from streamdedup.cli.pace import RateOption
from streamdedup.cli.show import make_console
from streamdedup.errors import SettingsError
from streamdedup.kafka import KafkaOptions, check_topics
from streamdedup.kafka.protocols import Batch
from streamdedup.kafka.reader import RecordFetcher
from streamdedup.kafka.span import SpanReader
from streamdedup.position import Partition, Position
from streamdedup.wire import ErrorCode

#: Longest wait for new records while following, in seconds; Ctrl-C ends it at once.
_POLL_S = 1.0
#: Offsets before the end that are looked at first for the last letters, and how much further back each further look
#: goes.
_LOOK_BACK, _FURTHER = 1_000, 8

dlq = typer.Typer(no_args_is_help=True, help="Look into the dead-letter topic, and replay what is in it.")

CodeOption = Annotated[
    list[ErrorCode] | None, typer.Option("--code", metavar="CODE", help="Only those with this code; may be repeated.")
]
TopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", help="Only records of this input topic; may be repeated.", autocompletion=topic_names
    ),
]
PartitionOption = Annotated[int | None, typer.Option("--partition", min=0, help="Only records of this partition.")]
OffsetsOption = Annotated[
    str | None, typer.Option("--offsets", metavar="RANGE", help="Only records at these offsets: 1042, 1000-2000, 1000-")
]


@dlq.command()
def inspect(  # noqa: PLR0913  a command line has as many options as it has
    config: ConfigOption = None,
    assignments: SetOption = None,
    bootstrap_servers: BootstrapServersOption = None,
    dead_letter_topic: Annotated[
        str | None, typer.Option(help="Topic to read; that of the settings, or duplicates.dlq.")
    ] = None,
    code: CodeOption = None,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    offsets: OffsetsOption = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only those that failed since: 2h, 2026-05-01T09:00")
    ] = None,
    last: Annotated[int | None, typer.Option("--last", "-n", min=1, max=10_000, help="Only the last N.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with those to come, until Ctrl-C.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Count them by code, topic and hour.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write each as one line of JSON, with the whole value.")
    ] = False,
) -> None:
    """Show dead letters, a line each: time, code, place of the record, reason, beginning of the value.

    Reads to the end of the dead-letter topic. Letters of several partitions come in the order of each partition; with
    --last in the order of time. Topic, partition and offsets are those of the record that failed.

    Example:  streamdedup dlq inspect --config streamdedup.toml --last 20

    Example:  streamdedup dlq inspect --config streamdedup.toml --since 2h --summary
    """
    if follow and summary:
        raise SettingsError("--follow and --summary: give one of them")
    wanted = _wanted(code, topic, partition, offsets, since)
    options = _dead_letter_options(config, assignments, bootstrap_servers, dead_letter_topic)
    with SpanReader(options) as reader:
        letters = _last(reader, options, wanted, last) if last is not None else _letters(reader.batches(), wanted)
        if follow:
            letters = chain(letters, _letters(_new(reader), wanted))
        letters = islice(letters, limit)
        if summary:
            _summarise(letters, as_json=as_json)
        else:
            _show(letters, make_console(), as_json=as_json)


@dlq.command("replay")
def replay_letters(  # noqa: PLR0913  a command line has as many options as it has
    config: ConfigOption = None,
    assignments: SetOption = None,
    code: CodeOption = None,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    offsets: OffsetsOption = None,
    max_attempts: Annotated[int, typer.Option(min=1, help="Leave out records that have failed so often.")] = 3,
    limit: Annotated[int | None, typer.Option(min=1, help="Replay at most so many.")] = None,
    rate: RateOption = 0.0,
    again: Annotated[bool, typer.Option("--again", help="Also those that were replayed before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    yes: YesOption = False,
) -> None:
    """Send dead letters back to the topics that their records came from, after the cause was mended.

    Key, value, headers, record time and partition are those of the record. Letters that arrive while this runs are left
    for the next time, and what was replayed is remembered, so that the next time only new ones are taken. With
    --partition or --offsets the letters are named one by one: nothing is looked up and nothing remembered.

    Example:  streamdedup dlq replay --config streamdedup.toml --code too_large --dry-run

    Example:  streamdedup dlq replay --config streamdedup.toml --topic articles --partition 2 --offsets 1042
    """
    settings = load_settings(config, assignments)
    wanted = _wanted(code, topic, partition, offsets, None)
    options = kafka_options(settings)
    _refuse_other_topics(wanted, options.topics)
    if not dry_run:
        refuse_unasked("sends records to input topics", yes=yes)
    counts = check_topics(options, ())
    choice = Choice(Rules(wanted, counts, max_attempts), again, limit, rate)
    with Replay(replace(options, topics=(settings.kafka.dead_letter_topic,)), choice) as replay:
        if replay.is_anew:
            _say(f"{settings.kafka.dead_letter_topic} was made anew since the last replay; all of it is looked at")
        if dry_run or not yes:
            tally = replay.count()
            _report(f"to replay: {tally.replayed()}", tally)
            if dry_run or not tally.replayed_count:
                return
            ask("Replay them?", yes=yes)
            total: int | None = tally.replayed_count
        else:
            total = limit
        tally = _with_progress(replay.run(), total)
        _report(f"replayed: {tally.replayed()}", tally)
    if choice.remembers:
        _say(f"the consumer group {group_of(options.group_id)} remembers what was replayed; --again takes all")


def _wanted(
    codes: list[ErrorCode] | None,
    topics: list[str] | None,
    partition: int | None,
    offsets: str | None,
    since: str | None,
) -> Wanted:
    return Wanted(
        codes=frozenset(map(str, codes or ())),
        topics=frozenset(topics or ()),
        partition=partition,
        offsets=parse_offsets(offsets),
        since_s=parse_since(since),
    )


def _refuse_other_topics(wanted: Wanted, topics: tuple[str, ...]) -> None:
    """Refuse topics that the settings do not have, which would only ever be left out."""
    if others := sorted(wanted.topics.difference(topics)):
        raise SettingsError(f"--topic {others[0]}: no profile has this topic; the settings name {', '.join(topics)}")


def _dead_letter_options(
    config: Path | None, assignments: list[str] | None, servers: str | None, topic: str | None
) -> KafkaOptions:
    """Return where to read; from settings, or from servers alone."""
    if servers is None or config is not None or assignments:
        settings = load_settings(config, assignments)
        options = replace(kafka_options(settings), topics=(topic or settings.kafka.dead_letter_topic,))
        return replace(options, bootstrap_servers=servers) if servers else options
    return KafkaOptions(
        bootstrap_servers=servers, group_id="", topics=(topic or "duplicates.dlq",), delivery="at-least-once"
    )


def _letters(batches: Iterable[Batch], wanted: Wanted) -> Iterator[Letter]:
    """Yield the letters that are wanted; what cannot be read is reported."""
    for batch in batches:
        for unreadable in batch.unreadable:
            _say(f"passed over {unreadable.position}: {unreadable.reason}")
        yield from filter(wanted.takes, map(Letter, batch.records))


def _new(reader: SpanReader) -> Iterator[Batch]:
    """Yield what is written after the reader was made, for ever."""
    reader.start_at(reader.ends)
    while True:
        yield reader.poll(_POLL_S)


def _last(reader: SpanReader, options: KafkaOptions, wanted: Wanted, count: int) -> Iterator[Letter]:
    """Yield the last letters that are wanted, in order of time.

    Looks at a stretch before the ends, and at a longer one until enough are found; remembers places only, so that
    memory stays bounded however large the letters are.
    """
    stretch = max(_LOOK_BACK, count * 2)
    while True:
        starts = {each: max(reader.beginnings[each], end - stretch) for each, end in reader.ends.items()}
        reader.start_at(starts)
        found: dict[Partition, deque[tuple[float, Position]]] = {each: deque(maxlen=count) for each in reader.ends}
        for letter in _letters(reader.batches(), wanted):
            position = letter.record.position
            found[position.of].append((letter.time_s, position))
        if all(starts[each] == reader.beginnings[each] or len(found[each]) == count for each in found):
            break
        stretch *= _FURTHER
    with RecordFetcher(options) as fetcher:
        for _, position in sorted(heapq.nlargest(count, chain.from_iterable(found.values()))):
            record = fetcher.fetch(position)
            if record is not None:  # else it has expired meanwhile
                yield Letter(record)


def _show(letters: Iterable[Letter], console: Console, *, as_json: bool) -> None:
    letter = None
    for letter in letters:
        if as_json:
            typer.echo(letter_json(letter))
        elif console.is_terminal:
            console.print(letter_line(letter), soft_wrap=True)
        else:
            typer.echo(letter_line(letter).plain)
    if letter is None:
        _say("no dead letters, or none that was asked for")


def _summarise(letters: Iterable[Letter], *, as_json: bool) -> None:
    counts = Summary()
    for letter in letters:
        counts.add(letter)
    for line in [counts.as_json()] if as_json else counts.lines():
        typer.echo(line)


def _with_progress(tallies: Iterable[Tally], total: int | None) -> Tally:
    """Return the last of ``tallies`` while a line on standard error shows how many dead letters were replayed.

    Args:
        tallies: What was done so far, at least once.
        total: How many there will be, as far as known.
    """
    console = Console(stderr=True)
    tally = Tally()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f} dead letters"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("replay", total=total)
        for tally in tallies:
            progress.update(task, completed=tally.replayed_count)
    return tally


def _report(text: str, tally: Tally) -> None:
    for line in (text, *tally.left_out()):
        typer.echo(line)


def _say(text: str) -> None:
    typer.echo(f"streamdedup: {text}", err=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(dlq, name="dlq")
