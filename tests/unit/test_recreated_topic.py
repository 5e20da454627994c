"""A topic that is deleted and created again: its incarnations, and what is counted."""

from types import SimpleNamespace

import pytest

from streamdedup.daemon.partitions import PartitionOwnership
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.values import UNKNOWN_BROKER_STATE
from streamdedup.kafka.protocols import Batch, CommittedOffset, Record, UnreadableRecord
from streamdedup.position import Partition, PartitionIncarnation, Position
from tests.turns import CLOCK, GROUP, INPUT, Killed, Moment, Sent, World, once

TEXT = "amber birch cedar delta ember"
OTHER_TEXT = "knoll lagoon amber jetty inlet"
NEW_TEXT = "fjord grove heath inlet jetty"
BEFORE = [Sent("a", TEXT, 0), Sent("b", TEXT, 1), Sent("c", OTHER_TEXT, 0), Sent("d", OTHER_TEXT, 0)]
#: One pair within the new topic, one with a document of the old one, and two old documents once more.
AFTER = [
    Sent("n1", NEW_TEXT, 0, time_ms=5),
    Sent("n2", NEW_TEXT, 1, time_ms=5),
    Sent("n3", TEXT, 1, time_ms=5),
    Sent("a", TEXT, 0),
    Sent("d", OTHER_TEXT, 1),
]


@pytest.mark.parametrize("tells_topic_ids", [True, False])
@pytest.mark.parametrize("offsets_deleted", [True, False])
def test_its_records_are_not_silent_and_each_new_topic_is_counted(tells_topic_ids, offsets_deleted):
    """Without ids a topic is recognised by its end; the first record of a partition may come later."""
    world = World(BEFORE, joined=False)
    world.broker.tells_topic_ids = tells_topic_ids
    world.run().recreate(*AFTER[:1], offsets_deleted=offsets_deleted)
    world.run()
    if tells_topic_ids:
        world.send(*AFTER[1:]).run()
        world.recreate(*BEFORE, *AFTER, offsets_deleted=offsets_deleted)
        world.run()
    assert world.total("documents_silent_total") == 0
    assert world.total("topics_recreated_total") == 1 + tells_topic_ids


@pytest.mark.parametrize("pause_s", [0, 11])
@pytest.mark.parametrize("offsets_deleted", [True, False])
def test_without_ids_and_without_a_rebalance_its_beginning_shows_it(monkeypatch, offsets_deleted, pause_s):
    """After a pause the committed offsets are compared, also those of the old topic that are left."""
    world = World(BEFORE, joined=False)
    world.broker.tells_topic_ids = False
    world.run()
    monkeypatch.setattr(world.broker, "_rebalance_readers", lambda _topic: None)
    monkeypatch.setattr(CLOCK, "now_s", CLOCK.now_s + pause_s)
    world.recreate(*AFTER[:1], offsets_deleted=offsets_deleted)
    world.run()
    assert world.total("documents_silent_total") == 0
    assert world.total("topics_recreated_total") == 1


def test_without_ids_no_mark_is_raised_to_an_offset_of_the_old_topic():
    def end_both(world: World, moment: Moment) -> None:
        if moment.effect == "finish":
            world.plan = lambda _number: None
            world.recreate(*AFTER[:1], offsets_deleted=False)
            raise Killed

    world = World(BEFORE * 2, joined=False)
    world.broker.tells_topic_ids = False
    world.plan = lambda _number: end_both
    world.run()
    assert world.total("documents_silent_total") == 0


@pytest.mark.parametrize("is_killed", [False, True])
def test_it_may_happen_before_any_effect_of_a_batch(is_killed):
    """Uncommitted records are gone with the old topic, and so is their pair, which may be claimed."""

    def recreate(world: World, _moment: Moment) -> None:
        world.recreate(*AFTER, offsets_deleted=not is_killed)
        if is_killed:
            raise Killed

    for number in range(30):
        world = World(BEFORE, names=("one", "two")).run()
        world.broker.rebalance(GROUP)
        world.send(Sent("x", "heath knoll amber cedar birch", 0), Sent("y", "heath knoll amber cedar birch", 1))
        world.plan = {len(world.trace) + number: recreate}.get
        pairs = [pair for pair in world.run().pairs() if pair != ("x", "y")]
        assert pairs == [("a", "b"), ("a", "n3"), ("b", "n3"), ("c", "d"), ("n1", "n2")], number
        assert world.total("documents_silent_total") == 0


def test_a_document_whose_first_attempt_went_with_the_old_topic_is_compared_when_it_is_sent_again():
    again = Sent("x", TEXT, 0)

    def recreate(world: World, _moment: Moment) -> None:
        world.recreate(again, offsets_deleted=False)
        raise Killed

    world = World(BEFORE).run().send(again)
    world.plan = once("claim_pairs", recreate)
    assert {("a", "x"), ("b", "x")} <= set(world.run().pairs())


@pytest.mark.parametrize("deleted", [True, False])
def test_silence_is_unexplained_where_the_committed_offset_is_gone_and_was_not_set_back(deleted):
    world = World(BEFORE).run()
    world.stop_all()
    if deleted:
        world.broker.delete_offsets(INPUT)
    else:
        world.broker.commit(GROUP, dict.fromkeys(world.ends, 0))
    world.start("later")
    world.run()
    assert world.total("documents_silent_total") == len(BEFORE)
    assert world.total("documents_silent_unexplained_total") == (len(BEFORE) if deleted else 0)


@pytest.mark.parametrize(
    ("end", "topic_ids", "has_commit"),
    [(8, {}, False), (9, {}, True), (None, {}, True), (8, {INPUT: "id"}, True)],
)
def test_only_without_ids_a_committed_offset_beyond_the_end_is_of_the_old_topic(end, topic_ids, has_commit):
    """An offset at the end is of this topic, also where a rewind has moved the position of this process below it."""
    index, partition = MemoryIndex(), Partition(INPUT, 0)
    index.open({})
    index.fence(partition, 1, 7)
    ownership = PartitionOwnership({INPUT: SimpleNamespace(name="articles", index=index, fingerprint={})})
    committed_offset = CommittedOffset(9)
    source = SimpleNamespace(committed_offset=lambda _: committed_offset, end=lambda _: end, confirm=lambda: None)
    batch = Batch((Record(Position(INPUT, 0, 7), 0, None, b""),), generation=1, topic_ids=topic_ids)
    assert ownership.take_over(batch, source)[partition].has_commit is has_commit


def test_a_partition_without_a_commit_counts_on_from_those_of_its_topic_also_from_before_topic_ids():
    index, partition = MemoryIndex(), Partition(INPUT, 0)
    index.open({})
    ownership = PartitionOwnership({INPUT: SimpleNamespace(name="articles", index=index, fingerprint={})})
    others = {
        Partition("reviews", 0): CommittedOffset(9, incarnation=2),
        Partition(INPUT, 1): CommittedOffset(9, incarnation=1),
    }
    source = SimpleNamespace(
        committed_offset=lambda _: None,
        committed_offsets=lambda **_: others,
        end=lambda _: None,
        confirm=lambda: None,
    )
    batch = Batch((Record(Position(INPUT, 0, 7), 0, None, b""),), generation=1, topic_ids={INPUT: "id"})
    assert ownership.take_over(batch, source)[partition].incarnation == 1


def test_a_partition_incarnation_is_parsed_from_its_text():
    for fields in (("articles", 0), ("a.b-c_d", 12, 3), ("articles", 1, -1)):
        incarnation = PartitionIncarnation(*fields)
        assert PartitionIncarnation.parse(str(incarnation)) == incarnation
    assert str(PartitionIncarnation("articles", 0)) == str(Partition("articles", 0))
    assert PartitionIncarnation("articles", 1, 2).position_at(5).key == "articles@2:1:5"
    assert str(PartitionIncarnation("articles", 1, 2).position_at(5)) == "articles:1:5"


def test_the_positions_of_a_batch_take_the_incarnation_of_their_partition():
    positions = [Position(INPUT, 0, 1), Position(INPUT, 1, 5)]
    unreadable = UnreadableRecord(Position(INPUT, 1, 6), "damaged")
    batch = Batch(tuple(Record(position, 0, None, b"") for position in positions), (unreadable,))
    moved = batch.in_incarnations({positions[0].topic_partition: 0, positions[1].topic_partition: 2})
    assert list(moved.positions()) == [positions[0], Position(INPUT, 1, 5, 2), Position(INPUT, 1, 6, 2)]
    assert moved.next_offsets == batch.next_offsets
    assert batch.in_incarnations({positions[0].topic_partition: 0, positions[1].topic_partition: 0}) is batch


def test_the_mark_of_a_partition_of_unknown_state_stays():
    store = MemoryIndex()
    store.open({})
    store.fence(Partition(INPUT, 0), 1, 7)
    assert store.fence(Partition(INPUT, 0), 2, 0, state=UNKNOWN_BROKER_STATE).high_water_mark == 7


def test_an_index_that_is_lost_and_not_rebuilt_counts_on_from_the_committed_incarnation():
    world = World(BEFORE, on_index_lost="continue").run()
    world.recreate(Sent("q", OTHER_TEXT, 0, time_ms=5))
    world.run().server.go_back(None)
    world.send(*(Sent(None, NEW_TEXT, partition, time_ms=8) for partition in (0, 0, 1))).run()
    assert ("articles@1:0:1", "articles@1:0:2") in world.pairs()


def test_a_gap_is_filled_beside_entries_of_the_deleted_topic_with_greater_offsets():
    fillers = (Sent(f"f{number}", " ".join(f"q{number}{letter}" for letter in "abcde"), 0) for number in range(5))
    world = World([*fillers, Sent("x", OTHER_TEXT, 0), Sent("old", TEXT, 0)], on_index_lost="rebuild").run()
    world.recreate(Sent("n0", "m1 m2 m3 m4 m5", 0, time_ms=5))
    world.run().send(Sent("n1", "k1 k2 k3 k4 k5", 0, time_ms=5)).run()
    world.server.save("copy")
    world.send(Sent("x", f"{OTHER_TEXT} more words", 0, time_ms=6)).run()
    world.server.go_back("copy")
    world.start_later()
    world.send(Sent("z", TEXT, 1, time_ms=7)).run()
    # A rebuild of the whole index would lose the documents of the deleted topic.
    assert world.pairs() == [("old", "z")]
