"""``streamdedup topics``: create the topics of the daemon; ``cli.checks`` verifies what is created here."""

from typing import Annotated

import typer

from streamdedup.cli.assembly import alert_writer, kafka_options
from streamdedup.cli.checks import duplicates_kept_ms
from streamdedup.cli.output import tell
from streamdedup.cli.settings_options import ConfigOption, SetOption, load_settings
from streamdedup.counts import counted
from streamdedup.indexes import lifetime_ms
from streamdedup.kafka.admin import BROKERS_DEFAULT, CreatedTopics, create_topics
from streamdedup.settings import Settings

#: Settings of the dead-letter topic. A dead letter has the time of its record, so a retention would remove dead letters
#: about old records at once. A compacted topic refuses records without a key.
_DEAD_LETTER_CONFIG = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
#: Kafka's default of ``max.message.bytes``: new output topics never get a lower limit.
_DEFAULT_LIMIT_BYTES = 1_048_588

topics = typer.Typer(no_args_is_help=True, help="Create the topics that the daemon needs.")


@topics.command()
def create(
    config: ConfigOption = None,
    assignments: SetOption = None,
    partitions: Annotated[int, typer.Option(min=1, max=2**31 - 1, help="Partitions of each topic.")] = 4,
    replication: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=2**15 - 1,
            show_default="the broker's",
            help="Replicas of each partition; 3 for data that must not be lost.",
        ),
    ] = None,
) -> None:
    """Create the missing ones of the input topics, the duplicates topic and the dead-letter topic.

    Existing topics are not changed. The duplicates topic keeps alerts as long as a rebuild of the index needs them
    (retention plus retention_slack, the longest of all profiles); an input topic keeps records as long as its profile
    needs them, or longer by the broker's default; the dead-letter topic keeps dead letters without limit. The two
    output topics accept messages of kafka.max_message_bytes. Other settings are the broker's defaults. With
    kafka.alert_format = "avro", the schema of alerts is registered.

    Example:  streamdedup topics create --config streamdedup.toml --partitions 6 --replication 3
    """
    settings = load_settings(config, assignments)
    kept_ms = {topic: lifetime_ms(profile) for profile in settings.profiles.values() for topic in profile.topics}
    names = [*kept_ms, settings.kafka.duplicates_topic, settings.kafka.dead_letter_topic]
    outcome = create_topics(
        kafka_options(settings),
        dict.fromkeys(names, partitions),
        replication_factor=BROKERS_DEFAULT if replication is None else replication,
        configs=output_configs(settings),
        kept_ms=kept_ms,  # least retention: a longer default of the broker stays
    )
    for name in names:
        tell(f"{name}: {_outcome_text(name, outcome, partitions)}")
    if (writer := alert_writer(settings)) is not None:
        is_new = writer.register()
        tell(f"{writer.subject}: {'schema registered' if is_new else 'has the schema, unchanged'}")


def output_configs(settings: Settings) -> dict[str, dict[str, str]]:
    """Return the settings of both output topics, by topic. Public for tests."""
    limit = {"max.message.bytes": str(max(_DEFAULT_LIMIT_BYTES, settings.kafka.max_message_bytes))}
    retention = {"cleanup.policy": "delete", "retention.ms": str(duplicates_kept_ms(settings)), "retention.bytes": "-1"}
    return {
        settings.kafka.duplicates_topic: limit | retention,
        settings.kafka.dead_letter_topic: limit | _DEAD_LETTER_CONFIG,
    }


def _outcome_text(name: str, outcome: CreatedTopics, partitions: int) -> str:
    if name in outcome.created:
        return f"created, with {counted(partitions, 'partition')}"
    count = outcome.partition_counts.get(name)
    if count is None:
        return "exists, unchanged"  # its partitions are unknown without the right to describe it
    difference = "" if count == partitions else f" instead of {partitions:,}"
    return f"exists with {counted(count, 'partition')}{difference}, unchanged"
