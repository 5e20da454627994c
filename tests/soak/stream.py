"""Documents without end: new texts and near-copies of recent ones, and whoever sends them at a steady rate."""

import contextlib
import random
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Self

import msgspec
from kafka import KafkaProducer

from tests import servers

#: Words that texts are made of; so many that two texts resemble each other only when one is a copy.
VOCABULARY_COUNT = 5_000
#: Words of a text, at least and at most.
WORDS_COUNT = (40, 160)
#: Share of near-copies, and how many of the last texts are copied.
COPIES, COPIED_FROM = 0.2, 2_000
#: Seconds between two looks at how many are due.
_TICK_S = 0.05


def endless(seed: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values; memory stays what it is."""
    rng = random.Random(f"soak {seed}")
    vocabulary = ["".join(rng.choices("abcdefghiklmnoprstuvy", k=rng.randint(3, 9))) for _ in range(VOCABULARY_COUNT)]
    recent: deque[list[str]] = deque(maxlen=COPIED_FROM)
    number = 0
    while True:
        number += 1
        if recent and rng.random() < COPIES:
            words = list(rng.choice(recent))
            words[rng.randrange(len(words))] = rng.choice(vocabulary)
        else:
            words = rng.choices(vocabulary, k=rng.randint(*WORDS_COUNT))
            recent.append(words)
        identity = f"doc-{number}"
        yield identity.encode(), msgspec.json.encode({"id": identity, "text": " ".join(words)})


class Sender:
    """Sends ``rate`` documents a second from a thread of its own, until it is left.

    ``sent_count`` is the number of acknowledged ones. ``problem``: why it has ended early; None while it has not.
    """

    def __init__(self, kafka: str, topic: str, seed: int, rate: float) -> None:
        self._kafka = kafka
        self._topic = topic
        self._documents = endless(seed)
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sender")
        self.sent_count = 0
        self.problem: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    def end(self) -> None:
        """Send nothing more; return when all that was sent is acknowledged."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with contextlib.closing(KafkaProducer(bootstrap_servers=self._kafka.split(","), linger_ms=5)) as producer:
                self._send(producer)
        except Exception as error:  # noqa: BLE001  told to whoever looks at the samples
            self.problem = error

    def _send(self, producer: KafkaProducer) -> None:
        began, asked = time.monotonic(), 0
        while not self._stop.wait(_TICK_S):
            due = int((time.monotonic() - began) * self._rate) - asked
            futures = [producer.send(self._topic, key=key, value=value) for key, value in self._some(due)]
            producer.flush(servers.DEADLINE_S)
            for future in futures:
                future.get(0)
            asked += due
            self.sent_count = asked

    def _some(self, count: int) -> Iterator[tuple[bytes, bytes]]:
        for _ in range(count):
            yield next(self._documents)
