"""The text of a stored document, fetched from its record in Kafka.

The index and alerts hold no texts, but the position of each document's record. They also hold its id and digest, with
which the record is compared, because another record may have this position by now.
"""

import re

from streamdedup.errors import MessageError
from streamdedup.kafka.reader import RecordFetcher
from streamdedup.position import Position
from streamdedup.wire import Decoder, content_digest

#: Id from a position (``Position.key``) in an incarnation above 0: TOPIC@INCARNATION:PARTITION:OFFSET.
_POSITION_KEY = re.compile("[^@:]+@([0-9]{1,9}):[0-9]+:[0-9]+")


class TextMissingError(Exception):
    """The text of a document cannot be shown; the error text is the reason, for people."""


def fetch_text(fetcher: RecordFetcher, decoder: Decoder, document_id: str, digest: str, position: Position) -> str:
    """Return the text of a document, of which ``digest`` is in hexadecimal; ``TextMissingError`` if Kafka lacks it."""
    position = position._replace(incarnation=0)  # fetched records have no incarnation
    try:
        record = fetcher.fetch(position)
        if record is None:
            raise TextMissingError(f"Kafka no longer has the record of {document_id}, {position}: expired or compacted")
        # The decoder makes such an id from the position. Only the id has the incarnation: alerts and records have none.
        position_key = _POSITION_KEY.fullmatch(document_id)
        decoded_at = position._replace(incarnation=int(position_key[1]) if position_key else 0)
        document = decoder.decode(decoded_at, record.timestamp_ms, record.key, record.value, record.headers)
    except MessageError as error:
        # The client cannot parse the record, or the record or the settings have changed since the daemon decoded it.
        raise TextMissingError(f"the record of {document_id}, {position}, cannot be decoded: {error.code}") from None
    if document.id == document_id and document.op == "append":  # first: its digest is that of the whole text
        raise TextMissingError(f"the text of {document_id} was continued by appends; no record has the whole")
    if document.id != document_id or content_digest(document.text, document.scope).hex() != digest:
        raise TextMissingError(
            f"the record of {document_id}, {position}, was replaced by another one: the topic was created again, or "
            "the field names of the settings have changed"
        )
    return document.text
