"""An input topic that does not exist: the daemon says so, goes on without it, and reads it once it exists."""

import pytest

from tests.turns import GROUP, INPUT, Sent, World

OTHER = "reviews"
TEXT = "amber birch cedar delta ember"
NEW_TEXT = "fjord grove heath inlet jetty"
BEFORE = [Sent("a", TEXT, 0), Sent("b", TEXT, 1)]
AFTER = [Sent("c", NEW_TEXT, 0, time_ms=5), Sent("d", NEW_TEXT, 1, time_ms=5), Sent("e", TEXT, 1, time_ms=5)]


def states(world: World) -> tuple[str | None, float, float]:
    """Problem, readiness and missing topics of the last daemon, as ``/readyz`` and ``/metrics`` show them."""
    daemon = world.daemons[-1]
    return daemon.loop.readiness.problem(), daemon.metric("ready"), daemon.metric("topic_missing")


@pytest.mark.parametrize("offsets_deleted", [True, False])
def test_a_daemon_reports_a_deleted_topic_and_reads_it_again_when_it_is_created(offsets_deleted):
    world = World(BEFORE).run()
    world.broker.delete(INPUT, offsets_deleted=offsets_deleted)
    for _ in range(3):
        world.turn(world.daemons[0])
        assert states(world) == (f"no such topic: {INPUT}", 0, 1)
    world.broker.create(INPUT, 2)
    world.send(*AFTER).run()
    assert states(world) == (None, 1, 0)
    assert world.daemons[0].metric("topics_recreated_total") == 1
    assert world.daemons[0].metric("documents_silent_total") == 0


@pytest.mark.parametrize("when", ["at work", "started later"])
def test_it_goes_on_with_its_other_topics(when):
    world = World(BEFORE, other_topics=[OTHER]).run()
    world.broker.produce(OTHER, b'{"id": "r", "text": "knoll lagoon"}')
    world.turn(world.daemons[0])
    world.broker.delete(OTHER, offsets_deleted=False)
    if when == "started later":
        world.stop_all()
        world.start("later")
    else:
        world.broker.rebalance(GROUP)
    world.send(*AFTER).run()
    assert states(world) == (f"no such topic: {OTHER}", 0, 1)


def test_it_stays_reported_while_there_are_no_clients():
    world = World(BEFORE).run()
    world.broker.delete(INPUT)
    world.turn(world.daemons[0])
    world.daemons[0].loop._clients.close()
    assert states(world) == (f"no such topic: {INPUT}", 0, 1)


def test_a_topic_that_is_created_after_the_start_is_read():
    world = World([], joined=False)
    world.broker.delete(INPUT)
    world.turn(world.daemons[0])
    assert states(world) == (f"no such topic: {INPUT}", 0, 1)
    world.broker.create(INPUT, 2)
    world.send(*AFTER).run()
    assert states(world) == (None, 1, 0)


def test_a_lost_index_is_rebuilt_from_the_topics_that_exist():
    world = World(BEFORE, other_topics=[OTHER], on_index_lost="rebuild").run()
    world.broker.delete(OTHER)
    world.server.go_back(None)
    world.start_later()
    world.send(*AFTER).run()
