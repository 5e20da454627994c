"""``streamdedup tail``: follow alerts as lines, as JSON, or with both texts side by side (``rendering.pairs``)."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Annotated

import typer

from streamdedup.cli.assembly import alert_reader
from streamdedup.cli.output import tell_prefixed
from streamdedup.cli.rendering.pairs import AlertView
from streamdedup.cli.rendering.terminal import make_console
from streamdedup.cli.settings_options import ConfigOption, SetOption, load_settings
from streamdedup.cli.topic_reading import reading_options, text_fetcher
from streamdedup.errors import MessageError, SettingsError
from streamdedup.kafka.reader import TopicReader
from streamdedup.wire import Alert, AlertReader, decode_alert, one_line

_POLL_S = 1.0  # longest wait of one poll for records, in seconds; Ctrl-C ends the wait at once


def tail(
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write each alert as one line of JSON.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Fetch both texts and show the differences.")] = False,
    from_beginning: Annotated[bool, typer.Option(help="Start at the oldest alert; default: new alerts only.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Stop after this many alerts.")] = None,
) -> None:
    """Follow the duplicates topic: lines, JSON, or both texts side by side.

    Runs until Ctrl-C or --limit. Partitions that the topic gets meanwhile are read from their beginning. Unreadable
    alerts are reported on standard error and skipped.

    Example:  streamdedup tail --config streamdedup.toml --diff

    Example:  streamdedup tail --config streamdedup.toml --from-beginning --limit 100 --json | jq .document.id
    """
    if as_json and diff:
        raise SettingsError("--json and --diff: give one of them")
    settings = load_settings(config, assignments)
    topic = settings.kafka.duplicates_topic
    options = reading_options(settings, topic)
    with ExitStack() as stack:
        reader = stack.enter_context(TopicReader(options))
        if not from_beginning:
            reader.start_at(reader.ends)
        view = AlertView(make_console(), text_fetcher(stack, options, settings) if diff else None)
        if not as_json:
            tell_prefixed(f"following {topic} from its {'beginning' if from_beginning else 'end'}; Ctrl-C ends")
        count = 0
        for value, alert in _alerts(reader, alert_reader(settings)):
            if as_json:
                sys.stdout.buffer.write(one_line(value) + b"\n")
                sys.stdout.buffer.flush()
            else:
                view.show(alert)
            count += alert.part == alert.parts  # a large alert is several records, and counts with the last of them
            if count == limit:
                return


def _alerts(reader: TopicReader, alerts: AlertReader) -> Iterator[tuple[bytes, Alert]]:
    """Yield the JSON of each alert, and the alert; unreadable alerts are reported. Never ends by itself."""
    while True:
        reader.add_new_partitions()
        batch = reader.poll(_POLL_S)
        for unreadable in batch.unreadable:
            tell_prefixed(f"passed over {unreadable.position}: {unreadable.reason}")
        for record in batch.records:
            try:
                value = alerts.as_json(record.value or b"")
                yield value, decode_alert(value)
            except MessageError as error:
                tell_prefixed(f"passed over {record.position}: {error}")
