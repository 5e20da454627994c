"""The steps of a history: records, progress of processes, faults, and what an operator does.

A step that cannot be taken, such as one about a process that has ended, is no error: shrinking removes steps at will.
"""

from collections.abc import Callable, Sequence
from functools import partial

from streamdedup.cli import index as commands
from streamdedup.errors import IndexMismatch, StaleFence, StreamdedupError
from streamdedup.position import Partition
from tests.simulation.operator import Installation, settings_of
from tests.simulation.simulation import KAFKA_FATES, SERVER_FATES, Process, Simulation
from tests.simulation.story import Step
from tests.simulation.world import GROUP, INPUT, Sent

#: Effects of a process in a round of ``settle``, and rounds after which a history is stuck.
_ROUND_EFFECTS, _MOST_ROUNDS = 40, 300
#: Rounds that are as long as a session.
_SESSION_ROUNDS = 50
#: Effects after which a process stops that waits for an effect.
_MOST_EFFECTS = 400
#: Rounds without anything left to do until late calls arrive, and until all is settled.
_CALM_ROUNDS, _SETTLED_ROUNDS = 2, 4


def take(simulation: Simulation, step: Step) -> None:
    """Take one step."""
    verb, *arguments = step
    simulation.trace.append(" ".join(step))
    STEPS[verb.replace("-", "_")](simulation, *arguments)


# Records


def _send(simulation: Simulation, partition: str, document: str, *words: str, op: str = "upsert", age: int = 0) -> None:
    simulation.send(Sent(document, " ".join(words), int(partition), op=op, time_ms=age))


def _aged(simulation: Simulation, seconds: str, *of_send: str) -> None:
    """Send a record whose time lies in the past."""
    _send(simulation, *of_send, age=1_000 * int(seconds))


def _open(simulation: Simulation, partition: str, document: str, *words: str) -> None:
    """A producer begins a transaction; its record hides those behind it until ``close``."""
    if "producer" not in simulation.broker._open:
        simulation.broker.register("producer")
        transaction = simulation.broker.begin("producer", simulation.broker._epochs["producer"])
        simulation.send(Sent(document, " ".join(words), int(partition)), transaction)
        simulation.in_transaction = simulation.produced[-1]


def _close(simulation: Simulation, how: str = "committed") -> None:
    """The producer commits, or dies, so that the record was never sent."""
    if how != "committed" and "producer" in simulation.broker._open:
        simulation.produced.remove(simulation.in_transaction)
    simulation.broker.end("producer", "committed" if how == "committed" else "aborted")


# Processes


def _process(simulation: Simulation, name: str) -> Process | None:
    process = simulation.processes.get(name)
    return process if process is not None and process.alive and name not in simulation.frozen else None


def _run(simulation: Simulation, name: str, count: str, effect: str | None = None) -> None:
    process = _process(simulation, name)
    if process is not None:
        simulation.resume(process, _MOST_EFFECTS if effect else int(count), effect)


def _kill(simulation: Simulation, name: str) -> None:
    process = simulation.processes.get(name)
    if process is not None:
        simulation.remember_member(process)
        process.kill()
        simulation.frozen.discard(name)


def _start(simulation: Simulation, name: str) -> None:
    """Start a daemon; one that lives under this name goes on under another, as a process that seemed to be dead."""
    present = simulation.processes.pop(name, None)
    if present is not None and present.alive:
        old = f"{name}-"
        while old in simulation.processes:
            old += "-"
        present.name = old
        simulation.processes[old] = present
        if name in simulation.frozen:
            simulation.frozen = simulation.frozen - {name} | {old}
    simulation.start(name)


def _stop(simulation: Simulation, name: str) -> None:
    """Ask a daemon to stop, and wait until it has ended."""
    process = _process(simulation, name)
    if process is not None and process.daemon is not None:
        process.daemon.stop.stopping = True
        simulation.resume(process, _MOST_EFFECTS)


def _expire(simulation: Simulation, name: str) -> None:
    """End the sessions of a daemon and of those of its name that were killed: others take the partitions over."""
    process = simulation.processes.get(name)
    if process is not None:
        simulation.remember_member(process)
    _end_sessions(simulation, name)


def _end_sessions(simulation: Simulation, name: str) -> None:
    members = simulation.members.pop(name, set())
    # A static membership outlives the clients with which the process has joined.
    holder = simulation.broker.groups[GROUP].statics.get(name)
    alive = {
        abs(process.source._member) for process in simulation.processes.values() if process.alive and process.source
    }
    if holder is not None and holder not in alive:
        members.add(holder)
    for member in members:
        simulation.broker.expire(GROUP, member)


def _end_left_sessions(simulation: Simulation) -> None:
    """End static memberships whose holders have closed their clients and have not joined anew."""
    sources = [process.source for process in simulation.processes.values() if process.alive]
    open_members = {source._member for source in sources if source is not None and source._broken != "closed"}
    for holder in set(simulation.broker.groups[GROUP].statics.values()) - open_members:
        simulation.broker.expire(GROUP, holder)


def _freeze(simulation: Simulation, name: str) -> None:
    """A process stands still for longer than its session, until ``wake`` or the end."""
    if _process(simulation, name) is not None:
        _expire(simulation, name)
        simulation.frozen.add(name)


def _wake(simulation: Simulation, name: str) -> None:
    simulation.frozen.discard(name)


def _fate(simulation: Simulation, name: str, *fate: str) -> None:
    """Decide about the next call of a process: see ``SERVER_FATES`` and ``KAFKA_FATES``."""
    process = _process(simulation, name)
    assert " ".join(fate) in SERVER_FATES + KAFKA_FATES
    if process is not None:
        process.fate = " ".join(fate)


def _rebalance(simulation: Simulation) -> None:
    simulation.broker.rebalance(GROUP)


def _skew(simulation: Simulation, name: str, ms: str) -> None:
    """Set the clock of a process ahead or back."""
    if (process := simulation.processes.get(name)) is not None:
        process.clock_ms = int(ms)


def _clock(simulation: Simulation, seconds: str) -> None:
    simulation.now_ms += 1_000 * int(seconds)


# The server


def _save(simulation: Simulation, name: str) -> None:
    simulation.server.save(name)
    simulation.saved_ms[name] = simulation.now_ms


#: Least age of a copy whose keys are put back under running daemons: a limit of docs/guarantees.md.
_COPY_AGE_MS = 10_000


def _back(simulation: Simulation, name: str, *how: str) -> None:
    """The server goes back to a copy; with ``live`` the keys are put back, and no connection ends."""
    is_live = "live" in how
    if name in simulation.server.copies and _may_lose(simulation, is_live=is_live):
        if is_live:
            simulation.now_ms = max(simulation.now_ms, simulation.saved_ms[name] + _COPY_AGE_MS)
        simulation.lose()
        simulation.server.go_back(name, restarts=not is_live)


def _flush(simulation: Simulation) -> None:
    if _may_lose(simulation):
        simulation.lose()
        simulation.server.go_back(None)


def _may_lose(simulation: Simulation, *, is_live: bool = False) -> bool:
    """Tell whether a loss at this moment costs no pair by the limits of docs/guarantees.md.

    With static members, or with connections that stay, Kafka accepts a batch that was completely indexed before.
    """
    if not is_live and not simulation.setup.static:
        return True
    indexed = {"publish", "commit"} | ({"committed_offsets", "partition_states"} if is_live else set())
    return not any(process.alive and process.at in indexed for process in simulation.processes.values())


def _late(simulation: Simulation, number: str = "0") -> None:
    """A call arrives whose caller has given up long ago."""
    if simulation.server.late:
        simulation.server.arrive(int(number))


def _away(simulation: Simulation, which: str) -> None:
    if which == "kafka":
        simulation.broker.away = True
    elif which == "registry":
        simulation.registry_away = True
    else:
        simulation.server.away = True


def _here(simulation: Simulation) -> None:
    simulation.broker.away = simulation.server.away = simulation.registry_away = False


# Topics and offsets


def _recreate(simulation: Simulation, how: str = "") -> None:
    """Delete the topic and create it again; with ``late`` its offsets are deleted only at the end."""
    order = next(simulation.orders)
    for produced in simulation.produced:
        produced.removed = produced.removed or order
    simulation.topic_number += 1
    simulation.broker.recreate(INPUT, simulation.partitions, offsets_deleted=how != "late")


def _partitions(simulation: Simulation, count: str) -> None:
    if int(count) > simulation.partitions:
        simulation.partitions = int(count)
        simulation.broker.add_partitions(INPUT, int(count))


def _remove(simulation: Simulation, partition: str, end: str) -> None:
    """Retention removes the records before an offset."""
    of, removed = _remove_where(simulation, int(partition), lambda offset, _later: offset < int(end))
    if removed:
        simulation.broker.truncate(of, removed[-1] + 1)


def _compact(simulation: Simulation, partition: str) -> None:
    """Compaction removes the committed records that a later one of their document replaces, and old deletions."""
    of, removed = _remove_where(simulation, int(partition), lambda _offset, later: later)
    simulation.broker.compact(of, *removed)


def _remove_where(
    simulation: Simulation, number: int, condemns: Callable[[int, bool], bool]
) -> tuple[Partition, list[int]]:
    """Return the partition, and the offsets of the committed records that are to be removed from it."""
    partition = Partition(INPUT, number % simulation.partitions)
    records = [p for p in simulation.produced if p.partition == partition and p.topic == simulation.topic_number]
    last = {produced.sent.id: produced.offset for produced in records}
    order, removed = next(simulation.orders), []
    for produced in records:
        is_replaced = last[produced.sent.id] != produced.offset or produced.sent.op == "delete"
        if produced.commit is not None and produced.removed is None and condemns(produced.offset, is_replaced):
            produced.removed = order
            removed.append(produced.offset)
    return partition, removed


def _stop_all(simulation: Simulation) -> None:
    """Stop all daemons that are not frozen; their sessions end."""
    for name, process in list(simulation.processes.items()):
        if process.daemon is not None and name not in simulation.frozen:
            _stop(simulation, name)
            _kill(simulation, name)
            _expire(simulation, name)


def _delete_group(simulation: Simulation) -> None:
    """Stop all daemons and delete the group, or let its offsets expire."""
    _stop_all(simulation)
    if not simulation.broker.groups[GROUP].members:
        simulation.broker.delete_group(GROUP)


def _offsets(simulation: Simulation, partition: str, offset: str) -> None:
    """Stop all daemons in good order, and set an offset back."""
    _stop_all(simulation)
    where = Partition(INPUT, int(partition) % simulation.partitions)
    committed = simulation.broker.committed(GROUP).get(where)
    if committed is not None and not simulation.broker.groups[GROUP].members:
        simulation.broker.commit(GROUP, {where: min(int(offset), committed)})


# Commands of the operator


def _rebuild(simulation: Simulation, version: str = "") -> None:
    """Stop all daemons, and begin ``streamdedup index rebuild``, with other parameters if a version is named."""
    _stop_all(simulation)
    simulation.lose()
    before = simulation.installation
    simulation.installation = installation = Installation(before.prefix, int(version or before.version))
    settings = settings_of(simulation, installation, "rebuild")
    simulation.command("rebuild", partial(commands.rebuild, settings, None, None, True, False), installation)


def _prepare(simulation: Simulation, prefix: str, version: str) -> None:
    """Begin ``streamdedup index prepare``."""
    simulation.lose()
    installation = Installation(prefix, int(version))
    settings = settings_of(simulation, installation, "prepare")
    simulation.command("prepare", partial(commands.prepare, settings, None, None), installation)


def _switch(simulation: Simulation, prefix: str, version: str) -> None:
    """Stop the daemons that are not frozen; those that start from now on use another index."""
    simulation.lose()
    _stop_all(simulation)
    simulation.installation = Installation(prefix, int(version))


def _unfence(simulation: Simulation) -> None:
    """Stop all daemons, and call ``streamdedup index unfence``."""
    _stop_all(simulation)
    settings = settings_of(simulation, simulation.installation, "unfence")
    process = simulation.command("unfence", partial(commands.unfence, settings, None, True), simulation.installation)
    simulation.resume(process, _MOST_EFFECTS)


# The end


def settle(simulation: Simulation) -> None:
    """End all faults, start what is to run, and go on until everything is committed and calm."""
    _here(simulation)
    simulation.frozen.clear()
    for name in sorted({*simulation.members, *simulation.broker.groups[GROUP].statics}):
        _end_sessions(simulation, name)
    _close(simulation, "aborted")
    simulation.broker.delete_outdated(GROUP)
    for process in simulation.processes.values():
        process.fate = ""
    calm = 0
    for number in range(1, _MOST_ROUNDS):
        if number % _SESSION_ROUNDS == 0:
            _end_left_sessions(simulation)
        _supervise(simulation)
        for process in list(simulation.processes.values()):
            simulation.resume(process, _ROUND_EFFECTS, "wait")
        if not simulation.done:
            calm = min(calm, _CALM_ROUNDS)
            continue
        calm += 1
        if calm == _CALM_ROUNDS:
            while simulation.server.late:
                simulation.server.arrive(0)
        if calm >= _SETTLED_ROUNDS:
            simulation.settled.append(next(simulation.orders))
            return
    simulation.wrong.append("no progress")


def _supervise(simulation: Simulation) -> None:
    """Start the daemons that have ended; do what their last error advises."""
    for name, process in list(simulation.processes.items()):
        if process.alive:
            continue
        _expire(simulation, name)
        simulation.processes.pop(name, None)
        error = process.error
        if error is None:
            continue
        if not isinstance(error, StreamdedupError):
            simulation.wrong.append(f"{name} ended with {error!r}")
        simulation.excused[f"processes that ended with {type(error).__name__}"] += 1
        if isinstance(error, StaleFence):
            _unfence(simulation)
        if isinstance(error, IndexMismatch) and process.installation == simulation.installation:
            _rebuild(simulation)
    command = simulation.processes.get("rebuild")
    if command is not None and command.alive:
        return  # the daemons are started when the command has ended
    for name in simulation.setup.daemons:
        if name not in simulation.processes:
            simulation.start(name)


STEPS: dict[str, Callable[..., None]] = {
    "send": _send,
    "aged": _aged,
    "append": partial(_send, op="append"),
    "delete": partial(_send, op="delete"),
    "open": _open, "close": _close,
    "run": _run, "kill": _kill, "start": _start, "stop": _stop, "expire": _expire, "freeze": _freeze, "wake": _wake,
    "fate": _fate, "rebalance": _rebalance, "skew": _skew, "clock": _clock,
    "save": _save, "back": _back, "flush": _flush, "late": _late, "away": _away, "here": _here,
    "recreate": _recreate, "partitions": _partitions, "remove": _remove, "compact": _compact,
    "delete_group": _delete_group, "offsets": _offsets,
    "rebuild": _rebuild, "prepare": _prepare, "switch": _switch, "unfence": _unfence,
    "settle": settle,
}  # fmt: skip


def play(simulation: Simulation, steps: Sequence[Step]) -> None:
    """Take all steps, and settle at the end."""
    for name in simulation.setup.daemons:
        simulation.start(name)
    for step in steps:
        take(simulation, step)
    take(simulation, ("settle",))
