"""One message that was made, and how it is kept in a file."""

import base64
import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Fuzzed:
    """One message.

    Attributes:
        topic: Where it is sent.
        key: Key bytes or None.
        value: Value bytes or None.
        headers: Names and values of its headers.
        timestamp_ms: Record time in milliseconds since the epoch; negative for none.
        made_by: What was done to it, for whoever looks into a failure.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    made_by: str

    def as_json(self) -> str:
        """Return it as one line."""
        fields = {
            "topic": self.topic,
            "made_by": self.made_by,
            "timestamp_ms": self.timestamp_ms,
            "key": _text(self.key),
            "value": _text(self.value),
            "headers": [[name, _text(value)] for name, value in self.headers],
        }
        return json.dumps(fields)

    @classmethod
    def from_json(cls, line: str) -> "Fuzzed":
        """Read what ``as_json`` wrote."""
        fields = json.loads(line)
        headers = tuple((name, _bytes(value)) for name, value in fields["headers"])
        key, value = _bytes(fields["key"]), _bytes(fields["value"])
        return cls(fields["topic"], key, value, headers, fields["timestamp_ms"], fields["made_by"])


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
