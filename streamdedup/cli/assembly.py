"""Builds the parts of the daemon from settings, with the indexes and detectors of ``streamdedup.indexes``."""

from collections.abc import Callable

from streamdedup import __version__
from streamdedup.daemon.batch import Pipeline
from streamdedup.daemon.breaker import BreakerOptions
from streamdedup.daemon.publisher import LoopOptions
from streamdedup.daemon.rebuild import Rebuilder, RebuildTarget
from streamdedup.detection.detector import Detector
from streamdedup.index.contract import Index
from streamdedup.index.redis.admin import IndexUpkeep
from streamdedup.index.redis.keys import Keys
from streamdedup.index.redis.servers import Servers
from streamdedup.index.redis.staging import RedisStagingIndex
from streamdedup.indexes import detector_options, lifetime_ms, namespace_of, redis_store
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.reader import KafkaHistory
from streamdedup.settings import Profile, Settings, crash_point
from streamdedup.testing.crash_points import CrashPoint, Steps
from streamdedup.wire import Decoder
from streamdedup.wire.dead_letters import DaemonInfo

#: Share of the transaction timeout that sending the messages may take.
_DELIVERY_SHARE = 5 / 6


def kafka_options(settings: Settings) -> KafkaOptions:
    """Return the options of the Kafka transport."""
    kafka = settings.kafka
    return KafkaOptions(
        bootstrap_servers=",".join(kafka.bootstrap_servers),
        group_id=kafka.group_id,
        topics=tuple(topic for profile in settings.profiles.values() for topic in profile.topics),
        delivery=kafka.delivery,
        transactional_id=kafka.transactional_id,
        group_instance_id=kafka.group_instance_id,
        on_unreadable=kafka.on_unreadable,
        on_out_of_range="earliest" if kafka.auto_offset_reset == "earliest" else "halt",
        api_version=kafka.api_version,
        compression=None if kafka.compression == "none" else kafka.compression,
        max_poll_records=kafka.batch_records,
        max_request_bytes=kafka.max_message_bytes,
        max_batch_bytes=kafka.max_batch_bytes,
        session_timeout_s=kafka.session_timeout_s,
        heartbeat_interval_s=min(3.0, kafka.session_timeout_s / 3),
        max_poll_interval_s=kafka.max_poll_interval_s,
        fetch_timeout_s=max(kafka.request_timeout_s, kafka.session_timeout_s + 5),
        produce_timeout_s=kafka.request_timeout_s,
        delivery_timeout_s=kafka.transaction_timeout_s * _DELIVERY_SHARE,
        transaction_timeout_s=kafka.transaction_timeout_s,
        **kafka.security(),
    )


def index_upkeep(settings: Settings, name: str, servers: Servers) -> IndexUpkeep:
    """Return the tool that inspects or deletes the index of a profile."""
    return IndexUpkeep(servers, namespace_of(settings, name))


def redis_keys(settings: Settings) -> list[Keys]:
    """Return the key names of each profile's index."""
    return [
        Keys(namespace_of(settings, name), profile.banding().bands, settings.redis.shards)
        for name, profile in settings.profiles.items()
    ]


def decoder_of(profile: Profile) -> Decoder:
    """Return the decoder of the records of a profile."""
    return Decoder(
        id_field=profile.id_field,
        text_fields=profile.text_fields,
        published_at_field=profile.published_at_field,
        source_field=profile.source_field,
        op_field=profile.op_field,
        max_text_bytes=profile.max_text_bytes,
    )


def pipeline(name: str, profile: Profile, index: Index) -> Pipeline:
    """Return the pipeline of a profile."""
    return Pipeline(
        name=name,
        decoder=decoder_of(profile),
        detector=Detector(detector_options(name, profile), index),
        index=index,
        fingerprint=profile.fingerprint(),
        threshold=profile.threshold,
        max_matches=profile.max_matches,
        silent_until_ms=profile.index_silently_until_ms,
        in_order=profile.records_in_order,
        slack_ms=round(profile.retention_slack_s * 1000),
        lifetime_ms=lifetime_ms(profile),
        containment_threshold=profile.containment_threshold,
    )


def rebuilder(settings: Settings, servers: Servers, on_keys: Callable[[int], None] = lambda _count: None) -> Rebuilder:
    """Return the rebuilder of lost indexes.

    Args:
        settings: All settings.
        servers: Servers of the indexes.
        on_keys: Called with the number of keys of the old index that were deleted since the last call.
    """

    def open_target(name: str) -> RebuildTarget:
        profile = settings.profiles[name]
        store = redis_store(settings, name, servers, in_staging=True)
        kept_s = profile.retention_s + profile.retention_slack_s
        return RebuildTarget(
            staging=RedisStagingIndex(servers, store, on_keys),
            pipeline=pipeline(name, profile, store),
            topics=profile.topics,
            kept_ms=round(kept_s * 1000),
        )

    return Rebuilder(open_target, KafkaHistory(kafka_options(settings)), settings.kafka.duplicates_topic)


def crash_steps() -> Steps | None:
    """Return the wrappers that end the daemon at the crash point in the environment; None without a crash point.

    Raises:
        SettingsError: There is no such point.
    """
    point = crash_point()
    return None if point is None else Steps(CrashPoint(point))


def pipelines(settings: Settings, servers: Servers, steps: Steps | None = None) -> dict[str, Pipeline]:
    """Return the pipeline of each input topic.

    Args:
        settings: All settings.
        servers: Servers of the indexes.
        steps: Wraps the indexes, for a crash point.
    """
    by_topic: dict[str, Pipeline] = {}
    for name, profile in settings.profiles.items():
        index: Index = redis_store(settings, name, servers)
        of_profile = pipeline(name, profile, steps.of_store(index) if steps else index)
        by_topic |= dict.fromkeys(profile.topics, of_profile)
    return by_topic


def loop_options(settings: Settings) -> LoopOptions:
    """Return the options of the loop."""
    return LoopOptions(
        duplicates_topic=settings.kafka.duplicates_topic,
        dead_letter_topic=settings.kafka.dead_letter_topic,
        max_message_bytes=settings.kafka.max_message_bytes,
        daemon=DaemonInfo(settings.kafka.group_id, settings.kafka.instance_id, __version__),
        breaker=BreakerOptions(settings.service.dead_letter_limit, settings.service.dead_letter_window),
        on_index_lost=settings.service.on_index_lost,
        batch_records=settings.kafka.batch_records,
    )
