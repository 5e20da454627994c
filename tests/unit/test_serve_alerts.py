"""The stream of alerts over a topic in memory: resuming, filters, limits, ends."""

import asyncio
import json
import threading
import time
from contextlib import asynccontextmanager, closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from streamdedup.cli import serve as cli_serve
from streamdedup.errors import BrokerMisconfigured
from streamdedup.kafka.protocols import Record
from streamdedup.position import Position
from streamdedup.serve import events, feed, streaming, subscriber, topic_thread
from streamdedup.serve.admission import Tokens
from streamdedup.serve.events import MAX_PARTITIONS, format_id, new_starts, parse_event_id, plan_resume
from streamdedup.serve.metrics import ServeMetrics
from streamdedup.serve.problems import TYPE_PREFIX, RequestProblem
from streamdedup.settings import Settings
from streamdedup.wire import one_line
from streamdedup.wire.dead_letters import PREFIX, DaemonInfo, Failure, Stage, dead_letter
from tests.event_stream import DEADLINE_S, EventClient, MemoryFollower, MemoryTopic, an_alert
from tests.served import Service, call, no_kafka

LETTERS = "/v1/dead-letters"


@pytest.fixture(autouse=True, scope="module")
def short_polls():
    """A reader is closed after the poll in progress."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_thread, "_POLL_S", 0.02)
        yield


@asynccontextmanager
async def a_service(topic: MemoryTopic, letters: MemoryTopic | None = None, **options):
    """Yield a service; wait until it has closed every reader."""
    service = Service(open_reader=topic.open, open_letters=letters.open if letters else no_kafka, **options)
    try:
        yield service
    finally:
        service.feeds.end()
        service.close()
        for each in filter(None, (topic, letters)):
            await asyncio.to_thread(each.wait_closed)
    assert value(service, "subscribers", stream="alerts") == 0


def value(service, name, **labels):
    return service.metrics.registry.get_sample_value(f"streamdedup_serve_{name}", labels)


def alerts_of(*ids, profile="articles"):
    return [an_alert(each, profile) for each in ids]


class TestIds:
    @given(st.lists(st.integers(0, 2**62), min_size=1, max_size=MAX_PARTITIONS))
    def test_an_id_names_the_offset_of_each_partition(self, offsets):
        assert parse_event_id(format_id("a.b_c-d", offsets)) == ("a.b_c-d", tuple(offsets))

    @pytest.mark.parametrize(
        "text",
        ["", "x", "x:", ":1", "x:1,", "x:-1", "x:01", "x:1;2", "x:1\n", "x y:1", "x:" + "9" * 20, "x:١"],
    )
    def test_another_text_is_none(self, text):
        with pytest.raises(RequestProblem):
            parse_event_id(text)

    def test_the_size_is_bounded(self):
        text = format_id("t" * 249, [9_999_999_999_999_999_999 // 10] * MAX_PARTITIONS)
        assert len(text) <= 10_250
        assert parse_event_id(text)
        with pytest.raises(RequestProblem):
            parse_event_id(text + ",1")

    @pytest.mark.parametrize(
        ("wanted", "starts", "gap"),
        [
            ((5, 5), (5, 5), None),
            ((10, 20), (10, 20), None),
            ((5,), (5, 3), None),  # a partition was added
            ((1, 5), (2, 5), "expired"),
            ((11, 5), (10, 20), "unknown"),
            ((5, 5, 5), (10, 20), "unknown"),
        ],
    )
    def test_where_a_stream_resumes(self, wanted, starts, gap):
        assert plan_resume(wanted, (2, 3), (10, 20)) == (starts, gap)

    def test_no_more_than_the_limit_is_read_again(self):
        ends = (events.MAX_MISSED + 5,)
        assert plan_resume((5,), (0,), ends) == ((5,), None)
        assert plan_resume((4,), (0,), ends) == (ends, "too-many")

    def test_line_ends_in_json_do_not_divide_an_event(self):
        assert one_line(b'{"a":\r\n 1}') == b'{"a":1}'
        assert one_line(b'{"a": "\\n"}') == b'{"a": "\\n"}'


class TestStream:
    async def test_new_alerts_are_sent_as_published(self):
        topic = MemoryTopic()
        topic.add(0, *alerts_of("before"))
        async with a_service(topic) as service, EventClient(service.app) as client:
            assert client.status == 200
            assert (await client.frame()).id == "duplicates:1,0"
            topic.add(1, *alerts_of("a", "b"))
            event = await client.event()
            assert event == ("alert", json.loads(an_alert("a")), "duplicates:1,1")
            assert await client.documents(1) == ["b"]
            assert value(service, "events_total", event="alert") == 2

    async def test_all_subscribers_share_one_reader_which_ends_with_the_last(self):
        topic = MemoryTopic()
        async with a_service(topic) as service:
            async with EventClient(service.app) as first, EventClient(service.app) as second:
                topic.add(0, *alerts_of("a"))
                assert await first.documents(1) == await second.documents(1) == ["a"]
                assert (topic.opened_count, len(topic.threads)) == (1, 1)
                assert value(service, "subscribers", stream="alerts") == 2
            await asyncio.to_thread(topic.wait_closed)
            async with EventClient(service.app):
                assert topic.opened_count == 2

    async def test_a_profile_is_chosen_and_the_position_passes_the_others(self, monkeypatch):
        monkeypatch.setattr(streaming, "KEEP_ALIVE_S", 0.01)
        topic = MemoryTopic(1)
        async with a_service(topic) as service, EventClient(service.app, "profile=articles") as client:
            topic.add(0, *alerts_of("a", profile="other"), *alerts_of("b"), *alerts_of("c", profile="other"))
            assert await client.documents(1) == ["b"]
            while (await client.frame()).id != "duplicates:3":
                pass

    async def test_a_silent_stream_has_comments(self, monkeypatch):
        monkeypatch.setattr(streaming, "KEEP_ALIVE_S", 0.01)
        async with a_service(MemoryTopic()) as service, EventClient(service.app) as client:
            frames = [await client.frame() for _ in range(4)]
            assert frames == [(None, None, "duplicates:0,0")] * 4

    async def test_records_that_are_no_alerts_are_passed_over(self):
        topic = MemoryTopic(1)
        async with a_service(topic) as service, EventClient(service.app) as client:
            topic.add(0, b"{}", None, b"\xff", b'{"x":' + b"[" * 2_000, *alerts_of("a"))
            assert (await client.event()).id == "duplicates:5"
            assert value(service, "unreadable_records_total", stream="alerts") == 3

    async def test_a_stream_outlives_the_deadline_of_requests(self, monkeypatch):
        monkeypatch.setattr(streaming, "KEEP_ALIVE_S", 0.01)
        async with a_service(MemoryTopic(), timeout_s=1.0) as service, EventClient(service.app) as client:
            began_at = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() < began_at + 1.2:
                assert not await client.is_cut()


class StaleTopic(MemoryTopic):
    """A topic whose first reader does not learn of new partitions."""

    def open(self):
        follower = super().open()
        if self.opened_count == 1:
            follower.has_new_partitions = lambda: False
        return follower


class TestResume:
    @given(st.data())
    def test_every_alert_comes_once_wherever_the_stream_is_cut(self, data):
        """Streams are cut after any number of events, while records of any partition are written."""

        async def test():
            topic, sent, seen, last_id = MemoryTopic(3), [], [], None
            async with a_service(topic) as service:
                for _ in range(data.draw(st.integers(1, 4))):
                    # Another subscriber keeps the shared reader going, or not.
                    others = [EventClient(service.app)] if data.draw(st.booleans()) else []
                    for other in others:
                        await other.__aenter__()
                    for when in range(2):
                        if last_id is not None or when:
                            for partition in data.draw(st.lists(st.integers(0, 2), max_size=5)):
                                sent.append(f"d{len(sent)}")
                                topic.add(partition, an_alert(sent[-1]), None)  # an alert and a marker
                        if not when:
                            client = await EventClient(service.app, last_id=last_id).__aenter__()
                            await client.frame()
                    seen += await client.documents(data.draw(st.integers(0, len(sent) - len(seen))))
                    last_id = client.last_id
                    await client.__aexit__()
                    for other in others:
                        await other.__aexit__()
                async with EventClient(service.app, last_id=last_id) as client:
                    seen += await client.documents(len(sent) - len(seen))
                    topic.add(0, an_alert("last"))
                    assert await client.documents(1) == ["last"]
            assert sorted(seen) == sorted(sent)

        asyncio.run(test())

    def test_alerts_that_a_reader_ahead_of_the_shared_one_has_sent_are_not_sent_again(self):
        stream = subscriber.Subscriber("duplicates", "alert", None, is_new=False)
        stream.offsets = (2, 7)
        found = tuple(events.FeedEvent(0, at, "articles", b"%d" % at) for at in range(4))
        (chunk,) = stream.advance_over(subscriber.EventBatch(found, (4, 0), 0))
        assert [line for line in chunk.body.split(b"\n") if line.startswith(b"data")] == [b"data: 2", b"data: 3"]
        assert stream.event_id == "duplicates:4,7"

    async def test_a_quick_return_needs_no_reader(self):
        topic = MemoryTopic()
        topic.add(0, *alerts_of("a"))
        async with a_service(topic) as service, EventClient(service.app, last_id="duplicates:1,0") as client:
            topic.add(0, *alerts_of("b"))
            assert await client.documents(1) == ["b"]
            assert topic.opened_count == 1

    @pytest.mark.parametrize(
        ("last_id", "reason", "expected"),
        [
            ("duplicates:0,0", "expired", ["b", "c"]),
            ("duplicates:9,0", "unknown", ["c"]),
            ("other:0,0", "unknown", ["c"]),
            ("duplicates:1,0", "too-many", ["c"]),
        ],
    )
    async def test_a_gap_is_told(self, monkeypatch, last_id, reason, expected):
        if reason == "too-many":
            monkeypatch.setattr(events, "MAX_MISSED", 0)
        topic = MemoryTopic()
        topic.add(0, *alerts_of("a", "b"))
        topic.beginnings[0] = 1
        async with a_service(topic) as service, EventClient(service.app, last_id=last_id) as client:
            event = await client.event()
            assert (event.name, event.data) == ("gap", {"reason": reason, "from": last_id})
            assert event.id == ("duplicates:1,0" if reason == "expired" else "duplicates:2,0")
            topic.add(0, *alerts_of("c"))
            assert await client.documents(len(expected)) == expected

    async def test_streams_end_when_the_topic_gets_partitions_and_resume_with_them(self):
        topic = MemoryTopic(1)
        async with a_service(topic) as service:
            async with EventClient(service.app) as client:
                with topic.changed:
                    topic.partitions.append([an_alert("new")])
                    topic.beginnings.append(0)
                    topic.changed.notify_all()
                event = await client.event()
                assert (event.name, event.data) == ("end", {"reason": "alerts-unavailable"})
            async with EventClient(service.app, last_id=event.id) as client:
                assert await client.documents(1) == ["new"]

    async def test_streams_end_when_the_topic_is_created_again(self):
        topic = MemoryTopic(1)
        topic.add(0, *alerts_of("a", "b"))
        async with a_service(topic) as service:
            async with EventClient(service.app) as client:
                await client.frame()
                with topic.changed:
                    topic.partitions[0] = [an_alert("new")]
                    topic.changed.notify_all()
                event = await client.event()
                assert (event.name, event.data) == ("end", {"reason": "alerts-unavailable"})
            async with EventClient(service.app, last_id=event.id) as client:
                gap = await client.event()
                assert (gap.name, gap.data) == ("gap", {"reason": "unknown", "from": "duplicates:2"})

    async def test_streams_end_when_a_reader_finds_partitions_that_the_shared_one_does_not_know(self):
        topic = StaleTopic(1)
        topic.add(0, *alerts_of("old"))
        async with a_service(topic) as service:
            async with EventClient(service.app) as live:
                await live.frame()
                with topic.changed:
                    topic.partitions.append([an_alert("new")])
                    topic.beginnings.append(0)
                async with EventClient(service.app, last_id="duplicates:0") as client:
                    assert (await client.frame()).id == "duplicates:0"
                    while (event := await client.event()).name == "alert":
                        assert event.data["document"]["id"] in {"old", "new"}
                        if event.data["document"]["id"] == "new":
                            topic.add(0, *alerts_of("not to be sent behind it"))
                assert (await live.event()).data == event.data == {"reason": "alerts-unavailable"}
            async with EventClient(service.app, last_id="duplicates:1,0") as client:
                assert "new" in await client.documents(len(topic.partitions[0]))

    async def test_reading_missed_alerts_has_a_time_limit(self, monkeypatch):
        """The shared reader is ahead, and the reader of the subscriber does not get there."""
        monkeypatch.setattr(feed, "_RESUME_S", -1.0)
        topic = MemoryTopic(1)
        topic.add(0, *alerts_of("a"))
        async with a_service(topic) as service, EventClient(service.app, last_id="duplicates:0") as client:
            assert await client.event() == ("end", {"reason": "timeout"}, "duplicates:0")
            assert await client.is_cut()

    async def test_the_time_limit_also_ends_a_stream_between_two_chunks_of_one_read(self, monkeypatch):
        """Each chunk may take a minute to be sent, while further clients wait to read what they have missed."""
        monkeypatch.setattr(feed, "_RESUME_S", 0.1)
        monkeypatch.setattr(subscriber, "_CHUNK_BYTES", 1)
        topic = MemoryTopic(1)
        topic.add(0, *alerts_of("a", "b"))
        poll = MemoryFollower.poll
        monkeypatch.setattr(MemoryFollower, "poll", lambda *given: time.sleep(0.2) or poll(*given))
        async with a_service(topic) as service:
            async with EventClient(service.app, last_id="duplicates:0") as client:
                assert await client.documents(1) == ["a"]
                assert await client.event() == ("end", {"reason": "timeout"}, "duplicates:1")
            async with EventClient(service.app, last_id="duplicates:1") as client:
                assert await client.documents(1) == ["b"]


class TestRecent:
    async def test_a_stream_may_begin_with_the_newest_alerts(self):
        topic = MemoryTopic()
        topic.add(0, *alerts_of("a", "b"))
        topic.add(1, *alerts_of("c"))
        async with a_service(topic) as service, EventClient(service.app, "recent=2") as client:
            assert (await client.frame()).id == "duplicates:1,0"
            assert sorted(await client.documents(2)) == ["b", "c"]
            topic.add(0, *alerts_of("d"))
            assert await client.documents(1) == ["d"]
            assert client.last_id == "duplicates:3,1"

    async def test_expired_alerts_are_no_gap_of_a_new_stream(self):
        topic = MemoryTopic(1)
        topic.add(0, *alerts_of("a", "b", "c"))
        topic.beginnings[0] = 1
        async with a_service(topic) as service, EventClient(service.app, "recent=1000") as client:
            assert await client.documents(2) == ["b", "c"]

    async def test_a_stream_that_resumes_begins_behind_its_last_event(self):
        topic = MemoryTopic(1)
        topic.add(0, *alerts_of("a", "b"))
        async with (
            a_service(topic) as service,
            EventClient(service.app, "recent=10", last_id="duplicates:1") as client,
        ):
            assert await client.documents(1) == ["b"]

    @pytest.mark.parametrize("count", ["-1", "1001", "x"])
    @pytest.mark.parametrize("path", ["/v1/alerts", LETTERS])
    def test_a_number_that_is_none_or_too_large_is_a_problem(self, path, count):
        with closing(Service()) as service:
            response = service.client.get(path, params={"recent": count})
            assert (response.status_code, response.json()["type"]) == (400, TYPE_PREFIX + "invalid-request")
            assert (response.json()["field"], response.json()["detail"][:14]) == ("recent", "Expected `int`")

    @given(st.lists(st.integers(0, 500), min_size=1, max_size=9), st.integers(0, 1_000))
    def test_each_partition_has_the_same_share(self, ends, count):
        found = new_starts(tuple(ends), count)
        shares = [end - offset for end, offset in zip(ends, found, strict=True)]
        assert all(offset >= 0 for offset in found)
        assert sum(shares) < count + len(ends)
        assert all(share == max(shares) or offset == 0 for share, offset in zip(shares, found, strict=True))
        assert found == tuple(ends) or count

    @given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=12))
    def test_records_of_several_partitions_are_in_the_order_of_time(self, made):
        records = [Record(Position("t", number, at), time, None, None) for at, (number, time) in enumerate(made)]
        found = topic_thread.by_time(records)
        for number in range(3):
            of_partition = [[each for each in some if each.position.partition == number] for some in (records, found)]
            assert of_partition[0] == of_partition[1]
        if all(records_of == sorted(records_of) for records_of in ([t for n, t in made if n == p] for p in range(3))):
            assert [each.timestamp_ms for each in found] == sorted(each.timestamp_ms for each in records)


class TestEnds:
    async def test_a_subscriber_that_falls_behind_is_cut_and_resumes(self, monkeypatch):
        monkeypatch.setattr(subscriber, "MAX_QUEUED", 3)
        topic = MemoryTopic(1)
        async with a_service(topic) as service, EventClient(service.app) as quick:
            async with EventClient(service.app) as slow:
                await slow.frame()
                slow.takes.clear()
                for number in range(8):
                    topic.add(0, *alerts_of(f"d{number}"))
                    assert await quick.documents(1) == [f"d{number}"]
                slow.takes.set()
                assert await slow.documents(1) == ["d0"]
                assert await slow.event() == ("end", {"reason": "too-slow"}, "duplicates:1")
                assert await slow.is_cut()
            async with EventClient(service.app, last_id=slow.last_id) as again:
                assert await again.documents(7) == [f"d{number}" for number in range(1, 8)]

    async def test_the_bytes_that_wait_are_bounded(self, monkeypatch):
        monkeypatch.setattr(subscriber, "MAX_QUEUED_BYTES", 1_000)
        stream = subscriber.Subscriber("duplicates", "alert", None, is_new=False)
        batch = subscriber.EventBatch((events.FeedEvent(0, 0, "articles", b"x" * 2_000),), (1,), 0)
        stream.offer(batch)
        assert stream.end_reason is None  # a batch fits into an empty queue
        stream.offer(batch)
        assert stream.end_reason == "too-slow"

    async def test_a_client_that_takes_nothing_is_given_up(self, monkeypatch):
        monkeypatch.setattr(streaming, "_SEND_S", 0.05)
        topic = MemoryTopic(1)
        async with a_service(topic) as service, EventClient(service.app) as client:
            await client.frame()
            client.takes.clear()
            topic.add(0, *alerts_of("a"))
            await asyncio.wait_for(client.task, DEADLINE_S)
            assert value(service, "subscribers", stream="alerts") == 0

    @pytest.mark.parametrize("last_id", [None, "duplicates:0"])
    async def test_streams_end_when_the_service_stops(self, last_id):
        topic = MemoryTopic(1)
        async with a_service(topic) as service, EventClient(service.app, last_id=last_id) as client:
            assert (await client.frame()).id == "duplicates:0"
            service.feeds.end()
            assert await client.event() == ("end", {"reason": "stopping"}, "duplicates:0")
            assert await client.is_cut()
            async with EventClient(service.app) as late:
                assert late.status == 503

    async def test_streams_end_when_kafka_fails_and_the_next_one_is_told(self):
        topic = MemoryTopic(1)
        with capture_logs() as logged:
            async with a_service(topic) as service:
                async with EventClient(service.app) as client:
                    topic.fail()
                    assert (await client.event()).data == {"reason": "alerts-unavailable"}
                    assert await client.is_cut()
                for _ in range(2):
                    async with EventClient(service.app) as client:
                        problem = await client.problem()
                        assert (client.status, problem["type"]) == (503, TYPE_PREFIX + "alerts-unavailable")
                        assert "10.1.2.3" not in json.dumps(problem)
                topic.is_away = False
                async with EventClient(service.app) as client:
                    assert client.status == 200
        assert [event["event"] for event in logged] == ["alerts_unavailable", "alerts_available"]
        assert logged[0]["reason"] == "10.1.2.3 does not answer"


#: A word of a text, which no event may contain.
SECRET = "xylophone"


def a_letter(offset: int, code: str = "not_json") -> Record:
    """Return the dead letter of a record."""
    headers = (("h", SECRET.encode()),)
    failed = Record(Position("articles", 3, offset), 0, b"key", f"{SECRET} {offset}".encode(), headers)
    failure = Failure(Stage.DECODE, code, "DecodeError", "the value is not JSON: byte 0")
    made = dead_letter("dead", failed, failure, DaemonInfo("group", "a", "1"), time_ms=1_500)
    return Record(Position("letters", 0, 0), 7, made.key, made.value, made.headers)


class TestDeadLetters:
    async def test_an_event_has_the_reason_and_the_position_and_nothing_of_the_record(self):
        letters = MemoryTopic(1, "letters")
        async with a_service(MemoryTopic(), letters) as service:
            async with EventClient(service.app, path=LETTERS) as client:
                assert (await client.frame()).id == "letters:0"
                letters.add(0, a_letter(41))
                event = await client.event()
            assert event == (
                "dead-letter",
                {
                    "topic": "articles",
                    "partition": 3,
                    "offset": 41,
                    "reason": "not_json",
                    "error": "the value is not JSON: byte 0",
                    "time": "1970-01-01T00:00:01.500Z",
                    "stage": "decode",
                    "attempts": 1,
                },
                "letters:1",
            )
            assert SECRET not in repr(event)
            assert value(service, "events_total", event="dead-letter") == 1

    async def test_records_of_others_are_passed_over_and_headers_may_be_damaged(self):
        letters = MemoryTopic(1, "letters")
        damaged = ((PREFIX + "topic", b"\xff"), (PREFIX + "error.code", b"x"), (PREFIX + "offset", b"-1"))
        async with a_service(MemoryTopic(), letters) as service, EventClient(service.app, path=LETTERS) as client:
            without_topic, whole = (Record(Position("letters", 0, 0), 7, None, b"", h) for h in (damaged[1:], damaged))
            letters.add(0, SECRET.encode(), without_topic, whole)
            event = await client.event()
            assert event.id == "letters:3"
            assert event.data == {
                "topic": "\ufffd",
                "partition": None,
                "offset": None,
                "reason": "x",
                "error": "",
                "time": "1970-01-01T00:00:00.007Z",
                "stage": "",
                "attempts": None,
            }
            assert value(service, "unreadable_records_total", stream="dead-letters") == 2

    async def test_a_stream_resumes_with_its_own_id_and_knows_none_of_the_other_stream(self):
        letters = MemoryTopic(1, "letters")
        letters.add(0, a_letter(0), a_letter(1))
        async with a_service(MemoryTopic(1), letters) as service:
            async with EventClient(service.app, last_id="letters:1", path=LETTERS) as client:
                assert (await client.event()).data["offset"] == 1
            async with EventClient(service.app, last_id="duplicates:0", path=LETTERS) as client:
                assert await client.event() == ("gap", {"reason": "unknown", "from": "duplicates:0"}, "letters:2")

    async def test_each_kind_of_stream_fails_and_is_limited_for_itself(self, monkeypatch):
        monkeypatch.setattr(feed, "MAX_SUBSCRIBERS", 2)
        letters = MemoryTopic(1, "letters")
        with capture_logs() as logged:
            async with (
                a_service(MemoryTopic(), letters) as service,
                EventClient(service.app) as alerts,
                EventClient(service.app, path=LETTERS) as first,
            ):
                async with EventClient(service.app, path=LETTERS) as second:
                    assert (first.status, second.status) == (200, 200)
                    async with EventClient(service.app, path=LETTERS) as third:
                        assert third.status == 429
                    letters.fail()
                    assert (await second.event()).data == {"reason": "dead-letters-unavailable"}
                async with EventClient(service.app, path=LETTERS) as client:
                    problem = await client.problem()
                    assert (client.status, problem["type"]) == (503, TYPE_PREFIX + "dead-letters-unavailable")
                async with EventClient(service.app) as client:
                    assert (client.status, alerts.status) == (200, 200)
        assert [event["event"] for event in logged] == ["dead_letters_unavailable"]


class TestDuration:
    @pytest.mark.parametrize("path", ["/v1/alerts", LETTERS, "//v1/alerts/"])
    async def test_the_time_of_a_stream_is_that_to_its_beginning(self, path):
        """The stream is open for longer than the first bounds of the histogram."""
        opened_at = time.monotonic()
        async with a_service(MemoryTopic(1), MemoryTopic(1, "letters")) as service:
            async with EventClient(service.app, path=path) as client:
                await client.frame()
                await asyncio.sleep(0.3)
            route = f"/{path.strip('/')}"
            assert value(service, "request_seconds_count", route=route) == 1
            open_s = time.monotonic() - opened_at
            assert value(service, "request_seconds_sum", route=route) < open_s - 0.3


class TestAccess:
    def test_a_malformed_id_and_an_unknown_profile_are_problems(self):
        with closing(Service()) as service, service.client as client:
            problem = client.get("/v1/alerts", headers={"last-event-id": "x"}).json()
            assert (problem["type"], problem["field"]) == (TYPE_PREFIX + "invalid-request", "Last-Event-ID")
            assert problem["status"] == 400
            assert client.get("/v1/alerts?profile=none").json()["type"] == TYPE_PREFIX + "unknown-profile"

    def test_without_kafka_there_is_a_problem_whose_time_is_measured_and_everything_else_works(self):
        with closing(Service()) as service, service.client as client:
            response = client.get("/v1/alerts")
            assert (response.status_code, response.json()["type"]) == (503, TYPE_PREFIX + "alerts-unavailable")
            assert response.json()["detail"] == "Kafka does not answer"
            assert int(response.headers["retry-after"]) > 0
            assert value(service, "request_seconds_count", route="/v1/alerts") == 1
            assert client.get("/readyz").status_code == 200

    def test_a_kafka_that_is_silent_is_named_before_the_time_of_the_request(self, monkeypatch):
        monkeypatch.setattr(feed, "_OPEN_S", 0.05)
        released = threading.Event()
        silent = Service(open_reader=lambda: released.wait(60) and no_kafka())
        with closing(silent), silent.client as client:
            response = client.get("/v1/alerts")
            released.set()
        assert (response.status_code, response.json()["detail"]) == (503, "Kafka does not answer")

    def test_an_opening_that_was_given_up_ends_by_itself(self, monkeypatch):
        values = {
            "kafka.bootstrap_servers": "localhost:9",
            "redis.url": "redis://127.0.0.1:9",
            "profiles.articles.topics": "articles",
        }
        monkeypatch.setattr(cli_serve, "TopicReader", lambda options: options)
        for each in cli_serve._feeds(Settings.load(None, values, {}), ServeMetrics()):
            options = each._open_reader()
            assert options.connect_timeout_s == options.opening_timeout_s == feed._OPEN_S
            assert options.reader()["request_timeout_ms"] == 50_000  # for a whole fetch, over any network

    def test_a_topic_that_cannot_be_read_for_another_reason_points_to_the_log(self):
        def refused():
            raise BrokerMisconfigured("no such topic: duplicates")

        with closing(Service(open_reader=refused)) as service, service.client as client:
            assert "has no such topic; the reason is in the log" in client.get("/v1/alerts").json()["detail"]

    async def test_subscribers_have_a_limit_beside_that_of_requests(self, monkeypatch):
        monkeypatch.setattr(feed, "MAX_SUBSCRIBERS", 2)
        async with (
            a_service(MemoryTopic(), max_requests=1) as service,
            EventClient(service.app) as first,
            EventClient(service.app) as second,
        ):
            assert (first.status, second.status) == (200, 200)
            async with EventClient(service.app) as third:
                assert third.status == 429
            assert value(service, "in_flight") == 0

    async def test_a_stream_opens_while_the_most_requests_are_in_progress(self, monkeypatch):
        released = threading.Event()
        async with a_service(MemoryTopic(), max_requests=1) as service:
            look_up = service.index.look_up
            monkeypatch.setattr(service.index, "look_up", lambda *given: released.wait(60) and look_up(*given))
            busy = asyncio.create_task(call(service.app))
            async with asyncio.timeout(DEADLINE_S):
                while value(service, "in_flight") != 1:  # noqa: ASYNC110  there is no event
                    await asyncio.sleep(0.005)
            try:
                refused, _ = await call(service.app)
                async with EventClient(service.app) as client:
                    assert (refused["status"], client.status) == (429, 200)
            finally:
                released.set()
            assert (await busy)[0]["status"] == 200

    def test_a_token_is_required(self, tmp_path):
        (tmp_path / "tokens").write_text("t" * 22)
        with closing(Service(tokens=Tokens(tmp_path / "tokens"))) as service, service.client as client:
            assert client.get("/v1/alerts").status_code == 401
