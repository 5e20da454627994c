"""The steps of a history: records, progress of processes, faults, and what an operator does.

A step that cannot be taken, such as one about a process that has ended, is no error: shrinking removes steps at will.
"""

from collections.abc import Callable, Sequence
from functools import partial, partialmethod

from streamdedup.cli import index as commands
from streamdedup.errors import IndexMismatch, StaleFence, StreamdedupError
from streamdedup.position import Partition
from tests.simulation.operator import Installation, Settings
from tests.simulation.simulation import Process, Simulation
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
#: Least age of a copy whose keys are put back under running daemons: a limit of docs/guarantees.md.
_COPY_AGE_MS = 10_000


def play(simulation: Simulation, steps: Sequence[Step]) -> None:
    """Take all steps, and settle at the end."""
    taking = Steps(simulation)
    for name in simulation.setup.daemons:
        simulation.start(name)
    for step in (*steps, ("settle",)):
        simulation.trace.append(" ".join(step))
        getattr(taking, step[0].replace("-", "_"))(*step[1:])


class Steps:
    """A method for each step, with its arguments as text."""

    def __init__(self, simulation: Simulation) -> None:
        self._world = simulation
        self._broker = simulation.broker
        self._server = simulation.server

    # Records

    def send(self, partition: str, document: str, *words: str, op: str = "upsert", age: str = "0") -> None:
        self._world.send(Sent(document, " ".join(words), int(partition), op=op, time_ms=1_000 * int(age)))

    append = partialmethod(send, op="append")
    delete = partialmethod(send, op="delete")

    def aged(self, seconds: str, *of_send: str) -> None:
        """Send a record whose time lies in the past."""
        self.send(*of_send, age=seconds)

    def open(self, partition: str, document: str, *words: str) -> None:
        """A producer begins a transaction; its record hides those behind it until ``close``."""
        if "producer" not in self._broker._open:
            transaction = self._broker.begin("producer", self._broker.register("producer"))
            self._world.send(Sent(document, " ".join(words), int(partition)), transaction)
            self._in_transaction = self._world.produced[-1]

    def close(self, how: str = "committed") -> None:
        """The producer commits, or dies, so that the record was never sent."""
        if how != "committed" and "producer" in self._broker._open:
            self._world.produced.remove(self._in_transaction)
        self._broker.end("producer", "committed" if how == "committed" else "aborted")

    # Processes

    def _process(self, name: str) -> Process | None:
        process = self._world.processes.get(name)
        return process if process is not None and process.alive and not process.frozen else None

    def run(self, name: str, count: str, effect: str | None = None) -> None:
        if (process := self._process(name)) is not None:
            self._world.resume(process, _MOST_EFFECTS if effect else int(count), effect)

    def kill(self, name: str) -> None:
        if (process := self._world.processes.get(name)) is not None:
            self._world.remember_member(process)
            process.kill()

    def start(self, name: str) -> None:
        """Start a daemon; one that lives under this name goes on under another, as a process that seemed to be dead."""
        present = self._world.processes.pop(name, None)
        if present is not None and present.alive:
            while present.name in {name, *self._world.processes}:
                present.name += "-"
            self._world.processes[present.name] = present
        self._world.start(name)

    def stop(self, name: str) -> None:
        process = self._process(name)
        if process is not None and process.daemon is not None:
            process.daemon.stop.stopping = True
            self._world.resume(process, _MOST_EFFECTS)

    def expire(self, name: str) -> None:
        """End the sessions of a daemon and of those of its name that were killed: others take the partitions over."""
        if (process := self._world.processes.get(name)) is not None:
            self._world.remember_member(process)
        self._end_sessions(name)

    def _end_sessions(self, name: str) -> None:
        members = self._world.members.pop(name, set())
        # A static membership outlives the clients with which the process has joined.
        holder = self._broker.groups[GROUP].statics.get(name)
        if holder is not None and holder not in {abs(source._member) for source in self._world.sources()}:
            members.add(holder)
        for member in members:
            self._broker.expire(GROUP, member)

    def _end_left_sessions(self) -> None:
        """End static memberships whose holders have closed their clients and have not joined anew."""
        open_members = {source._member for source in self._world.sources() if source._broken != "closed"}
        for holder in set(self._broker.groups[GROUP].statics.values()) - open_members:
            self._broker.expire(GROUP, holder)

    def freeze(self, name: str) -> None:
        """A process stops for longer than its session, until ``wake`` or the end."""
        if (process := self._process(name)) is not None:
            self.expire(name)
            process.frozen = True

    def wake(self, name: str) -> None:
        if (process := self._world.processes.get(name)) is not None:
            process.frozen = False

    def fate(self, name: str, *fate: str) -> None:
        """Decide about the next call of a process that can have this fate."""
        if (process := self._process(name)) is not None:
            process.fate = " ".join(fate)

    def rebalance(self) -> None:
        self._broker.rebalance(GROUP)

    def skew(self, name: str, ms: str) -> None:
        if (process := self._world.processes.get(name)) is not None:
            process.clock_ms = int(ms)

    def clock(self, seconds: str) -> None:
        self._world.now_ms += 1_000 * int(seconds)

    # The server

    def save(self, name: str) -> None:
        self._server.save(name)
        self._world.saved_ms[name] = self._world.now_ms

    def back(self, name: str, *how: str) -> None:
        """The server goes back to a copy; with ``live`` the keys are put back, and no connection ends."""
        is_live = "live" in how
        if name in self._server.copies and self._may_lose(is_live=is_live):
            if is_live:
                self._world.now_ms = max(self._world.now_ms, self._world.saved_ms[name] + _COPY_AGE_MS)
            self._world.lose()
            self._server.go_back(name, restarts=not is_live)

    def flush(self) -> None:
        if self._may_lose():
            self._world.lose()
            self._server.go_back(None)

    def _may_lose(self, *, is_live: bool = False) -> bool:
        """Tell whether a loss at this moment costs no pair by the limits of docs/guarantees.md.

        With static members, or with connections that stay, Kafka accepts a batch that was completely indexed before.
        """
        if not is_live and not self._world.setup.static:
            return True
        indexed = {"publish", "commit"} | ({"committed_offsets", "partition_states"} if is_live else set())
        return not any(process.alive and process.at in indexed for process in self._world.processes.values())

    def late(self, number: str = "0") -> None:
        """A call arrives whose caller has given up long ago."""
        if self._server.late:
            self._server.arrive(int(number))

    def away(self, which: str) -> None:
        if which == "registry":
            self._world.registry_away = True
        else:
            {"kafka": self._broker, "server": self._server}[which].away = True

    def here(self) -> None:
        self._broker.away = self._server.away = self._world.registry_away = False

    # Topics and offsets

    def recreate(self, how: str = "") -> None:
        """Delete the topic and create it again; with ``late`` its offsets are deleted only at the end."""
        order = next(self._world.orders)
        for produced in self._world.produced:
            produced.removed = produced.removed or order
        self._world.topic_number += 1
        self._broker.recreate(INPUT, self._world.partitions, offsets_deleted=how != "late")

    def partitions(self, count: str) -> None:
        if int(count) > self._world.partitions:
            self._world.partitions = int(count)
            self._broker.add_partitions(INPUT, int(count))

    def remove(self, partition: str, end: str) -> None:
        of, removed = self._remove_where(partition, lambda offset, _is_replaced: offset < int(end))
        if removed:
            self._broker.truncate(of, removed[-1] + 1)

    def compact(self, partition: str) -> None:
        """Compaction removes the committed records that a later one of their document replaces, and old deletions."""
        of, removed = self._remove_where(partition, lambda _offset, is_replaced: is_replaced)
        self._broker.compact(of, *removed)

    def _remove_where(self, number: str, condemns: Callable[[int, bool], bool]) -> tuple[Partition, list[int]]:
        """Return the partition, and the offsets of the committed records that are to be removed from it."""
        partition, topic = self._partition(number), self._world.topic_number
        records = [p for p in self._world.produced if p.partition == partition and p.topic == topic]
        last = {produced.sent.id: produced.offset for produced in records}
        order, removed = next(self._world.orders), []
        for produced in records:
            is_replaced = last[produced.sent.id] != produced.offset or produced.sent.op == "delete"
            if produced.commit is not None and produced.removed is None and condemns(produced.offset, is_replaced):
                produced.removed = order
                removed.append(produced.offset)
        return partition, removed

    def _partition(self, number: str) -> Partition:
        return Partition(INPUT, int(number) % self._world.partitions)

    def _stop_all(self) -> bool:
        """Stop all daemons that are not frozen; tell whether the group has no member when their sessions have ended."""
        for name, process in list(self._world.processes.items()):
            if process.daemon is not None and not process.frozen:
                self.stop(name)
                self.kill(name)
                self.expire(name)
        return not self._broker.groups[GROUP].members

    def delete_group(self) -> None:
        """Stop all daemons and delete the group, or let its offsets expire."""
        if self._stop_all():
            self._broker.delete_group(GROUP)

    def offsets(self, partition: str, offset: str) -> None:
        """Stop all daemons in good order, and set an offset back."""
        where, is_empty = self._partition(partition), self._stop_all()
        present = self._broker.offsets_of(GROUP).get(where)
        if present is not None and is_empty:
            self._broker.commit(GROUP, {where: min(int(offset), present)})

    # Commands of the operator

    def _command(self, command: Callable[..., None], installation: Installation, *arguments: object) -> Process:
        """Begin ``streamdedup index`` with a command."""
        name = command.__name__
        body = partial(command, Settings(self._world, installation, name), None, *arguments)
        return self._world.command(name, body, installation)

    def rebuild(self, version: str = "") -> None:
        """Stop all daemons, and begin to rebuild the index, with other parameters if a version is named."""
        self._stop_all()
        self._world.lose()
        before = self._world.installation
        self._world.installation = Installation(before.prefix, int(version or before.version))
        self._command(commands.rebuild, self._world.installation, None, True, False)

    def drop(self, how: str = "") -> None:
        """Begin to delete the index: with `force` beside the daemons, else when all have stopped."""
        if not how:
            self._stop_all()
        self._world.lose()
        self._command(commands.drop, self._world.installation, None, True, how == "force")

    def prepare(self, prefix: str, version: str) -> None:
        self._world.lose()
        self._command(commands.prepare, Installation(prefix, int(version)), None)

    def switch(self, prefix: str, version: str) -> None:
        """Stop the daemons that are not frozen; those that start from now on use another index."""
        self._world.lose()
        self._stop_all()
        self._world.installation = Installation(prefix, int(version))

    def unfence(self) -> None:
        self._stop_all()
        self._world.resume(self._command(commands.unfence, self._world.installation, True), _MOST_EFFECTS)

    # The end

    def settle(self) -> None:
        """End all faults, start what is to run, and go on until everything is committed and calm."""
        self.here()
        for name in sorted({*self._world.members, *self._broker.groups[GROUP].statics}):
            self._end_sessions(name)
        self.close("aborted")
        self._broker.delete_outdated(GROUP)
        for process in self._world.processes.values():
            process.frozen, process.fate = False, ""
        calm = 0
        for number in range(1, _MOST_ROUNDS):
            if number % _SESSION_ROUNDS == 0:
                self._end_left_sessions()
            self._supervise()
            for process in list(self._world.processes.values()):
                self._world.resume(process, _ROUND_EFFECTS, "wait")
            if not self._world.done:
                calm = min(calm, _CALM_ROUNDS)
                continue
            calm += 1
            while calm == _CALM_ROUNDS and self._server.late:
                self._server.arrive(0)
            if calm >= _SETTLED_ROUNDS:
                self._broker.time_out_transactions()  # those of waiting daemons would hide later alerts
                self._world.settled.append(next(self._world.orders))
                return
        self._world.wrong.append("no progress")

    def _supervise(self) -> None:
        """Start the daemons that have ended; do what their last error advises."""
        world = self._world
        for name, process in list(world.processes.items()):
            if process.alive:
                continue
            self.expire(name)
            world.processes.pop(name, None)
            error = process.error
            if error is None:
                continue
            if not isinstance(error, StreamdedupError):
                world.wrong.append(f"{name} ended with {error!r}")
            world.excused[f"processes that ended with {type(error).__name__}"] += 1
            if isinstance(error, StaleFence):
                self.unfence()
            if isinstance(error, IndexMismatch) and process.installation == world.installation:
                self.rebuild()
        command = world.processes.get("rebuild")
        if command is not None and command.alive:
            return  # the daemons are started when the command has ended
        for name in world.setup.daemons:
            if name not in world.processes:
                world.start(name)
