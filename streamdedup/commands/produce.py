"""``streamdedup produce``: a corpus into a topic."""

import time
from typing import Annotated

import typer

from streamdedup.commands.assembly import decoder_of, kafka_options
from streamdedup.commands.config import ConfigOption, SetOption, load_settings
from streamdedup.commands.progress import read_with_progress
from streamdedup.corpora import CorpusReader
from streamdedup.corpora.detection import Format
from streamdedup.errors import SettingsError
from streamdedup.messages import Decoder
from streamdedup.service.kafka.feeder import Feeder
from streamdedup.settings import Settings

#: Seconds ahead of its schedule from which on a paced producer waits.
_AHEAD_S = 0.005


class Pace:
    """Keeps a sender to a number of records a second.

    Args:
        rate: Records a second; None for no limit.
    """

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._start = time.monotonic()
        self._sent_count = 0

    def wait(self) -> None:
        """Wait until the next record is due."""
        if self._rate is not None:
            ahead_s = self._start + self._sent_count / self._rate - time.monotonic()
            if ahead_s > _AHEAD_S:
                time.sleep(ahead_s)
        self._sent_count += 1


def _topic_decoder(settings: Settings, topic: str) -> Decoder:
    for profile in settings.profiles.values():
        if topic in profile.topics:
            return decoder_of(profile)
    known = ", ".join(name for profile in settings.profiles.values() for name in profile.topics)
    raise SettingsError(f"--topic {topic}: no profile has this topic; the settings name {known}")


def produce(
    files: Annotated[list[str], typer.Argument(help="Corpora: JSON lines, plain text, Reuters-21578; - for stdin.")],
    topic: Annotated[str, typer.Option("--topic", "-t", help="Topic to send to; one of a profile.")],
    config: ConfigOption = None,
    assignments: SetOption = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Records a second; as fast as it goes without.")] = None,
    corpus_format: Annotated[Format, typer.Option("--format", help="What the files hold.")] = "auto",
) -> None:
    """Send a corpus into an input topic, each document keyed by its id.

    JSON lines are sent untouched, also those that are no documents: the daemon makes dead letters of them.

    Example:  streamdedup produce articles.jsonl.gz --topic articles --config streamdedup.toml --rate 100
    """
    settings = load_settings(config, assignments)
    decoder = _topic_decoder(settings, topic)
    pace = Pace(rate)
    unreadable_count = 0
    with Feeder(kafka_options(settings)) as feeder:
        for file in files:
            reader = CorpusReader(file, format=corpus_format, on_bad="pass", decoder=decoder)
            for entry in read_with_progress(reader, file):
                pace.wait()
                feeder.send(topic, entry.key, entry.value())
            unreadable_count += reader.unreadable_count
    typer.echo(
        f"{feeder.delivered_count:,} records sent to {topic}, {unreadable_count:,} of them no documents", err=True
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(produce)
