"""The members of clusters: a bounded memory of the alerts topic, and when it is complete."""

import asyncio
from contextlib import asynccontextmanager, closing, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from streamdedup.index.documents import EMPTY_CONTENT, IndexEntry
from streamdedup.position import Position
from streamdedup.serve import clusters
from streamdedup.serve.clusters import ClusterMemory
from streamdedup.serve.metrics import ServeMetrics
from streamdedup.serve.schemas import MemberBody
from streamdedup.wire import Alert, encode_alert
from tests import alerts
from tests.event_stream import DEADLINE_S, MemoryTopic
from tests.served import NEAR, TEXT, Service, no_kafka

NOW_MS = 100_000
LOOKBACK_MS = 50_000
MATCH = alerts.a_match("other", Position("articles", 0, 0))


def alert_of(document_id: str, cluster_id: str, time_ms: int = NOW_MS, source: str | None = None) -> Alert:
    document = alerts.a_document(document_id, Position("articles", 0, 1), time_ms=time_ms, source=source)
    return alerts.an_alert(document, MATCH, cluster_id=cluster_id, detected_at_ms=time_ms, cluster_size=2)


def encoded(alert: Alert) -> bytes:
    (value,) = encode_alert(alert)
    return value


def an_entry(document_id: str, time_ms: int = NOW_MS) -> IndexEntry:
    return IndexEntry(1, document_id, bytes(16), Position("articles", 0, 0), time_ms, 1, EMPTY_CONTENT)


def a_memory(open_reader=no_kafka, max_members: int = 100, now_ms=lambda: NOW_MS) -> ClusterMemory:
    return ClusterMemory(open_reader, LOOKBACK_MS, ServeMetrics(), now_ms, max_members)


def ids_of(memory: ClusterMemory, document_id: str, first_id: str, time_ms: int = NOW_MS) -> tuple[list[str], bool]:
    found = memory.members_of("articles", an_entry(document_id, time_ms), an_entry(first_id, time_ms), 80)
    return [member.id for member in found.members], found.complete


class TestMemory:
    def test_the_documents_of_alerts_are_members_and_the_first_document_is_one(self):
        with closing(a_memory()) as memory:
            memory.add(alert_of("b", "a", 99_000, "wire"))
            memory.add(alert_of("c", "a", 98_000))
            found = memory.members_of("articles", an_entry("b", 99_000), an_entry("a", 97_000), 80)
            assert found.members == [
                MemberBody("a", None, "1970-01-01T00:01:37.000Z", None),
                MemberBody("c", None, "1970-01-01T00:01:38.000Z", None),
                MemberBody("b", "wire", "1970-01-01T00:01:39.000Z", None),
            ]
            assert not found.complete  # the topic was not read

    def test_a_document_that_joins_another_cluster_leaves_the_first(self):
        with closing(a_memory()) as memory:
            memory.add(alert_of("b", "a"))
            memory.add(alert_of("b", "z"))
            assert ids_of(memory, "a", "a")[0] == ["a"]
            assert ids_of(memory, "b", "z")[0] == ["b", "z"]
            assert list(memory._clusters) == [("articles", "z")]

    def test_a_cluster_without_its_first_document_is_not_known(self):
        with closing(a_memory()) as memory:
            memory.add(alert_of("b", "a"))
            found = memory.members_of("articles", an_entry("b"), None, 80)
            assert ([member.id for member in found.members], found.complete) == (["b"], False)

    def test_the_members_of_one_cluster_are_bounded(self, monkeypatch):
        monkeypatch.setattr(clusters, "MAX_OF_CLUSTER", 3)
        with closing(a_memory()) as memory:
            memory._complete_since_ms = 0
            for number in range(3):
                memory.add(alert_of(f"d{number}", "d0"))
            assert ids_of(memory, "d0", "d0") == (["d0", "d1", "d2"], True)
            memory.add(alert_of("d3", "d0"))
            assert ids_of(memory, "d0", "d0") == (["d0", "d1", "d2"], False)

    def test_what_was_forgotten_is_not_complete_and_later_clusters_are(self):
        with closing(a_memory(max_members=2)) as memory:
            memory._complete_since_ms = 0
            for at, cluster in enumerate("abc"):
                memory.add(alert_of(f"{cluster}1", cluster, 1_000 * (at + 1)))
            assert ids_of(memory, "a", "a", 900) == (["a"], False)
            assert ids_of(memory, "b", "b", 1_001) == (["b", "b1"], True)

    def test_a_forgotten_cluster_is_as_old_as_its_latest_alert_in_any_order(self):
        """Alerts of several partitions arrive out of the order of their times."""
        with closing(a_memory(max_members=2)) as memory:
            memory._complete_since_ms = 0
            memory.add(alert_of("a1", "a", 3_000))
            memory.add(alert_of("a2", "a", 2_000))
            memory.add(alert_of("b1", "b", 4_000))
            assert ids_of(memory, "a", "a", 2_500) == (["a"], False)

    @given(
        st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abc"), st.integers(0, 99)), max_size=40),
        st.integers(1, 5),
    )
    def test_the_memory_is_bounded_and_consistent(self, alerts, max_members):
        """A cluster that is complete has all documents whose last alert names it."""
        with closing(a_memory(max_members=max_members)) as memory:
            memory._complete_since_ms = 0
            last: dict[str, str] = {}
            first_ms: dict[str, int] = {}
            for time_ms, (document_id, cluster_id, _) in enumerate(alerts):
                first_ms.setdefault(cluster_id, time_ms)
                memory.add(alert_of(document_id, cluster_id, time_ms))
                last[document_id] = cluster_id
                kept = [member for cluster in memory._clusters.values() for member in cluster.members]
                assert len(kept) == len(set(kept)) == len(memory._cluster_of) <= max_members
                assert all(cluster.members for cluster in memory._clusters.values())
            for cluster_id, time_ms in first_ms.items():
                found, complete = ids_of(memory, cluster_id, cluster_id, time_ms)
                expected = {document_id for document_id, of in last.items() if of == cluster_id} | {cluster_id}
                assert set(found) <= expected
                assert not complete or set(found) == expected


class TimedTopic(MemoryTopic):
    """An alerts topic whose readers begin at a time."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__(partitions)
        self.since_ms: list[int] = []

    def open_since(self, since_ms: int):
        self.since_ms.append(since_ms)
        return self.open()


@asynccontextmanager
async def a_follower(topic: TimedTopic, **options):
    """Follow a topic; wait until the reader is closed."""
    memory = a_memory(topic.open_since, **options)
    task = asyncio.create_task(memory.run())
    try:
        yield memory
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await asyncio.to_thread(topic.wait_closed)
        memory.close()


async def until(condition) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.005)


@pytest.fixture(autouse=True, scope="module")
def short_polls():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clusters, "_POLL_S", 0.02)
        patch.setattr(clusters, "_RETRY_S", 0.02)
        yield


class TestFollowing:
    async def test_alerts_of_the_past_and_new_ones_are_read_and_the_window_is_complete(self):
        topic = TimedTopic()
        topic.add(0, encoded(alert_of("b", "a", 60_000)), b"no alert")
        async with a_follower(topic) as memory:
            await until(lambda: ids_of(memory, "a", "a", 50_000) == (["a", "b"], True))
            topic.add(0, encoded(alert_of("c", "a")))
            await until(lambda: ids_of(memory, "a", "a", 50_000) == (["a", "b", "c"], True))
            # The first document is older than the alerts that were read.
            assert ids_of(memory, "a", "a", 49_999)[1] is False
            assert topic.since_ms == [50_000]
            assert memory._metrics.registry.get_sample_value("streamdedup_serve_cluster_members") == 2

    async def test_while_kafka_is_away_nothing_is_complete_and_it_is_logged_once(self):
        topic = TimedTopic()
        topic.add(0, encoded(alert_of("b", "a", 60_000)))
        with capture_logs() as events:
            async with a_follower(topic) as memory:
                await until(lambda: ids_of(memory, "a", "a", 60_000)[1])
                topic.fail()
                await until(lambda: ids_of(memory, "a", "a", 60_000) == (["a", "b"], False))
                await until(lambda: len(topic.since_ms) > 3)
                topic.is_away = False
                await until(lambda: ids_of(memory, "a", "a", 60_000)[1])
        assert [event["event"] for event in events] == ["clusters_unavailable", "clusters_available"]

    async def test_after_an_outage_earlier_alerts_are_complete_unless_some_were_not_read(self):
        topic, clock = TimedTopic(), [NOW_MS]
        topic.add(0, encoded(alert_of("b", "a", 60_000)))
        async with a_follower(topic, now_ms=lambda: clock[0]) as memory:
            await until(lambda: ids_of(memory, "a", "a", 60_000)[1])
            # The reader after the outage begins at or before the end of the alerts that were read, or behind it.
            for later_ms, is_complete in ((LOOKBACK_MS, True), (LOOKBACK_MS + 1, False)):
                topic.fail()
                await until(lambda: not ids_of(memory, "a", "a", clock[0])[1])
                clock[0] += later_ms
                topic.is_away = False
                await until(lambda: ids_of(memory, "a", "a", clock[0])[1])
                assert ids_of(memory, "a", "a", 60_000) == (["a", "b"], is_complete)

    async def test_new_partitions_are_read_too(self):
        topic = TimedTopic()
        async with a_follower(topic) as memory:
            await until(lambda: ids_of(memory, "a", "a")[1])
            with topic.changed:
                topic.partitions.append([encoded(alert_of("b", "a"))])
                topic.beginnings.append(0)
                topic.changed.notify_all()
            await until(lambda: ids_of(memory, "a", "a") == (["a", "b"], True))


def test_the_matches_of_a_document_have_its_cluster():
    with closing(Service()) as service:
        service.add(("a", TEXT), ("b", NEAR))
        service.clusters.add(alert_of("b", "a", 7_000, "wire"))
        service.clusters._complete_since_ms = 0
        body = service.client.get("/v1/profiles/articles/documents/b/matches").json()
        assert body["cluster"] == {
            "id": "a",
            "members": [
                {"id": "a", "source": None, "record_time": "1970-01-01T00:00:00.000Z", "label": TEXT},
                {"id": "b", "source": "wire", "record_time": "1970-01-01T00:00:07.000Z", "label": None},
            ],
            "complete": True,
            "size": 2,
        }
