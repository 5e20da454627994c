"""Builds the parts of the daemon, and single parts for other commands, from settings.

A new setting is passed on here; one that detection needs, in ``indexes.detector_options``.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import TypeVar

from streamdedup import __version__
from streamdedup.cli.settings_options import with_same_settings
from streamdedup.daemon.batch import Pipeline
from streamdedup.daemon.options import LoopOptions
from streamdedup.daemon.rebuild import Rebuilder
from streamdedup.daemon.rebuild_run import RebuildTarget
from streamdedup.detection.detector import Detector
from streamdedup.errors import DecodeError, RegistryUnavailable, SettingsError
from streamdedup.index.backend import Backend
from streamdedup.index.contract import Index
from streamdedup.index.values import marker_lifetime
from streamdedup.indexes import detector_options, lifetime_ms
from streamdedup.kafka.history import KafkaHistory
from streamdedup.kafka.login import KafkaLogin, TokenLogin, bearer_token, client_credentials
from streamdedup.kafka.options import KafkaOptions
from streamdedup.settings import Profile, Settings
from streamdedup.settings.files import read_secret
from streamdedup.settings.kafka import Kafka
from streamdedup.wire import Alert, AlertReader, Decoder, Registry, alert_json
from streamdedup.wire.avro_alerts import AvroAlerts
from streamdedup.wire.dead_letters import DaemonInfo

#: Share of the transaction timeout that sending the messages may take; the remainder is for offsets and commit. A
#: record must have failed, and have been seen to fail, before the broker aborts its transaction.
_DELIVERY_SHARE = 5 / 6
_HEARTBEAT_S = 3.0  # longest time between heartbeats, in seconds; at least three fit into a session
#: The consumer's request timeout is at least the session timeout plus this, in seconds: a broker may answer a request
#: to join the group only when the session of an earlier member ends.
_JOIN_MARGIN_S = 5
#: Longest time limit of a request of the consumer, in seconds: the loop makes no step meanwhile, and its watchdog waits
#: for a minute at least.
_LONGEST_REQUEST_S = 50.0

Writer = TypeVar("Writer")
#: Module that a login needs, and the extra that has it, by SASL mechanism.
_LIBRARIES = {"AWS_MSK_IAM": ("botocore", "aws"), "GSSAPI": ("gssapi", "kerberos")}


# Cached, because the login by ``sasl_token_url`` has a thread, which renews the one token of the process.
@lru_cache(maxsize=1)
def kafka_login(kafka: Kafka) -> KafkaLogin | None:
    """Return the login that all Kafka clients share, by tokens or by a password file; None for any other login."""

    def secret_reader(key: str) -> Callable[[], str]:
        # Read at each login, because the secret may be in a file that changes. `or ""` is for the type: validated
        # settings have the secrets and the client id that a login needs.
        return lambda: kafka.secret(key) or ""

    mechanism = kafka.sasl_mechanism
    if mechanism in _LIBRARIES:
        module, extra = _LIBRARIES[mechanism]
        try:
            import_module(module)
        except (ImportError, OSError) as error:  # OSError: the module cannot load a system library
            text = f"kafka.sasl_mechanism = {mechanism} needs {module}: pip install 'streamdedup[{extra}]'"
            raise SettingsError(text) from error
    if kafka.sasl_token_url is not None:
        fetch = client_credentials(
            kafka.sasl_token_url,
            kafka.sasl_client_id or "",
            secret_reader("sasl_client_secret"),
            kafka.sasl_token_scope,
            kafka.sasl_token_ca_file,
        )
        return TokenLogin(kafka.sasl_token_url, fetch)
    if kafka.sasl_token_file is not None:
        token_file = kafka.sasl_token_file
        return KafkaLogin("kafka.sasl_token_file", lambda: bearer_token(read_secret(token_file)))
    if kafka.sasl_password_file is not None:
        return KafkaLogin("kafka.sasl_password_file", secret_reader("sasl_password"))
    return None


def kafka_options(settings: Settings) -> KafkaOptions:
    kafka = settings.kafka
    return KafkaOptions(
        bootstrap_servers=",".join(kafka.bootstrap_servers),
        group_id=kafka.group_id,
        topics=tuple(topic for profile in settings.profiles.values() for topic in profile.topics),
        delivery=kafka.delivery,
        transactional_id=kafka.transactional_id,
        group_instance_id=kafka.group_instance_id,
        on_unreadable=kafka.on_unreadable,
        # Also with "window" the client begins at the oldest record: the daemon skips old ones (`max_start_age_ms`).
        on_out_of_range="halt" if kafka.auto_offset_reset == "fail" else "earliest",
        api_version=kafka.api_version,
        max_poll_records=kafka.batch_records,
        max_request_bytes=kafka.max_message_bytes,
        session_timeout_s=kafka.session_timeout_s,
        heartbeat_interval_s=min(_HEARTBEAT_S, kafka.session_timeout_s / 3),
        max_poll_interval_s=kafka.max_poll_interval_s,
        fetch_timeout_s=min(max(kafka.request_timeout_s, kafka.session_timeout_s + _JOIN_MARGIN_S), _LONGEST_REQUEST_S),
        produce_timeout_s=kafka.request_timeout_s,
        delivery_timeout_s=kafka.transaction_timeout_s * _DELIVERY_SHARE,
        transaction_timeout_s=kafka.transaction_timeout_s,
        create_command=with_same_settings("topics", "create"),  # with the options of this command line
        index_name=settings.redis.key_prefix,  # part of the client id, which tells the members of an index apart
        sasl_login=kafka_login(kafka),
        **kafka.security(),
    )


def registry_of(settings: Settings) -> Registry | None:
    section = settings.schema_registry
    if section.url is None:
        return None

    def authorization() -> str | None:
        try:
            return section.authorization()
        except SettingsError as error:
            # The password file cannot be used, as while it is replaced: the loop tries again.
            raise RegistryUnavailable(f"schema_registry.password: {error}") from error

    return Registry(section.url, authorization, section.tls_context, section.timeout_s)


def avro_alerts(settings: Settings) -> AvroAlerts | None:
    """Return the reader and writer of alerts in Avro; None without a schema registry.

    If the extra "registry" is not installed: None where alerts are JSON, else ``SettingsError``.
    """
    registry = registry_of(settings)
    try:
        return None if registry is None else AvroAlerts(registry, f"{settings.kafka.duplicates_topic}-value")
    except ModuleNotFoundError as error:
        if settings.kafka.alert_format == "json":
            return None
        raise SettingsError(f"kafka.alert_format needs {error.name}: pip install 'streamdedup[registry]'") from error


def alert_writer(settings: Settings) -> AvroAlerts | None:
    """Return the writer of alerts in Avro; None where alerts are JSON."""
    return None if settings.kafka.alert_format == "json" else avro_alerts(settings)


def alert_reader(settings: Settings) -> AlertReader:
    return avro_alerts(settings) or AlertReader()


def topic_decoder(settings: Settings, profile: Profile) -> Decoder:
    """Return the decoder for the records of a profile, in its formats."""
    try:
        return replace(
            file_decoder(profile),
            format=profile.format,
            registry=registry_of(settings),
            key_format=profile.key_format,
            key_field=profile.key_field,
        )
    except ModuleNotFoundError as error:
        text = f"format or key_format needs {error.name}: pip install 'streamdedup[registry]'"
        raise SettingsError(text) from error


def file_decoder(profile: Profile) -> Decoder:
    """Return the decoder for files of documents, which are JSON with the field names of a profile."""
    return Decoder(
        id_field=profile.id_field,
        text_fields=profile.text_fields,
        published_at_field=profile.published_at_field,
        source_field=profile.source_field,
        op_field=profile.op_field,
        max_text_bytes=profile.max_text_bytes,
        scope_field=profile.scope_field,
        default_scope=profile.default_scope,
        op_values=profile.op_values,
        deleted_field=profile.deleted_field,
    )


def required_writer(make: Callable[[str], Writer | None], subject: str) -> Writer:
    """Return the writer that ``make`` makes for a subject; raise ``SettingsError`` where it lacks a usable schema."""
    try:
        write = make(subject)
    except DecodeError as error:
        raise SettingsError(f"newest schema of {subject}: {error}") from error
    if write is None:
        raise SettingsError(f"the schema registry has no subject {subject}; register a schema first")
    return write


def pipeline(settings: Settings, name: str, index: Index) -> Pipeline:
    profile = settings.profiles[name]
    return Pipeline(
        name=name,
        decoder=topic_decoder(settings, profile),
        detector=Detector(detector_options(name, profile), index),
        index=index,
        fingerprint=profile.fingerprint(),
        threshold=profile.threshold,
        silent_until_ms=profile.index_silently_until_ms,
        max_start_age_ms=lifetime_ms(profile) if settings.kafka.auto_offset_reset == "window" else None,
        containment_threshold=profile.containment_threshold,
    )


def pipelines(settings: Settings, backend: Backend) -> dict[str, Pipeline]:
    """Return the pipeline by input topic."""
    by_topic: dict[str, Pipeline] = {}
    for name, profile in settings.profiles.items():
        by_topic |= dict.fromkeys(profile.topics, pipeline(settings, name, backend.index(name)))
    return by_topic


def rebuilder(settings: Settings, backend: Backend, on_keys: Callable[[int], None] = lambda _count: None) -> Rebuilder:
    """Return the rebuilder for lost indexes; ``on_keys`` gets the count of newly deleted keys of the old index."""
    reader = alert_reader(settings)

    def open_target(name: str) -> RebuildTarget:
        profile = settings.profiles[name]
        staging = backend.staging(name, on_keys)
        return RebuildTarget(
            staging=staging,
            pipeline=pipeline(settings, name, staging.store),
            topics=profile.topics,
            lifetime_ms=lifetime_ms(profile),
            markers_ms=marker_lifetime(lifetime_ms(profile)),  # the markers of deletions live longer than entries
            alert_reader=reader,
        )

    return Rebuilder(open_target, KafkaHistory(kafka_options(settings)), settings.kafka.duplicates_topic)


def loop_options(settings: Settings, encode_alert: Callable[[Alert], bytes] = alert_json) -> LoopOptions:
    """Return the options of the loop; ``encode_alert`` makes the value of an alert's record."""
    return LoopOptions(
        duplicates_topic=settings.kafka.duplicates_topic,
        dead_letter_topic=settings.kafka.dead_letter_topic,
        max_message_bytes=settings.kafka.max_message_bytes,
        daemon=DaemonInfo(settings.kafka.group_id, settings.kafka.instance_id, __version__),
        dead_letter_limit=settings.service.dead_letter_limit,
        on_index_lost=settings.service.on_index_lost,
        batch_records=settings.kafka.batch_records,
        copy_headers=settings.kafka.copy_headers,
        encode_alert=encode_alert,
    )
