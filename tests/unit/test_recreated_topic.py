"""A topic that is deleted and created again: every pair of its documents is alerted, and none a second time."""

import pytest

from streamdedup.index.memory import MemoryIndex
from streamdedup.index.values import UNKNOWN_BROKER_STATE
from streamdedup.kafka.protocols import Batch, Record
from streamdedup.position import Partition, PartitionIncarnation, Position
from streamdedup.wire import decode_alert
from tests.simulation.world import DUPLICATES, GROUP, INPUT, Killed, Moment, Sent, World

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

#: Calls that a daemon makes for a batch of partitions that are new to it.
METHODS = [
    *("poll", "committed", "partition_states", "fence", "insert_entries", "insert_and_look_up", "get_entries"),
    *("save_pending_matches", "claim_pairs", "set_clusters", "announce", "publish", "commit", "finish"),
]


def total(world: World, metric: str) -> float:
    """Return the sum of a metric over all daemons."""
    return sum(daemon.metric(metric) for daemon in world.everyone)


@pytest.fixture(params=["stopped", "running"])
def world(request) -> World:
    """A world in which the first topic is done with, and the daemon may be stopped."""
    world = World(BEFORE).run()
    assert world.wrong() == []
    if request.param == "stopped":
        world.stop_all()
        world.start("later")
    return world


@pytest.mark.parametrize("offsets_deleted", [True, False])
@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_its_pairs_are_alerted_and_none_twice(world, offsets_deleted, partitions):
    world.recreate(AFTER, partitions, offsets_deleted=offsets_deleted)
    assert world.run().wrong() == []
    assert total(world, "documents_silent_total") == 0
    assert total(world, "topics_recreated_total") == 1


def test_a_longer_topic_is_recognised_by_its_id_and_read_from_its_oldest_record(world):
    again = [Sent(f"x{number}", f"{NEW_TEXT} x{number // 2}", number % 2) for number in range(20)]
    world.recreate([*again, *AFTER], offsets_deleted=False)
    assert world.run().wrong() == []
    assert total(world, "documents_silent_total") == 0


@pytest.mark.parametrize("offsets_deleted", [True, False])
def test_without_ids_a_shorter_topic_is_recognised_by_its_end(world, offsets_deleted):
    world.broker.tells_topic_ids = False
    world.index._incarnations.clear()
    world.broker.groups[GROUP].topic_ids.clear()
    world.restart(world.daemons[0])
    world.recreate([Sent(name, NEW_TEXT, 0, time_ms=5) for name in ("n1", "n2")], offsets_deleted=offsets_deleted)
    assert world.run().wrong() == []
    assert total(world, "documents_silent_total") == 0


def test_a_partition_that_comes_back_later_does_not_have_the_mark_of_before(world):
    world.recreate([Sent("n1", NEW_TEXT, 0, time_ms=5)], partitions=1)
    world.run()
    world.broker.add_partitions(INPUT, 2)
    world.partitions = 2
    world.send(Sent("n2", NEW_TEXT, 1, time_ms=5))
    assert world.run().wrong() == []
    assert total(world, "documents_silent_total") == 0


def test_it_may_be_created_again_several_times(world):
    for number in range(3):
        texts = [Sent(f"n{number}{side}", f"{NEW_TEXT} n{number}", 0, time_ms=number + 1) for side in "ab"]
        world.recreate([*texts, *BEFORE])
        assert world.run().wrong() == []
    assert total(world, "documents_silent_total") == 0
    assert total(world, "topics_recreated_total") == 3


def test_offsets_set_back_in_the_new_topic_are_silent_as_ever(world):
    world.recreate(AFTER)
    world.run()
    world.stop_all()
    world.broker.commit(GROUP, {Partition(INPUT, 0): 0, Partition(INPUT, 1): 1})
    world.start("last")
    assert world.run().wrong() == []
    assert total(world, "documents_silent_total") > 0
    assert total(world, "topics_recreated_total") == 1


@pytest.mark.parametrize(
    ("method", "after"),
    [(method, after) for method in METHODS for after in (False, True) if method != "commit" or not after],
)
@pytest.mark.parametrize("killed", [False, True])
def test_it_may_happen_at_any_moment_of_a_batch(method, after, killed):
    """Uncommitted records are gone with the old topic, and so is their pair, which may be claimed."""
    happened = []

    def recreate(world: World, moment: Moment) -> None:
        if (moment.effect, moment.after) != (method, after) or happened:
            return
        happened.append(moment)
        world.recreate(AFTER, offsets_deleted=not killed)
        if killed:
            raise Killed

    world = World(BEFORE, names=("one", "two")).run()
    world.broker.rebalance(GROUP)
    world.send(*(Sent(f"x{number}", "heath knoll amber cedar birch", number, time_ms=1) for number in (0, 1)))
    world.plan = lambda _number: recreate
    world.run()
    assert happened
    assert [complaint for complaint in world.wrong() if not complaint.startswith("lost (('x0'")] == []
    assert total(world, "documents_silent_total") == 0


@pytest.mark.parametrize("deleted", [True, False])
def test_silence_is_unexplained_where_the_committed_offset_is_gone_and_was_not_set_back(deleted):
    world = World(BEFORE).run()
    world.stop_all()
    if deleted:
        world.broker.delete_offsets(INPUT)
    else:
        world.broker.commit(GROUP, dict.fromkeys(world.ends, 0))
    world.start("later")
    assert world.run().wrong() == []
    assert total(world, "documents_silent_total") == len(BEFORE)
    assert total(world, "documents_silent_unexplained_total") == (len(BEFORE) if deleted else 0)


def test_a_claim_of_the_old_topic_is_not_that_of_the_same_offset_after_a_rebuild():
    """Alerts tell no incarnation, and the new topic has the same record at the same offset."""
    first, second = Sent("a", TEXT, 0), Sent("b", TEXT, 1)
    world = World([first, second], on_index_lost="rebuild").run()
    (alert,) = (decode_alert(record.value) for record in world.broker.records(DUPLICATES))
    assert alert.document.position == Position(INPUT, 1, 0)
    world.recreate([first])
    world.run()
    world.stop_all()
    world.index.__init__()
    world.send(second)
    world.start("later")
    assert world.run().wrong() == []


def test_a_partition_incarnation_is_parsed_from_its_text():
    for fields in (("articles", 0), ("a.b-c_d", 12, 3), ("articles", 1, -1)):
        incarnation = PartitionIncarnation(*fields)
        assert PartitionIncarnation.parse(str(incarnation)) == incarnation
    assert str(PartitionIncarnation("articles", 0)) == str(Partition("articles", 0))
    assert PartitionIncarnation("articles", 1, 2).position_at(5).key == "articles@2:1:5"
    assert str(PartitionIncarnation("articles", 1, 2).position_at(5)) == "articles:1:5"


def test_the_positions_of_a_batch_take_the_incarnation_of_their_partition():
    positions = [Position(INPUT, 0, 1), Position(INPUT, 1, 5)]
    batch = Batch(tuple(Record(position, 0, None, b"") for position in positions))
    moved = batch.in_incarnations({positions[0].topic_partition: 0, positions[1].topic_partition: 2})
    assert list(moved.positions()) == [positions[0], Position(INPUT, 1, 5, 2)]
    assert moved.ends == batch.ends
    assert batch.in_incarnations({positions[0].topic_partition: 0, positions[1].topic_partition: 0}) is batch


def test_the_mark_of_a_partition_of_unknown_state_stays():
    store = MemoryIndex()
    store.open({})
    store.fence(Partition(INPUT, 0), 1, 7)
    assert store.fence(Partition(INPUT, 0), 2, 0, state=UNKNOWN_BROKER_STATE).high_water_mark == 7


def test_a_rebuilt_index_names_the_records_of_the_new_topic_as_before():
    """Their positions are the ids of documents without an id."""
    world = World(BEFORE, names=("one", "two"), on_index_lost="rebuild").run()
    world.recreate([Sent("q", OTHER_TEXT, 0, time_ms=5)])
    world.run()
    lost = []

    def lose(world: World, moment: Moment) -> None:
        """Let another daemon publish the pair of a batch in progress, then lose the index and this daemon."""
        if lost or (moment.effect, moment.after) != ("publish", False):
            return
        lost.append(moment)
        world.send(Sent(None, NEW_TEXT, 0, time_ms=8))
        world.others_work(6)
        world.index.__init__()
        raise Killed

    world.plan = lambda _number: lose
    world.send(Sent("y", NEW_TEXT, 1, time_ms=7)).run()
    assert lost
    pairs = [{document for document, _ in pair} for pair in world.published().elements()]
    assert [pair for pair in pairs if "y" in pair] == [{"articles@1:0:1", "y"}]


def test_an_index_that_is_lost_and_not_rebuilt_counts_on_from_the_committed_incarnation():
    world = World(BEFORE, on_index_lost="continue").run()
    world.recreate([Sent("q", OTHER_TEXT, 0, time_ms=5)])
    world.run()
    world.index.__init__()
    world.send(*(Sent(None, NEW_TEXT, partition, time_ms=8) for partition in (0, 0, 1))).run()
    pairs = [{document for document, _ in pair} for pair in world.published()]
    assert {"articles@1:0:1", "articles@1:0:2"} in pairs
