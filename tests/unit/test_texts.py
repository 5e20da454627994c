"""The text of a stored document, fetched from its record."""

import pytest

from streamdedup.kafka.protocols import Record
from streamdedup.kafka.texts import TextMissingError, fetch_text
from streamdedup.position import Position
from streamdedup.wire import Decoder, content_digest

AT = Position("t", 0, 5)


class Fetcher:
    """Has one record without a key."""

    def __init__(self, value):
        self._value = value

    def fetch(self, position):
        return Record(AT, 1, None, self._value) if position == AT else None


def text_of(document_id, value, position=AT):
    return fetch_text(Fetcher(value), Decoder(), document_id, content_digest("hello there").hex(), position)


@pytest.mark.parametrize("incarnation", [0, 1, 12])
def test_a_document_that_is_named_after_its_position_has_a_text_in_each_incarnation_of_its_topic(incarnation):
    position = AT._replace(incarnation=incarnation)
    for at in (position, AT):  # of the index, and of an alert, which names no incarnation
        assert text_of(position.key, b'{"text":"hello there"}', at) == "hello there"


@pytest.mark.parametrize("document_id", ["t:0:6", "t@1:0:6", "t@1:1:5", "u@1:0:5", "t@01:0:5", f"t@{'9' * 5_000}:0:5"])
def test_a_record_at_the_position_of_a_document_with_another_id_is_another_one(document_id):
    with pytest.raises(TextMissingError, match="was replaced by another one"):
        text_of(document_id, b'{"text":"hello there"}')
    assert text_of("t@1:0:6", b'{"id":"t@1:0:6","text":"hello there"}') == "hello there"
