"""Damaged messages and requests, a short portion of ``make fuzz``; and that the fuzzer notices a mistake."""

from collections import Counter
from dataclasses import replace
from hashlib import sha256

import pytest
import structlog

from streamdedup.kafka.protocols import Record
from streamdedup.position import Position
from streamdedup.wire.dead_letters import MIN_BYTES, PREFIX, DaemonInfo, Failure, Stage, dead_letter
from tests.fuzz.accounts import Accountant, wrong_letter
from tests.fuzz.fuzzed import Fuzzed
from tests.fuzz.messages import fuzzed_messages
from tests.fuzz.requests import fuzz_requests

#: When the messages are sent, in milliseconds since the epoch.
NOW_MS = 1_777_618_931_480
SEED = "in every run of the tests"


@pytest.fixture(autouse=True)
def _logging_as_before():
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("count", [3_000, pytest.param(12_000, marks=pytest.mark.long)])
def test_every_message_is_accounted_for(count):
    messages = list(fuzzed_messages(SEED, count, NOW_MS))
    account = Accountant().settle(messages)
    kinds = Counter()
    for outcome, number in account.outcomes.items():
        kinds[outcome.partition(" ")[0]] += number
    assert kinds.total() == len(messages)
    assert min(kinds["processed"], kinds["skipped"], kinds["dead"]) > count / 15
    assert account.pairs_count > count / 60
    assert account.cut_count > 0
    assert account.judged_count > len(messages) / 2
    assert all(account.made_by[name, True] + account.made_by[name, False] > 0 for name, _ in account.made_by)


def test_damaged_requests_have_an_answer_or_a_problem_and_never_a_defect():
    statuses, rss = fuzz_requests(SEED, 1_000)
    assert statuses.total() == 1_000
    assert {200, 400, 404, 415, 422} <= statuses.keys()
    assert len(rss) == 10


class TestDigestOfATruncatedValue:
    """A digest in the headers of a record is that of the value only if the record is a replayed dead letter."""

    FOREIGN = sha256(b"another value").hexdigest()

    def letter(self, **earlier):
        """Return a message that is too large, with headers of an earlier dead letter, and its dead letter."""
        headers = tuple((PREFIX + name, text.encode()) for name, text in earlier.items())
        message = Fuzzed("articles", b"key", b"v" * 2 * MIN_BYTES, headers, NOW_MS, "too_large")
        record = Record(Position(message.topic, 0, 7), NOW_MS, message.key, message.value, message.headers)
        failure = Failure(Stage.SIZE, "too_large", "Oversized", "too large")
        daemon = DaemonInfo("fuzz", "a", "1")
        return message, dead_letter(record, failure, daemon, time_ms=NOW_MS, max_bytes=MIN_BYTES)

    def with_digest(self, letter, digest):
        headers = ((name, digest.encode() if name == f"{PREFIX}sha256" else value) for name, value in letter.headers)
        return replace(letter, headers=tuple(headers))

    @pytest.mark.parametrize(
        "position",
        [
            {},
            {"topic": "articles", "partition": "0", "offset": "7"},
            {"topic": "other", "partition": "0", "offset": "3"},
        ],
        ids=["no position", "its own position", "a position in another topic"],
    )
    def test_a_foreign_digest_is_expected_to_be_ignored(self, position):
        message, letter = self.letter(sha256=self.FOREIGN, **position)
        assert wrong_letter(message, letter) == ""
        assert wrong_letter(message, self.with_digest(letter, self.FOREIGN)) == "its value is another one"

    def test_the_digest_of_a_replayed_dead_letter_is_expected_to_be_kept(self):
        message, letter = self.letter(sha256=self.FOREIGN, topic="articles", partition="0", offset="3")
        assert (f"{PREFIX}sha256", self.FOREIGN.encode()) in letter.headers
        assert wrong_letter(message, letter) == ""
        own = sha256(message.value).hexdigest()
        assert wrong_letter(message, self.with_digest(letter, own)) == "its value is another one"
