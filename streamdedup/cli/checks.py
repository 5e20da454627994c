"""Checks of live servers, listed in ``CHECKS`` at the end of this module. Read-only; no finding holds a secret.

``cli.check`` prints all findings. ``cli.run`` asks the checks with a ``server``, logs their warnings and raises their
failures before the loop starts.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

from streamdedup import clock
from streamdedup.cli.assembly import alert_writer, kafka_options, topic_decoder
from streamdedup.counts import counted
from streamdedup.daemon.losses import Loss, find_losses
from streamdedup.daemon.metrics import Awaited
from streamdedup.daemon.rebuild import fillable_gaps
from streamdedup.errors import (
    BrokerMisconfigured,
    BrokerUnavailable,
    DecodeError,
    FatalError,
    IndexLost,
    IndexMismatch,
    MessageError,
    RegistryMisconfigured,
    SettingsError,
    StoreMisconfigured,
    StoreUnavailable,
    TransientError,
)
from streamdedup.findings import Finding
from streamdedup.index.backend import Backend
from streamdedup.index.fingerprints import compare_fingerprints
from streamdedup.indexes import lifetime_ms
from streamdedup.kafka.admin import CLEANUP, cleanup_policies
from streamdedup.kafka.checks import TopicNeed, check_kafka
from streamdedup.kafka.group_admin import read_committed_offsets_if_listed
from streamdedup.kafka.history import KafkaSpan
from streamdedup.kafka.protocols import CommittedOffset, Record, offsets_in
from streamdedup.position import Partition
from streamdedup.settings import Settings
from streamdedup.text.markup import has_html, html_warning
from streamdedup.wire import Decoder, RegistryFormat

_SAMPLE_RECORDS = 1_000  # records of a profile whose keys are checked
#: Cure of a lost index, by ``service.on_index_lost``.
_LOSS_CURES = {
    "fail": "call streamdedup index rebuild",
    "rebuild": "the first daemon rebuilds it from the topics",
    "continue": "the first daemon goes on without the lost documents",
}
_GAP_CURE = "the first daemon reads the missing records again, or rebuilds it if these are not enough"


@dataclass(slots=True)
class CheckRun:
    """Input of the checks; ``failed`` are the checks that an error has ended so far."""

    settings: Settings
    backend: Backend
    failed: "set[Check]" = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one server."""

    label: str  # ``Finding.check`` of an error of ``ask``
    #: Yields the findings; raises if the server does not answer or refuses the client, or a library is missing.
    ask: Callable[[CheckRun], Iterator[Finding]]
    server: Awaited | None = None  # for which ``run`` waits; None for a check that only ``check`` asks
    event: str = ""  # log event of a warning of ``run``
    needs: "Check | None" = None  # without which this one has nothing to ask: if it failed, this one has no findings

    def findings(self, check_run: CheckRun) -> Iterator[Finding]:
        """Yield the findings of ``ask``; if it raises, the last finding is the error."""
        if self.needs in check_run.failed:
            return
        try:
            yield from self.ask(check_run)
        except (TransientError, FatalError, SettingsError) as error:
            check_run.failed.add(self)
            yield Finding.failure(self.label, error)


def topic_needs(settings: Settings) -> list[TopicNeed]:
    kafka = settings.kafka
    # A rebuild reads the records of one lifetime. No `compaction_loss`: a compacted topic keeps the last version of a
    # document. `record_findings` looks for appends, which need all records.
    inputs = [
        TopicNeed(name=topic, operations=("READ",), kept_ms=lifetime_ms(profile))
        for profile in settings.profiles.values()
        for topic in profile.topics
    ]
    duplicates = TopicNeed(
        name=kafka.duplicates_topic,
        # A rebuild reads the published alerts, to claim their pairs.
        operations=("READ", "WRITE") if settings.service.on_index_lost == "rebuild" else ("WRITE",),
        message_bytes=kafka.max_message_bytes,
        compaction_loss="drops parts of alerts, and with them the claims by which a rebuild publishes no pair again",
        kept_ms=duplicates_kept_ms(settings),
    )
    letters = TopicNeed(
        name=kafka.dead_letter_topic,
        operations=("WRITE",),
        message_bytes=kafka.max_message_bytes,
        compaction_loss="refuses messages without a key and drops all but the last of each key",
    )
    return [*inputs, duplicates, letters]


def duplicates_kept_ms(settings: Settings) -> int:
    """Return the time for which a rebuild needs alerts, in milliseconds: the longest lifetime of all profiles."""
    return max(lifetime_ms(profile) for profile in settings.profiles.values())


def kafka_findings(check_run: CheckRun) -> Iterator[Finding]:
    return check_kafka(kafka_options(check_run.settings), topic_needs(check_run.settings))


def store_findings(check_run: CheckRun) -> Iterator[Finding]:
    return check_run.backend.findings(rebuilds=check_run.settings.service.on_index_lost == "rebuild")


def registry_findings(check_run: CheckRun) -> Iterator[Finding]:
    """Yield the findings about the schema registry: the newest schema of each topic whose values have schemas."""
    settings = check_run.settings
    for profile in settings.profiles.values():
        value_format = topic_decoder(settings, profile).value_format
        if isinstance(value_format, RegistryFormat):
            for topic in profile.topics:
                yield _subject_finding(f"{topic}-value", value_format, profile.text_fields)
    if (writer := alert_writer(settings)) is not None:
        yield _alerts_finding(writer.subject, writer.registered_id())


def _alerts_finding(subject: str, schema_id: int | None) -> Finding:
    """Return the finding about the subject of the alerts, from ``AvroAlerts.registered_id``."""
    if schema_id:
        return Finding.ok("schema", f"newest schema of {subject} is that of alerts")
    newest = "no schema" if schema_id is None else "another schema"
    cure = "the start of a daemon, or streamdedup topics create, registers the schema of alerts"
    return Finding.warning("schema", f"{subject} has {newest}; {cure}")


def _subject_finding(subject: str, value_format: RegistryFormat, text_fields: Sequence[str]) -> Finding:
    try:
        missing = value_format.missing_fields(subject)
    except DecodeError as error:
        return Finding.failure("schema", RegistryMisconfigured(f"newest schema of {subject}: {error}"))
    if missing is None:  # the registry has no such subject
        text = f"no subject {subject}; the first record shows whether its schema has the fields"
        return Finding.warning("schema", text)
    if missing_texts := [name for name in text_fields if name in missing]:
        text = f"newest schema of {subject} lacks text fields: {', '.join(missing_texts)}"
        return Finding.warning("schema", text)
    missing_optional = f"; it has no {', '.join(missing)}" if missing else ""
    return Finding.ok("schema", f"newest schema of {subject} has the text fields{missing_optional}")


@dataclass(slots=True)
class _RecordCounts:
    """Counts of a profile's newest records; ``foreign`` have the key of another document."""

    keyed: int = 0
    foreign: int = 0
    texts: int = 0
    html: int = 0
    appends_by_topic: Counter[str] = field(default_factory=Counter)

    def add(self, record: Record, decoder: Decoder) -> None:
        with suppress(MessageError):  # the daemon makes a dead letter of it
            document = decoder.decode(record.position, 0, record.key, record.value, record.headers)
            self.keyed += record.key is not None
            flaws = decoder.flaws(document, record.key, record.headers)
            self.foreign += document.doubtful or "key" in flaws
            self.appends_by_topic[record.position.topic] += document.op == "append"
            self.texts += document.op != "delete"
            self.html += has_html(document.text)


def record_findings(check_run: CheckRun) -> Iterator[Finding]:
    """Yield for each profile whether recent records have the keys of their documents; warn of HTML and lost appends."""
    settings = check_run.settings
    for name, profile in settings.profiles.items():
        options = replace(kafka_options(settings), topics=tuple(profile.topics))
        counts = _RecordCounts()
        policies: dict[str, str] = {}
        # Other findings report errors of Kafka, of the registry, and of a missing library.
        with suppress(TransientError, FatalError, SettingsError):
            decoder = topic_decoder(settings, profile)
            with KafkaSpan(options, since_ms=None, ends=None, newest_count=_SAMPLE_RECORDS) as span, decoder.batch():
                for record in chain.from_iterable(batch.records for batch in span.batches()):
                    counts.add(record, decoder)
            policies = cleanup_policies(options) if counts.appends_by_topic.total() else {}
        records = f"the newest {counted(counts.keyed, 'record')} with keys of profile {name}"
        if counts.foreign:
            text = f"{counts.foreign:,} of {records} have the key of another document: set key_format, or key by id"
            yield Finding.warning("keys", text)
        elif counts.keyed:
            yield Finding.ok("keys", f"{records} have the keys of their documents")
        if warning := html_warning(counts.html, counts.texts):
            yield Finding.warning("text", f"profile {name}: {warning}")
        for topic, count in counts.appends_by_topic.items():
            if count and "compact" in policies.get(topic, ""):
                text = (
                    f"{count:,} of the newest records of topic {topic} are appends, which need {CLEANUP} delete: of "
                    "a compacted topic a rebuild reads the last record of each key alone, and finds no document to "
                    "continue"
                )
                yield Finding.warning("appends", text)


def index_findings(check_run: CheckRun) -> Iterator[Finding]:
    """Yield the state of each index, also of a lost one."""
    settings, committed_offsets = check_run.settings, _committed_offsets(check_run)
    for name in settings.profiles:
        try:
            yield _index_finding(settings, name, check_run.backend, committed_offsets)
        except (StoreUnavailable, StoreMisconfigured, IndexMismatch) as error:
            yield Finding.failure("index", type(error)(f"index of {name}: {error}"))
            if isinstance(error, StoreUnavailable):
                return  # the next profile would have the same failure


def _index_finding(
    settings: Settings, name: str, backend: Backend, committed_offsets: Mapping[Partition, CommittedOffset] | None
) -> Finding:
    """Return the finding about the index of a profile; raises errors of the store, and ``IndexMismatch``."""
    inspector, profile = backend.inspector(name), settings.profiles[name]
    if inspector.is_staging():
        text = f"index of {name}: being rebuilt or deleted; a daemon that is started now waits for the end"
        return Finding.warning("index", text)
    stored = inspector.fingerprint()
    # Raises `IndexMismatch`.
    opening = None if stored is None else compare_fingerprints(stored, backend.configured_fingerprint(name))
    losses = find_losses(backend.index(name), offsets_in(committed_offsets or {}, profile.topics))
    unknown = "" if committed_offsets is not None else " (whether data was lost is not known without Kafka)"
    if inspector.is_half_dropped() and (not losses or settings.service.on_index_lost == "continue"):
        # The daemon raises the same where it creates an index.
        raise IndexMismatch(f"half deleted; call streamdedup index drop again{unknown}")
    if losses:
        return _loss_finding(settings, name, losses, backend.where(name))
    if opening is None:
        return Finding.ok("index", f"index of {name}: none yet; the first daemon begins one{unknown}")
    if opening.advisories:
        return Finding.warning("index", f"index of {name}: fits, but {'; '.join(opening.advisories)}{unknown}")
    return Finding.ok("index", f"index of {name}: fits the settings{unknown}")


def is_fillable_switch(settings: Settings, name: str, losses: Sequence[Loss]) -> bool:
    """Tell whether losses are those of a switch to a prepared index, whose gaps daemons fill."""
    return bool(losses) and all(loss.is_switch for loss in losses) and _daemons_fill_gaps(settings, name, losses)


def _daemons_fill_gaps(settings: Settings, name: str, losses: Sequence[Loss]) -> bool:
    lifetime = lifetime_ms(settings.profiles[name])
    is_fillable = fillable_gaps(losses, lifetime, clock.now_ms()) is not None
    return settings.service.on_index_lost == "rebuild" and is_fillable


def _loss_finding(settings: Settings, name: str, losses: Sequence[Loss], where: str) -> Finding:
    """Return what a daemon would do about the losses of an index (``recovery``)."""
    policy = settings.service.on_index_lost
    if is_fillable_switch(settings, name, losses):
        text = "new, as index prepare leaves it; the first daemon reads the committed records that it lacks"
        return Finding.ok("index", f"index of {name}: {text}")
    cure = _GAP_CURE if _daemons_fill_gaps(settings, name, losses) else _LOSS_CURES[policy]
    reason = f"{losses[0].reason}; restore the settings of {where} if they have changed, else {cure}"
    text = f"index of {name}: lost: {reason}"
    return Finding.failure("index", IndexLost(text)) if policy == "fail" else Finding.warning("index", text)


def _committed_offsets(check_run: CheckRun) -> dict[Partition, CommittedOffset] | None:
    """Return the committed offsets of the group; None if Kafka does not answer or refuses the client."""
    if KAFKA not in check_run.failed:
        with suppress(BrokerUnavailable, BrokerMisconfigured):
            return read_committed_offsets_if_listed(kafka_options(check_run.settings))
    return None


STORE = Check("redis", store_findings, server=Awaited.STORE, event="store_warning")
REGISTRY = Check("schema_registry", registry_findings, server=Awaited.SCHEMA_REGISTRY, event="topic_warning")
KAFKA = Check("kafka", kafka_findings, server=Awaited.KAFKA, event="topic_warning")
#: All checks, in the order of ``run`` and ``check``.
CHECKS = (
    STORE,
    REGISTRY,
    KAFKA,
    Check("keys", record_findings, needs=KAFKA),
    Check("index", index_findings, needs=STORE),
)
