"""Histories drawn from a seed: each has a few kinds of faults, because faults of all kinds at once heal each other."""

import random
from collections.abc import Callable, Iterator

from tests.simulation.story import Setup, Step, Story
from tests.simulation.world import a_text, edited

#: Effects at which something may happen that a number of effects would seldom hit.
_EFFECTS = (
    "poll", "fence", "confirm", "insert_entries", "remove_from_buckets", "replace_entries", "insert_and_look_up",
    "read_entries", "save_pending_matches", "claim_pairs", "set_clusters", "announce", "publish", "commit", "finish",
    "hold", "clear", "complete", "partition_states", "all_committed", "open_clients",
)  # fmt: skip
#: Kinds of operations besides one upsert of each document.
_KINDS = ("update", "append", "delete", "redeliver")
#: Fates of a call, by fault.
_FATES = {
    "lost": ("request lost", "reply lost"),
    "late": ("late", "twice"),
    "kafka": ("refused", "silent", "before commit", "after commit"),
}


class Draw:
    """Draws one history.

    Args:
        seed: Decides everything.
    """

    def __init__(self, seed: int) -> None:
        self._rng = rng = random.Random(seed)
        self._names = ["a", "b", "c"][: rng.randint(1, 3)]
        self.setup = Setup(
            partitions=rng.randint(1, 3),
            daemons=tuple(self._names),
            batch=rng.randint(1, 4),
            grown=rng.random() < 0.6,
            static=rng.random() < 0.25,
        )
        self._faults = rng.sample(sorted(FAULTS), rng.randint(1, 4))
        if self.setup.partitions < len(self._names):
            # "rebuild without partitions": a daemon that has begun a rebuild and gets no partition does not end it.
            self._faults = [fault for fault in self._faults if fault not in {"back", "flush"}] or ["crash"]
        self._kinds = {kind for kind in _KINDS if rng.random() < 0.4}
        self._texts = [a_text(rng, rng.randint(3, 8)) for _ in range(rng.randint(1, 3))]
        self._home: dict[str, int] = {}
        self._alive: dict[str, str] = {}
        self._used: dict[str, list[str]] = {}
        self._ids = (f"d{number}" for number in range(1000))
        self._copies = 0
        self.has_appends = "append" in self._kinds

    def story(self) -> Story:
        """Return the history."""
        steps: list[Step] = []
        rng = self._rng
        steps += [("run", name, str(rng.randint(5, 30))) for name in self._names if rng.random() < 0.7]
        left = rng.randint(6, 16)
        while left > 0:
            chance = rng.random()
            if chance < 0.3:
                steps += self._record()
                left -= 1
            elif chance < 0.8:
                steps.append(self._progress())
            else:
                steps += FAULTS[rng.choice(self._faults)](self)
        steps += [self._progress() for _ in range(rng.randint(0, 10))]
        steps.append(("settle",))
        steps += self._probes()
        return Story(self.setup, steps)

    # Records

    def _text(self) -> str:
        text = self._rng.choice(self._texts)
        return edited(self._rng, text) if self._rng.random() < 0.3 else text

    def _record(self) -> Iterator[Step]:
        rng = self._rng
        known = sorted(self._home)
        if known and self._kinds and rng.random() < 0.5:
            document, kind = rng.choice(known), rng.choice(sorted(self._kinds))
            place = str(self._home[document])
            if kind == "append" and document in self._alive:
                words = a_text(rng, rng.randint(1, 3))
                self._alive[document] += " " + words
                yield ("append", place, document, *words.split())
                return
            if kind == "delete" and document in self._alive:
                del self._alive[document]
                yield ("delete", place, document)
                return
            if kind == "redeliver" and document in self._alive and not self.has_appends:
                yield ("send", place, document, *self._alive[document].split())
                return
            if kind in {"update", "delete"}:
                text = rng.choice(self._used[document]) if rng.random() < 0.5 else self._text()
                yield self._upsert(document, text)
                return
        yield self._upsert(next(self._ids), self._text())

    def _upsert(self, document: str, text: str) -> Step:
        place = self._home.setdefault(document, self._rng.randrange(self.setup.partitions))
        self._used.setdefault(document, []).append(text)
        self._alive[document] = text
        return ("send", str(place), document, *text.split())

    def _probes(self) -> Iterator[Step]:
        """Yield copies of the documents that are left, which find only what the index has."""
        for document, text in sorted(self._alive.items()):
            if self._rng.random() < 0.6:
                yield self._upsert(next(self._ids), text)
            elif self._rng.random() < 0.3:
                yield ("append", str(self._home[document]), document, "knoll")

    # Progress and faults

    def _progress(self) -> Step:
        name = self._rng.choice(self._names)
        if self._rng.random() < 0.35:
            return ("run", name, "until", self._rng.choice(_EFFECTS))
        return ("run", name, str(self._rng.choice((1, 2, 3, 5, 8, 12, 20, 40))))

    def _some_progress(self) -> list[Step]:
        return [self._progress() for _ in range(self._rng.randint(1, 5))]

    def crash(self) -> Iterator[Step]:
        name = self._rng.choice(self._names)
        yield ("kill", name)
        if self._rng.random() < 0.5:
            yield ("expire", name)
        if self._rng.random() < 0.3:
            yield from self._some_progress()
        yield ("start", name)

    def freeze(self) -> Iterator[Step]:
        name = self._rng.choice(self._names)
        yield ("freeze", name)
        yield from self._some_progress()
        if self._rng.random() < 0.7:
            yield ("wake", name)

    def expire(self) -> Iterator[Step]:
        yield ("expire", self._rng.choice(self._names))

    def rebalance(self) -> Iterator[Step]:
        yield ("rebalance",)

    def replace(self) -> Iterator[Step]:
        """Start a second process of a name."""
        name = self._rng.choice(self._names)
        yield ("start", name)
        yield from self._some_progress()
        yield ("run", f"{name}-", str(self._rng.randint(1, 30)))

    def fates(self, kind: str) -> Iterator[Step]:
        name = self._rng.choice(self._names)
        yield ("fate", name, *self._rng.choice(_FATES[kind]).split())
        if kind == "late":
            yield ("run", name, str(self._rng.randint(1, 30)))
            yield from self._some_progress()
            yield ("late", str(self._rng.randrange(3)))

    def outage(self) -> Iterator[Step]:
        yield ("away", self._rng.choice(("kafka", "server")))
        yield from self._some_progress()
        yield ("here",)

    def back(self) -> Iterator[Step]:
        if not self._copies or self._rng.random() < 0.5:
            self._copies += 1
            yield ("save", f"s{self._copies}")
        else:
            yield ("back", f"s{self._rng.randint(1, self._copies)}")

    def flush(self) -> Iterator[Step]:
        if self._rng.random() < 0.3:
            yield ("flush",)

    def open(self) -> Iterator[Step]:
        yield ("open", *self._upsert(next(self._ids), self._text())[1:])
        yield from self._some_progress()
        if self._rng.random() < 0.8:
            yield ("close", "committed")


#: Faults by name.
FAULTS: dict[str, Callable[[Draw], Iterator[Step]]] = {
    "crash": Draw.crash,
    "freeze": Draw.freeze,
    "expire": Draw.expire,
    "rebalance": Draw.rebalance,
    "replace": Draw.replace,
    "lost": lambda draw: draw.fates("lost"),
    "late": lambda draw: draw.fates("late"),
    "kafka": lambda draw: draw.fates("kafka"),
    "outage": Draw.outage,
    "back": Draw.back,
    "flush": Draw.flush,
}


def random_story(seed: int) -> Story:
    """Return the history of a seed."""
    return Draw(seed).story()
