"""``streamdedup tail``: look on while alerts arrive, as lines, as JSON, or with both texts side by side."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from streamdedup.cli.assembly import decoder_of, kafka_options
from streamdedup.cli.config import BootstrapServersOption, ConfigOption, SetOption, load_settings
from streamdedup.cli.show import TIME_FORMAT, Side, make_console, match_line, side_by_side
from streamdedup.errors import MessageError, SettingsError
from streamdedup.kafka import KafkaOptions
from streamdedup.kafka.protocols import Record
from streamdedup.kafka.reader import RecordFetcher, TopicReader
from streamdedup.position import Position
from streamdedup.settings import Settings
from streamdedup.wire import AlertPart, Decoder, content_digest, decode_alert

#: Longest wait for records, in seconds; Ctrl-C ends it at once.
_POLL_S = 1.0


class Texts:
    """Fetches the texts behind alerts from Kafka.

    Args:
        fetcher: Fetches records.
        decoders: How the records of each input topic are read; other topics by the default field names.
    """

    def __init__(self, fetcher: RecordFetcher, decoders: Mapping[str, Decoder]) -> None:
        self._fetcher = fetcher
        self._decoders = decoders
        self._default = Decoder()

    def side(self, document_id: str, digest: str, position: Position) -> Side:
        """Return a document with its text, or without when the text that the alert speaks of cannot be had any more.

        Raises:
            BrokerUnavailable: Kafka did not answer.
            FatalError: The broker refuses us for good.
        """
        try:
            record = self._fetcher.fetch(position)
        except MessageError:
            record = None  # the client cannot parse it, which the daemon has reported
        text = None if record is None else self._text(record)
        # A topic that was deleted and made anew has other records at the same places.
        if text is not None and content_digest(text).hex() != digest:
            text = None
        return Side(document_id, position, text)

    def _text(self, record: Record) -> str | None:
        decoder = self._decoders.get(record.position.topic, self._default)
        try:
            return decoder.decode(record.position, record.timestamp_ms, record.key, record.value).text
        except MessageError:
            return None


class AlertView:
    """Shows alerts to a person.

    Args:
        console: Where to.
        texts: Fetches both texts of each pair, to show them side by side; None shows lines only.
        time_format: How to write times.
        max_pairs: Most pairs of one alert to show; None for all.
    """

    def __init__(
        self,
        console: Console,
        texts: Texts | None = None,
        time_format: str = TIME_FORMAT,
        max_pairs: int | None = None,
    ) -> None:
        self._console = console
        self._texts = texts
        self._time_format = time_format
        self._max_pairs = max_pairs

    def show(self, part: AlertPart) -> None:
        """Print each pair of the alert.

        Raises:
            BrokerUnavailable: Kafka did not answer.
            FatalError: The broker refuses us for good.
        """
        alert = part.alert
        new = self._texts.side(alert.document_id, alert.digest, alert.position) if self._texts else None
        for match in alert.matches[: self._max_pairs]:
            self._console.print(match_line(alert, match, self._time_format), soft_wrap=True)
            if new is not None and self._texts is not None:
                old = self._texts.side(match.id, match.digest, match.position)
                self._console.print(side_by_side(new, old, coloured=self._console.color_system is not None))
                self._console.print()
        if self._max_pairs is not None and len(alert.matches) > self._max_pairs:
            self._console.print(Text(f"          and {len(alert.matches) - self._max_pairs:,} more like it", "dim"))


def decoders_of(settings: Settings) -> dict[str, Decoder]:
    """Return how the records of each input topic are read."""
    return {
        topic: decoder
        for profile in settings.profiles.values()
        for decoder in [decoder_of(profile)]
        for topic in profile.topics
    }


def _sources(
    config: Path | None, assignments: list[str] | None, servers: str | None, topic: str | None
) -> tuple[KafkaOptions, dict[str, Decoder]]:
    """Return where to read, and how; from settings, or from servers alone.

    Raises:
        SettingsError: The settings are wrong, or neither settings nor servers are given.
    """
    if servers is None or config is not None or assignments:
        settings = load_settings(config, assignments)
        options = replace(kafka_options(settings), topics=(topic or settings.kafka.duplicates_topic,))
        return (replace(options, bootstrap_servers=servers) if servers else options), decoders_of(settings)
    bare = KafkaOptions(
        bootstrap_servers=servers, group_id="", topics=(topic or "duplicates",), delivery="at-least-once"
    )
    return bare, {}


def _read(reader: TopicReader) -> Iterator[Record]:
    """Yield records for ever; what cannot be read is reported."""
    while True:
        batch = reader.poll(_POLL_S)
        for unreadable in batch.unreadable:
            _report(f"{unreadable.position}: {unreadable.reason}")
        yield from batch.records


def _decode(record: Record) -> AlertPart | None:
    """Return the alert in a record; one that is none is reported."""
    try:
        return decode_alert(record.value or b"")
    except MessageError as error:
        _report(f"{record.position}: {error}")
        return None


def _report(text: str) -> None:
    typer.echo(f"streamdedup: passed over {text}", err=True)


def _write_json(record: Record) -> None:
    """Write the alert as it is, on one line."""
    value = record.value or b""
    line = value if b"\n" not in value else msgspec.json.format(value, indent=-1)
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def tail(
    config: ConfigOption = None,
    assignments: SetOption = None,
    bootstrap_servers: BootstrapServersOption = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Topic of the alerts; that of the settings, or duplicates.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write each alert as one line of JSON.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Fetch both texts and show what differs.")] = False,
    from_beginning: Annotated[bool, typer.Option(help="Start at the oldest alert, not behind the newest.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Stop after so many alerts.")] = None,
) -> None:
    """Follow the duplicates topic: lines, JSON, or both texts side by side.

    Ends with Ctrl-C, or by --limit. Alerts that cannot be read are reported on standard error and passed over.

    Example:  streamdedup tail --config streamdedup.toml --diff

    Example:  streamdedup tail -b localhost:9092 --from-beginning --limit 100 --json | jq .document.id
    """
    if as_json and diff:
        raise SettingsError("--json and --diff: give one of them")
    options, decoders = _sources(config, assignments, bootstrap_servers, topic)
    with ExitStack() as stack:
        reader = stack.enter_context(TopicReader(options, from_beginning=from_beginning))
        texts = Texts(stack.enter_context(RecordFetcher(options)), decoders) if diff else None
        view = AlertView(make_console(), texts)
        if not as_json:
            where = "beginning" if from_beginning else "end"
            typer.echo(f"streamdedup: following {options.topics[0]} from its {where}; Ctrl-C ends", err=True)
        count = 0
        for record in _read(reader):
            part = _decode(record)
            if part is None:
                continue
            if as_json:
                _write_json(record)
            else:
                view.show(part)
            count += part.part == part.parts
            if count == limit:
                return


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(tail)
