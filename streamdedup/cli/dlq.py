"""``streamdedup dlq``: inspect the dead-letter topic, and replay dead letters after their cause is fixed."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Annotated

import typer
from rich.progress import BarColumn, TextColumn

from streamdedup.cli.assembly import kafka_options
from streamdedup.cli.collection import up_to_limit
from streamdedup.cli.dlq_replay import DeadLetterFilter, DeadLetterReplay, Tally, progress_group
from streamdedup.cli.guards import YesOption, confirm, require_confirmable
from streamdedup.cli.options import with_options
from streamdedup.cli.output import progress_bar, tell, tell_prefixed
from streamdedup.cli.rendering.dead_letters import dead_letter_json, dead_letter_line
from streamdedup.cli.rendering.safe_text import escaped
from streamdedup.cli.rendering.terminal import make_console, print_line
from streamdedup.cli.settings_options import ConfigOption, SetOption, load_settings, parse_since
from streamdedup.cli.topic_reading import decoders_of, reading_options, topic_profile
from streamdedup.errors import RegistryMisconfigured, RegistryUnavailable, SettingsError, StreamdedupError
from streamdedup.kafka.admin import require_topics, topic_ids
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.reader import TopicReader
from streamdedup.wire import Decoder, ErrorCode
from streamdedup.wire.dead_letters import DeadLetter

dlq = typer.Typer(no_args_is_help=True, help="Inspect the dead-letter topic, and replay dead letters.")


@dataclass(frozen=True)
class FilterOptions:
    code: Annotated[
        list[ErrorCode] | None, typer.Option("--code", metavar="CODE", help="Only this error code; may be repeated.")
    ] = None
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Only records of this input topic; may be repeated.")
    ] = None
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only failures since: 2h, 2026-05-01T09:00")] = None

    def filter(self) -> DeadLetterFilter:
        return DeadLetterFilter(
            codes=frozenset(map(str, self.code or ())),
            topics=frozenset(self.topic or ()),
            since_s=None if self.since is None else parse_since(self.since),
        )


@dlq.command()
@with_options
def inspect(
    config: ConfigOption = None,
    assignments: SetOption = None,
    *,
    conditions: FilterOptions,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write each as one line of JSON, with the whole value.")
    ] = False,
    count: Annotated[bool, typer.Option("--count", help="Only count them, by topic and code.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Stop after this many.")] = None,
) -> None:
    """Show dead letters, one per line: time, code, position of the record, reason, beginning of its value or fields.

    Reads to the end of the dead-letter topic, each partition in order.

    Example:  streamdedup dlq inspect --config streamdedup.toml --since 2h --count

    Example:  streamdedup dlq inspect --config streamdedup.toml --code missing_text --json
    """
    if as_json and count:
        raise SettingsError("--json and --count: give one of them")
    letter_filter = conditions.filter()
    settings = load_settings(config, assignments)
    options = reading_options(settings, settings.kafka.dead_letter_topic)
    with TopicReader(options) as reader:
        letters = up_to_limit(filter(letter_filter.accepts, _letters(reader)), limit)
        if count:
            shown_count = _show_counts(letters)
        elif as_json:
            shown_count = _show_json(letters)
        else:
            shown_count = _show_lines(letters, decoders_of(settings))
    if not shown_count:
        if letter_filter.topics:
            # A misspelt name must not look like a topic without failures: the call raises if a topic does not exist.
            # The error proposes no command to create it.
            needed_operations = dict.fromkeys(letter_filter.topics, ("DESCRIBE",))
            require_topics(replace(options, create_command=None), needed_operations)
        tell_prefixed("no dead letters, or none that the options accept")


@dlq.command()
@with_options
def replay(
    config: ConfigOption = None,
    assignments: SetOption = None,
    *,
    conditions: FilterOptions,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Ignore the stored progress: also dead letters replayed before.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count without sending anything.")] = False,
    yes: YesOption = False,
) -> None:
    """Send dead letters back to the topics of their records, after the cause of the failure is fixed.

    Key, value, headers, record time and partition are those of the record. Dead letters that arrive during the replay
    are left for the next one. The replay stores its progress, so the next one sends only new dead letters; with --code,
    --topic or --since it stores none. Kafka deletes the progress offsets.retention.minutes (7 days by default) after
    the last replay that stored it. A replay without stored progress says so, unless it has --since; --yes then needs
    --from-beginning, --code, --topic or --since.

    Example:  streamdedup dlq replay --config streamdedup.toml --code missing_text --dry-run
    """
    settings = load_settings(config, assignments)
    letter_filter = conditions.filter()
    options = kafka_options(settings)
    for topic in sorted(letter_filter.topics):
        topic_profile(settings, topic)  # raises if no profile has the topic
    # Records without bytes are fetched from their topics.
    needed: dict[str, tuple[str, ...]] = dict.fromkeys(options.topics, ("READ",))
    if not dry_run:
        require_confirmable("sends records to input topics", yes=yes)
        needed |= dict.fromkeys(letter_filter.topics or options.topics, ("READ", "WRITE"))
    partition_counts = require_topics(options, needed)
    letter_options = replace(options, topics=(settings.kafka.dead_letter_topic,))
    ids = topic_ids(replace(options, topics=options.topics + letter_options.topics))
    with DeadLetterReplay(
        letter_options, letter_filter, partition_counts, ids, from_beginning=from_beginning
    ) as replayer:
        _tell_start(replayer, letter_options, must_have_progress=yes and not dry_run and letter_filter.accepts_all)
        total = None
        # Counting reads the dead letters once more, so a replay with --yes does without it.
        if dry_run or not yes:
            tally = replayer.count()
            _report("to replay", tally)
            total = tally.replayed_count
            if dry_run:
                return
            if not total:
                if not (from_beginning or replayer.lacks_progress):
                    replayer.store_progress()  # again: Kafka deletes it some time after the last commit
                return
            confirm("Replay them?", yes=yes)
        _report("replayed", _run(replayer, total))
    if letter_filter.accepts_all:
        group = progress_group(options.group_id)
        tell_prefixed(f"the consumer group {group} stores the progress, for offsets.retention.minutes of the broker")
    else:
        tell_prefixed("--code, --topic and --since store no progress: the next replay sends these dead letters again")


def _tell_start(replayer: DeadLetterReplay, options: KafkaOptions, *, must_have_progress: bool) -> None:
    """Say that all dead letters are read, if the topic is new or has no progress; or refuse missing progress."""
    if replayer.is_recreated:
        tell_prefixed(f"{options.topics[0]} was created again since the last replay; all of it is read")
    if replayer.lacks_progress:
        notice = (
            f"the consumer group {progress_group(options.group_id)} stores no progress: this is the first replay, or "
            "Kafka has deleted the progress (offsets.retention.minutes); all dead letters are read, also those sent "
            "before"
        )
        if must_have_progress:
            cure = "run it without --yes, limit it by --since, or add --from-beginning"
            raise StreamdedupError(f"--yes: {notice}: {cure}")
        tell_prefixed(notice)


def _letters(reader: TopicReader) -> Iterator[DeadLetter]:
    for batch in reader.batches():
        for unreadable in batch.unreadable:
            tell_prefixed(f"passed over {unreadable.position}: {unreadable.reason}")
        yield from map(DeadLetter, batch.records)


def _show_json(letters: Iterable[DeadLetter]) -> int:
    shown_count = 0
    for letter in letters:
        shown_count += 1
        typer.echo(dead_letter_json(letter))
    return shown_count


def _show_lines(letters: Iterable[DeadLetter], decoders: dict[str, Decoder]) -> int:
    """Print a line for each dead letter, and return their number; ``decoders`` are by input topic."""
    console, shown_count = make_console(), 0
    with ExitStack() as stack:
        for decoder in set(decoders.values()):
            stack.enter_context(decoder.batch())  # one request for each unknown schema
        for letter in letters:
            shown_count += 1
            print_line(console, dead_letter_line(letter, _fields(letter, decoders)))
    return shown_count


def _show_counts(letters: Iterable[DeadLetter]) -> int:
    """Print the counts by topic and code, and return their sum."""
    counts = Counter((letter.topic, letter.code) for letter in letters)
    for (topic, code), count in counts.most_common():
        tell(f"{count:>10,}  {escaped(f'{topic}  {code}', 500)}")
    return counts.total()


def _fields(letter: DeadLetter, decoders: dict[str, Decoder]) -> bytes | None:
    """Return the fields of the value as JSON, or None without a decoder or a value."""
    decoder = decoders.get(letter.topic)
    if decoder is None or letter.record.value is None:
        return None
    try:
        return decoder.shown_fields(letter.record.value, letter.headers)
    except (RegistryUnavailable, RegistryMisconfigured) as error:
        tell_prefixed(f"values are shown as bytes: {error}")
        decoders.clear()  # later letters do not ask the registry
        return None


def _run(replayer: DeadLetterReplay, total: int | None) -> Tally:
    """Replay, with progress on standard error; ``total`` is the count of dead letters to replay, if known."""
    tally = Tally()  # the result if there is no dead letter
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f} dead letters"))
    with progress_bar(*columns) as progress:
        task = progress.add_task("replay", total=total)
        for tally in replayer.run():
            progress.update(task, completed=tally.replayed_count)
    return tally


def _report(title: str, tally: Tally) -> None:
    for line in (f"{title}: {tally.replayed_text()}", *tally.left_out()):
        tell(line)
