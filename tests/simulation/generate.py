"""Histories drawn from a seed: each has a few kinds of faults, because faults of all kinds at once heal each other."""

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partialmethod

from tests.simulation.simulation import KAFKA_FATES, PUBLISH_FATES, SERVER_FATES
from tests.simulation.story import Setup, Step, Story
from tests.simulation.world import a_text, edited

#: Effects at which something may happen that a number of effects would seldom hit.
_EFFECTS = (
    "poll", "fence", "confirm", "insert_entries", "remove_from_buckets", "replace_entries", "insert_and_look_up",
    "read_entries", "save_pending_matches", "claim_pairs", "set_clusters", "announce", "publish", "commit", "finish",
    "take_lease", "clear", "complete", "partition_states", "committed_offsets", "open_clients",
)  # fmt: skip
#: Those of them that write.
_WRITES = (*_EFFECTS[3:12], "finish")
#: Kinds of operations besides one upsert of each document.
_KINDS = ("update", "append", "delete", "redeliver")
#: Peculiarities of profiles and documents.
_PROFILES = ("contained", "suppressed", "full", "moves", "scopes")
#: Window of those histories that have one, in seconds.
_WINDOW_S = 3_600
#: Fates of a call, by fault.
_FATES = {
    "lost": SERVER_FATES[:2],
    "late": SERVER_FATES[2:],
    "kafka": (*KAFKA_FATES, *PUBLISH_FATES),
}
#: Faults that belong together.
_THEMES = (
    ("back", "compact"), ("back", "crash"), ("back", "delete group"), ("back", "freeze"), ("back", "late"),
    ("rebuild", "recreate"), ("back", "remove"), ("back", "skew", "crash"), ("crash", "flush"), ("crash", "lost"),
    ("crash", "offsets"), ("crash", "prepare"), ("crash", "rebuild"), ("drop",), ("drop", "freeze"),
    ("flush", "freeze"), ("flush", "recreate"), ("freeze", "late"), ("freeze", "prepare"), ("freeze", "rebuild"),
    ("freeze", "recreate"), ("gap",), ("gap", "compact"), ("late", "replace"), ("live back", "back"),
    ("outage", "back"), ("prepare", "flush"), ("prepare", "rebuild"), ("replace", "expire"), ("scope", "crash"),
)  # fmt: skip
#: Faults after which an index may be built from the topics.
_LOSING = frozenset({"back", "drop", "flush", "gap", "live back", "prepare", "rebuild", "scope"})


class Draw:
    """Draws one history; the subclass has the faults."""

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
        if rng.random() < 0.25:
            self.setup = replace(self.setup, window_s=_WINDOW_S)
        self._faults = self._draw_faults()
        self._kinds = {kind for kind in _KINDS if rng.random() < 0.4}
        if {"gap", "compact"} <= set(self._faults):
            self._kinds.add("delete")
        self._draw_profile()
        if "compact" in self._faults or self.setup.window_s is not None:
            # An append to a document that has expired finds nothing.
            self._kinds.discard("append")
        self._texts = [a_text(rng, rng.randint(3, 8)) for _ in range(rng.randint(1, 3))]
        self._home: dict[str, int] = {}
        self._alive: dict[str, str] = {}
        self._used: dict[str, list[str]] = {}
        self._ids = (f"d{number}" for number in range(1000))
        self._copies = 0
        self._prefixes = 1
        self._partitions = self.setup.partitions

    def _draw_profile(self) -> None:
        """Draw what belongs to the profile, and whether documents move between partitions."""
        rng, kind = self._rng, self._rng.choice((*_PROFILES, None, None, None))
        self._moves = kind == "moves" and self.setup.window_s is None and not {"recreate", "skew"} & set(self._faults)
        if kind == "contained":
            self.setup = replace(self.setup, contained=True)
        if kind == "suppressed":
            self.setup = replace(self.setup, min_shingles=rng.randint(3, 5))
        if kind == "scopes" and "scope" not in self._faults:
            self.setup = replace(self.setup, scopes=True)
        if kind == "full" and self.setup.window_s is None:
            self.setup = replace(self.setup, bucket_cap=rng.randint(2, 4))
            # Pairs beyond the cap are missed, except of exact copies, which is plain without changes and a window.
            self._kinds &= {"redeliver"}
        if self._moves:
            # Of two partitions the later time wins, unless the text is the same; deletions and appends have no order.
            self._kinds = {"update"}

    def _draw_faults(self) -> list[str]:
        """Draw the faults; those of a static member and of its clock also decide about the setup."""
        faults = set(self._rng.sample(FAULTS, self._rng.randint(1, 4)))
        if self._rng.random() < 0.6:
            theme = self._rng.choice(_THEMES)
            faults = {*theme, *self._rng.sample(sorted(faults), self._rng.randint(0, len(faults)) // 2)}
        if faults & {"replace", "skew"} and self._rng.random() < 0.5:
            self.setup = replace(self.setup, static=True)
        if "offsets" in faults:
            # Of offsets that are set back a rebuilt index does not know how far they had been.
            faults -= _LOSING
        if "recreate" in faults:
            # Kafka has no more of a deleted topic: neither the committed offsets that show a loss, nor the deletions by
            # which a rebuilt index names the incarnations of documents. So no copy is from before, and each loss is
            # noticed before the topic is deleted. The new topic counts as another partition, and the time of a daemon
            # whose clock is behind takes the place of the time of a record. An offset that is set by hand has no topic
            # id, by which a daemon tells that it belongs to a deleted topic.
            faults -= (_LOSING - {"flush", "prepare", "rebuild"}) | {"skew", "offsets"}
        if self.setup.window_s is not None:
            faults.add("clock")
            faults -= {"skew"}  # a record of the future gets the time of the daemon
        return sorted(faults) or ["crash"]

    def story(self) -> Story:
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
                steps += getattr(self, rng.choice(self._faults).replace(" ", "_"))()
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
            if kind == "append" and (document in self._alive or rng.random() < 0.3):
                yield from self._append(document)
                return
            if kind == "delete" and document in self._alive:
                del self._alive[document]
                yield ("delete", place, document)
                return
            if kind == "redeliver" and document in self._alive and "append" not in self._kinds:
                yield ("send", place, document, *self._alive[document].split())
                return
            if kind in {"update", "delete"}:
                text = rng.choice(self._used.get(document, [self._text()])) if rng.random() < 0.5 else self._text()
                if self._moves:
                    is_same = document in self._alive and rng.random() < 0.3
                    text = self._alive[document] if is_same else a_text(rng, 1) + " " + self._text()
                    if not is_same and text in self._used[document]:
                        return
                    del self._home[document]
                    if not is_same and len(self._names) > 1:
                        # Versions in two partitions that two daemons process at the same moment are no promise.
                        yield ("settle",)
                yield self._upsert(document, text)
                return
        yield self._upsert(next(self._ids), self._text())

    def _append(self, document: str) -> Iterator[Step]:
        """Yield an append to the document, which may be deleted, or to one that no record has brought."""
        rng = self._rng
        is_first = rng.random() < 0.2
        if is_first:
            document = next(self._ids)
        words = a_text(rng, rng.randint(1, 3))
        if document in self._alive:
            self._alive[document] += " " + words
        yield ("append", str(self._home_of(document)), document, *words.split())
        if is_first and rng.random() < 0.5:
            yield self._upsert(document, self._text())

    def _home_of(self, document: str) -> int:
        return self._home.setdefault(document, self._rng.randrange(self.setup.partitions))

    def _upsert(self, document: str, text: str) -> Step:
        place = self._home_of(document)
        self._used.setdefault(document, []).append(text)
        self._alive[document] = text
        # A topic that was created again counts as another partition, and of two partitions the later time wins.
        if self.setup.window_s is not None and "recreate" not in self._faults and self._rng.random() < 0.3:
            age_s = self._rng.choice((1, _WINDOW_S // 3, _WINDOW_S, 2 * _WINDOW_S))
            return ("aged", str(age_s), str(place), document, *text.split())
        return ("send", str(place), document, *text.split())

    def _probes(self) -> Iterator[Step]:
        """Yield copies of the documents that are left, which find only what the index has."""
        for document, text in sorted(self._alive.items()):
            if self._rng.random() < 0.6:
                yield self._upsert(next(self._ids), text)
            elif self._rng.random() < 0.3 and self.setup.window_s is None and "compact" not in self._faults:
                yield ("append", str(self._home[document]), document, "knoll")

    def _progress(self) -> Step:
        name = self._rng.choice(self._names)
        if self._rng.random() < 0.35:
            return ("run", name, "until", self._rng.choice(_EFFECTS))
        return ("run", name, str(self._rng.choice((1, 2, 3, 5, 8, 12, 20, 40))))

    def _some_progress(self) -> list[Step]:
        return [self._progress() for _ in range(self._rng.randint(1, 5))]


class Faults(Draw):
    """Draws the steps of each fault."""

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
        if self._rng.random() < 0.5:
            yield ("wake", name)

    def expire(self) -> Iterator[Step]:
        yield ("expire", self._rng.choice(self._names))

    def rebalance(self) -> Iterator[Step]:
        yield ("rebalance",)

    def replace(self) -> Iterator[Step]:
        name = self._rng.choice(self._names)
        if self._rng.random() < 0.6:
            yield ("run", name, "until", self._rng.choice(("partition_states", *_WRITES, "fence", "commit")))
        yield ("start", name)
        yield from self._some_progress()
        yield ("run", f"{name}-", str(self._rng.randint(1, 30)))

    def _fates(self, kind: str) -> Iterator[Step]:
        name = self._rng.choice(self._names)
        if self._rng.random() < 0.7:
            effects = ("publish", "poll", "commit") if kind == "kafka" else _WRITES
            yield ("run", name, "until", self._rng.choice(effects))
        yield ("fate", name, *self._rng.choice(_FATES[kind]).split())
        if kind == "late":
            yield ("run", name, str(self._rng.randint(1, 60)))
            yield from self._some_progress()
            yield ("late", str(self._rng.randrange(3)))

    lost = partialmethod(_fates, "lost")
    late = partialmethod(_fates, "late")
    kafka = partialmethod(_fates, "kafka")

    def outage(self) -> Iterator[Step]:
        yield ("away", self._rng.choice(("kafka", "registry", "server")))
        yield from self._some_progress()
        yield ("here",)

    def back(self, *how: str) -> Iterator[Step]:
        if not self._copies or self._rng.random() < 0.5:
            self._copies += 1
            yield ("save", f"s{self._copies}")
        else:
            yield ("back", f"s{self._rng.randint(1, self._copies)}", *how)

    live_back = partialmethod(back, "live")

    def gap(self) -> Iterator[Step]:
        """Go back to a copy of settled indexes, and let records come before it is noticed."""
        self._copies += 1
        yield from [("settle",), ("save", f"s{self._copies}"), *self._record(), *self._record(), ("settle",)]
        if "compact" in self._faults:
            yield from self.compact()
        yield from [("rebalance",)] * (self._rng.random() < 0.3)
        yield from [("back", f"s{self._copies}"), *self._record(), *self._record()]

    def flush(self) -> Iterator[Step]:
        if self._rng.random() < 0.3:
            yield ("flush",)

    def _command(self, name: str) -> Iterator[Step]:
        """Let a command go on while the daemons do, perhaps not to its end."""
        for _ in range(self._rng.randint(1, 4)):
            yield ("run", name, str(self._rng.choice((3, 8, 20, 60))))
            if self._rng.random() < 0.6:
                yield from self._some_progress()
            if "flush" in self._faults and "recreate" not in self._faults and self._rng.random() < 0.3:
                yield ("flush",)
        if self._rng.random() < 0.3:
            yield ("kill", name)
        else:
            yield ("run", name, "400")
            yield ("run", name, "400")

    def _make_good(self) -> Iterator[Step]:
        """Let losses be noticed and made good before Kafka forgets what shows them."""
        # A daemon that goes on with an earlier index leaves a gap in the present one.
        yield from [("kill", f"{name}-") for name in self._names]
        # A new generation notices the loss, and the index is rebuilt.
        yield from [("rebalance",), ("settle",)]

    def _start_all(self) -> list[Step]:
        return [("start", name) for name in self._names]

    def rebuild(self) -> Iterator[Step]:
        if self._rng.random() < 0.4:
            yield ("rebuild", *self._rng.sample(("1", "2"), self._rng.randint(0, 1)))
            yield from self._command("rebuild")
            yield from self._start_all()

    def drop(self) -> Iterator[Step]:
        """Suspend the command between its parts: a daemon is at work, or others start and the lease ends."""
        if self._rng.random() < 0.4:
            return
        name, is_forced = self._rng.choice(self._names), self._rng.random() < 0.5
        if is_forced:
            yield from [*self._record(), ("run", name, "until", self._rng.choice(_WRITES)), ("drop", "force")]
        else:
            yield from [*(("stop", running) for running in self._names), ("drop",)]
        yield ("run", "drop", "until", "clear")
        yield ("run", "drop", str(self._rng.randint(1, 3)))
        if is_forced:
            yield ("run", name, str(self._rng.randint(5, 40)))
        else:
            yield from [*self._start_all(), ("clock", self._rng.choice(("1", "61")))]
        yield from self._some_progress()
        yield ("run", "drop", "400")

    def prepare(self, versions: tuple[str, ...] = ("1", "2")) -> Iterator[Step]:
        if self._rng.random() < 0.5:
            self._prefixes += 1
            installation = (f"p{self._prefixes}", self._rng.choice(versions))
            yield ("prepare", *installation)
            yield from self._command("prepare")
            if self._rng.random() < 0.3:
                yield ("prepare", *installation)
                yield from self._command("prepare")
            yield ("switch", *installation)
            yield from self._start_all()

    scope = partialmethod(prepare, ("3",))

    def recreate(self) -> Iterator[Step]:
        """Records that were not committed are gone with the topic: all are committed before."""
        if self._rng.random() < 0.4:
            is_lost = bool(set(self._faults) & _LOSING)
            yield from self._make_good() if is_lost else [("settle",)]
            yield ("recreate", *self._rng.sample(("late",), self._rng.randint(0, 1)))
            if is_lost:
                yield from [*self._record(), *self._record(), ("settle",)]

    def partitions(self) -> Iterator[Step]:
        self._partitions = min(self._partitions + 1, 4)
        yield ("partitions", str(self._partitions))

    def delete_group(self) -> Iterator[Step]:
        if self._rng.random() < 0.4:
            # Without an index and without offsets nothing is known of what was read.
            is_lost = bool(set(self._faults) & _LOSING)
            if is_lost:
                yield from self._make_good()
            if is_lost or self._rng.random() < 0.7:
                yield ("settle",)
            yield from [("rebalance",)] * self._rng.randint(0, 12)
            yield ("delete-group",)
            yield from self._start_all()
            if is_lost:
                yield ("settle",)

    def offsets(self) -> Iterator[Step]:
        """A daemon has run since the last crash before offsets are set back."""
        yield ("settle",)
        for _ in range(self._rng.randint(1, 2)):
            yield ("offsets", str(self._rng.randrange(self.setup.partitions)), str(self._rng.randint(0, 6)))
        yield from self._start_all()

    def remove(self) -> Iterator[Step]:
        yield ("remove", str(self._rng.randrange(self.setup.partitions)), str(self._rng.randint(1, 6)))

    def compact(self) -> Iterator[Step]:
        yield ("compact", str(self._rng.randrange(self.setup.partitions)))

    def clock(self) -> Iterator[Step]:
        yield ("clock", str(self._rng.choice((60, _WINDOW_S // 3, _WINDOW_S, 2 * _WINDOW_S, 5 * _WINDOW_S))))

    def skew(self) -> Iterator[Step]:
        yield ("skew", self._rng.choice(self._names), str(self._rng.choice((-60_000, -5_000, -1, 5_000, 60_000))))

    def open(self) -> Iterator[Step]:
        place = str(self._rng.randrange(self.setup.partitions))
        yield ("open", place, next(self._ids), *self._text().split())
        yield from self._some_progress()
        if self._rng.random() < 0.9:
            yield ("close", "committed")


#: The names of all faults.
FAULTS = sorted(name.replace("_", " ") for name in vars(Faults) if not name.startswith("_"))


def random_story(seed: int) -> Story:
    return Faults(seed).story()
