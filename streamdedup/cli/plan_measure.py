"""The measurement of ``streamdedup plan``: what documents of a sample cost the daemon and Redis on this machine."""

import os
import platform
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamdedup import __version__
from streamdedup.cli.assembly import decoder_of
from streamdedup.cli.output import batches, steps
from streamdedup.cli.tune_server import TuneServer
from streamdedup.cli.variation import vary
from streamdedup.detection.detector import Detector
from streamdedup.detection.lookup import IndexLookup, LookupQuery
from streamdedup.detection.model import Detection, DetectorOptions, Prepared
from streamdedup.evaluation.trial import PARTITION, document_at
from streamdedup.indexes import detector_options
from streamdedup.settings import Profile
from streamdedup.tuning.machine import (
    MACHINE_FORMAT,
    LayoutCosts,
    Machine,
    MeasuredProfile,
    MeasuredSample,
    StageCosts,
)
from streamdedup.tuning.memory import MOST_DOCUMENTS, Contents, Measurement
from streamdedup.tuning.plan import CHUNK_DOCUMENTS, Layout
from streamdedup.tuning.sample import Sample
from streamdedup.wire import Alert, encode_alert

#: Documents of a timed index: those of the sample, and copies with changed words. Rounds; the least costs count.
_TIMED_DOCUMENTS: Final = 4_000
_ROUNDS: Final = 3
#: Share of the words of a copy that are replaced, so that copies do not resemble each other.
_REPLACED: Final = 0.5
#: Slots for each band in the index that shows the cost of further slots.
_SHARDS: Final = 16
#: Look-ups that are timed, one after the other.
_LOOKUPS: Final = 300
_MEASURED_LAYOUTS: Final[tuple[Layout, ...]] = ("sets", "packed")


@dataclass(frozen=True, slots=True)
class MeasuredSetup:
    """The measured profile and documents.

    Attributes:
        name: Name of the profile.
        profile: The profile.
        namespace: Prefix of the keys in Redis and name of the profile, joined by a colon.
        bucket_layout: Bucket layout of the settings.
        sample: The documents, at least one.
        sample_name: Origin of the documents.
        record_bytes: Bytes of a record, mean.
    """

    name: str
    profile: Profile
    namespace: str
    bucket_layout: Layout
    sample: Sample
    sample_name: str
    record_bytes: float


class _TimedRun(NamedTuple):
    """Costs of a document in one timed index."""

    prepare_us: float
    index_us: float
    redis_us: float
    sent_bytes: float
    received_bytes: float


class _IndexedSample(NamedTuple):
    """The sample, members of its buckets, int64 (n_buckets,), and microseconds for an alert and for a look-up."""

    sample: MeasuredSample
    members: NDArray[np.int64]
    alert_us: float
    lookup_us: float
    lookup_redis_us: float


def measured_machine(server: TuneServer, setup: MeasuredSetup) -> Machine:
    """Measure this machine and a server.

    Raises:
        StoreUnavailable: The server does not answer.
    """
    options = detector_options(setup.name, setup.profile)
    documents = list(zip(setup.sample.ids, setup.sample.texts, strict=True))
    timed = _timed_documents(documents)
    layouts: dict[Layout, LayoutCosts] = {}
    prepare_us: list[float] = []
    with steps("measuring", 2 + len(_MEASURED_LAYOUTS) * (2 * _ROUNDS + 1)) as step:
        decode_us = _decode_us(setup.profile, timed)
        indexed = _indexed_sample(server, setup, options, documents)
        step(2)
        for layout in _MEASURED_LAYOUTS:
            one, many = (_best_run(server, options, timed, layout, shards, step) for shards in (1, _SHARDS))
            prepare_us += [one.prepare_us, many.prepare_us]
            layouts[layout] = _layout_costs(one, many, options, _memory(server, setup, options, indexed, layout))
            step(1)
    return Machine(
        format=MACHINE_FORMAT,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        processor=_processor(),
        cores=os.cpu_count() or 1,
        versions={"streamdedup": __version__, "Python": platform.python_version(), "server": server.name},
        profile=_measured_profile(setup, options),
        sample=indexed.sample,
        stages=StageCosts(
            decode_us=decode_us,
            prepare_us=min(prepare_us),
            alert_us=indexed.alert_us,
            lookup_us=indexed.lookup_us,
            lookup_redis_us=indexed.lookup_redis_us,
        ),
        layouts=layouts,
    )


def _measured_profile(setup: MeasuredSetup, options: DetectorOptions) -> MeasuredProfile:
    profile = setup.profile
    return MeasuredProfile(
        namespace=setup.namespace,
        shingles=f"{profile.shingle_unit} {profile.shingle_size}",
        bands=options.banding.bands,
        rows=options.banding.rows,
        bucket_layout=setup.bucket_layout,
        retention_s=profile.retention_s,
        retention_slack_s=profile.retention_slack_s,
    )


def _timed_documents(documents: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the documents, and changed copies until there are enough."""
    chance = random.Random(1)  # noqa: S311  no secret depends on it
    timed = list(documents)
    while len(timed) < _TIMED_DOCUMENTS:
        document_id, text = documents[len(timed) % len(documents)]
        timed.append((f"{document_id}#{len(timed)}", vary(text, _REPLACED, chance)))
    return timed


def _decode_us(profile: Profile, documents: Sequence[tuple[str, str]]) -> float:
    decoder, position = decoder_of(profile), document_at(0, "", "").position
    values = [msgspec.json.encode({profile.id_field: one, profile.text_fields[0]: text}) for one, text in documents]
    rounds = []
    for _ in range(_ROUNDS):
        started_s = time.process_time()
        for value in values:
            decoder.decode(position, 0, None, value)
        rounds.append(time.process_time() - started_s)
    return min(rounds) / len(values) * 1e6


def _best_run(
    server: TuneServer,
    options: DetectorOptions,
    documents: Sequence[tuple[str, str]],
    layout: Layout,
    shards: int,
    step: Callable[[int], None],
) -> _TimedRun:
    """Index the documents in some rounds, each in an empty index; return the least of each cost."""
    rounds = []
    for _ in range(_ROUNDS):
        rounds.append(_run(server, options, documents, layout, shards))
        step(1)
    return _TimedRun(*(min(costs) for costs in zip(*rounds, strict=True)))


def _run(
    server: TuneServer, options: DetectorOptions, documents: Sequence[tuple[str, str]], layout: Layout, shards: int
) -> _TimedRun:
    prepare_s = index_s = 0.0
    with server.index(options.banding.bands, layout, shards) as store:
        detector, fence = Detector(options, store), store.fence(PARTITION, 0, 0)
        # Tables that are built at the first text.
        detector.prepare([document_at(0, *documents[0])])
        before = server.counters()
        for chunk in batches((document_at(at, *one) for at, one in enumerate(documents)), CHUNK_DOCUMENTS):
            started_s = time.process_time()
            prepared = detector.prepare(chunk)
            prepared_s = time.process_time()
            result = detector.index(prepared, {PARTITION: fence})
            store.finish({PARTITION: chunk[-1].position.offset + 1}, result.pending_positions, [fence])
            prepare_s += prepared_s - started_s
            index_s += time.process_time() - prepared_s
        after = server.counters()
    count = len(documents)
    return _TimedRun(
        prepare_s / count * 1e6,
        index_s / count * 1e6,
        (after.cpu_s - before.cpu_s) / count * 1e6,
        (after.input_bytes - before.input_bytes) / count,
        (after.output_bytes - before.output_bytes) / count,
    )


def _layout_costs(one: _TimedRun, many: _TimedRun, options: DetectorOptions, parts: NDArray[np.float64]) -> LayoutCosts:
    """Return the costs of a layout from the runs with one slot and with ``_SHARDS`` slots for each band."""
    # Of each chunk, whose documents use all slots.
    further = (_SHARDS - 1) * options.banding.bands / CHUNK_DOCUMENTS
    fixed, each = (tuple(values) for values in parts.tolist())
    return LayoutCosts(
        index_us=one.index_us,
        redis_us=one.redis_us,
        slot_us=max(many.index_us - one.index_us, 0.0) / further,
        slot_redis_us=max(many.redis_us - one.redis_us, 0.0) / further,
        sent_bytes=one.sent_bytes,
        received_bytes=one.received_bytes,
        fixed_bytes=fixed,
        each_bytes=each,
    )


def _indexed_sample(
    server: TuneServer, setup: MeasuredSetup, options: DetectorOptions, documents: Sequence[tuple[str, str]]
) -> _IndexedSample:
    """Index the sample without changes: buckets, alerts, and costs of look-ups of the texts."""
    prepared: list[Prepared] = []
    detections: list[Detection] = []
    with server.index(options.banding.bands, setup.bucket_layout) as store:
        detector, fence = Detector(options, store), store.fence(PARTITION, 0, 0)
        for chunk in batches((document_at(at, *one) for at, one in enumerate(documents)), CHUNK_DOCUMENTS):
            prepared.append(detector.prepare(chunk))
            result = detector.index(prepared[-1], {PARTITION: fence})
            store.finish({PARTITION: chunk[-1].position.offset + 1}, result.pending_positions, [fence])
            detections += result.detections
        lookup_us, lookup_redis_us = _lookup_us(server, IndexLookup(options, server.reader(store)), documents)
    started_s = time.process_time()
    sizes = [sum(map(len, _messages(setup, detection))) for detection in detections]
    encode_s, alerts_count = time.process_time() - started_s, max(len(detections), 1)
    members = _bucket_members(prepared, setup.profile.bucket_cap)
    sample = MeasuredSample(
        name=setup.sample_name,
        documents=len(documents),
        document_bytes=setup.record_bytes,
        alerts_share=len(detections) / len(documents),
        matches=sum(len(detection.matches) for detection in detections) / alerts_count if detections else 1.0,
        alert_bytes=sum(sizes) / alerts_count if detections else setup.record_bytes,
        buckets=len(members) / len(documents),
        members=int(members.sum()) / len(documents),
    )
    return _IndexedSample(sample, members, encode_s / alerts_count * 1e6, lookup_us, lookup_redis_us)


def _lookup_us(server: TuneServer, lookup: IndexLookup, documents: Sequence[tuple[str, str]]) -> tuple[float, float]:
    """Return the microseconds of the service and of Redis for the look-up of a text."""
    texts = [text for _, text in documents[:_LOOKUPS]]
    lookup.look_up([LookupQuery(texts[0])], 0)
    before, started_s = server.counters(), time.process_time()
    for text in texts:
        lookup.look_up([LookupQuery(text)], 0)
    lookup_s, after = time.process_time() - started_s, server.counters()
    return lookup_s / len(texts) * 1e6, (after.cpu_s - before.cpu_s) / len(texts) * 1e6


def _messages(setup: MeasuredSetup, detection: Detection) -> list[bytes]:
    """Return the alert messages of a detection, as the daemon makes them."""
    document, profile = detection.document, setup.profile
    alert = Alert(
        profile=setup.name,
        document_id=document.id,
        digest=detection.digest.hex(),
        position=document.position,
        time_ms=document.time_ms,
        published_at=document.published_at,
        source=document.source,
        matches=detection.matches,
        cluster_id=detection.cluster_id,
        threshold=profile.threshold,
        detected_at_ms=document.time_ms,
    )
    return encode_alert(alert, profile.max_matches)


def _bucket_members(chunks: Sequence[Prepared], bucket_cap: int | None) -> NDArray[np.int64]:
    """Return the members of each bucket of all bands, int64 (n_buckets,)."""
    keys = np.concatenate([np.delete(prepared.band_keys, list(prepared.skips), axis=0) for prepared in chunks])
    counts = [np.unique(keys[:, band], return_counts=True)[1] for band in range(keys.shape[1])]
    members = np.concatenate(counts).astype(np.int64)
    return members if bucket_cap is None else np.minimum(members, bucket_cap)


def _memory(
    server: TuneServer, setup: MeasuredSetup, options: DetectorOptions, indexed: _IndexedSample, layout: Layout
) -> NDArray[np.float64]:
    """Return the fixed bytes of each kind of ``Costs`` and the bytes of one more of the kind, float64 (2, 4)."""
    measurement = Measurement(server, options, setup.sample, PARTITION)
    count, sample = float(MOST_DOCUMENTS), indexed.sample
    contents = Contents(count, options.banding.bands, sample.buckets * count, sample.members * count, count)
    costs = measurement.costs(contents, indexed.members, layout)
    return np.maximum([costs.fixed, costs.each], 0.0)


def _processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
