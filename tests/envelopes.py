"""Records as Kafka Connect, Debezium 3 and CloudEvents producers write them, in the formats of their documentation."""

import json
from typing import Any

#: Key, value and headers of a record.
Envelope = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]

_TEXT = {"type": "string", "optional": True}
_ROW = [
    {"type": "int32", "optional": False, "default": 0, "field": "id"},
    {**_TEXT, "field": "text"},
    {**_TEXT, "field": "author"},
]
_SOURCE_FIELDS = [
    "version",
    "connector",
    "name",
    "ts_ms",
    "snapshot",
    "db",
    "sequence",
    "schema",
    "table",
    "txId",
    "lsn",
]


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _with_schema(schema: dict[str, Any], payload: Any, schemas: bool) -> bytes:
    return _json({"schema": schema, "payload": payload} if schemas else payload)


def connect(name: str, text: str | None, *, schemas: bool = True) -> Envelope:
    """Return a record of a source connector with the JsonConverter; no text is a tombstone."""
    fields = [{**_TEXT, "field": field} for field in ("id", "text", "source")]
    struct = {"type": "struct", "fields": fields, "optional": False, "name": "article"}
    key = _with_schema({"type": "string", "optional": False}, name, schemas)
    value = _with_schema(struct, {"id": name, "text": text, "source": "files"}, schemas)
    return key, None if text is None else value, []


def debezium(op: str, row_id: int, text: str | None = None, *, schemas: bool = True) -> list[Envelope]:
    """Return a change of a row, ``c``, ``r``, ``u`` or ``d``, as the connector for PostgreSQL writes it.

    A deletion is two records: the change, and a tombstone.
    """
    after = None if op == "d" else {"id": row_id, "text": text, "author": None}
    before = None if op in "cr" else {"id": row_id, "text": "" if op == "d" else "earlier", "author": None}
    source = {
        "version": "3.0.0.Final", "connector": "postgresql", "name": "inventory", "ts_ms": 1777618931000,
        "snapshot": "false", "db": "shop", "sequence": '["1","2"]', "schema": "public", "table": "articles",
        "txId": 571, "lsn": 33832360, "xmin": None,
    }  # fmt: skip
    payload = {
        "before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 1777618931480,
        "ts_us": 1777618931480123, "ts_ns": 1777618931480123456,
    }  # fmt: skip
    row = {"type": "struct", "fields": _ROW, "optional": True, "name": "inventory.public.articles.Value"}
    schema = {
        "type": "struct",
        "fields": [
            {**row, "field": "before"},
            {**row, "field": "after"},
            {"type": "struct", "fields": [{**_TEXT, "field": name} for name in _SOURCE_FIELDS], "field": "source"},
            {"type": "string", "optional": False, "field": "op"},
            {"type": "int64", "optional": True, "field": "ts_ms"},
        ],
        "optional": False,
        "name": "inventory.public.articles.Envelope",
        "version": 2,
    }
    key_schema = {"type": "struct", "fields": _ROW[:1], "optional": False, "name": "inventory.public.articles.Key"}
    key = _with_schema(key_schema, {"id": row_id}, schemas)
    change: Envelope = (key, _with_schema(schema, payload, schemas), [])
    return [change, (key, None, [])] if op == "d" else [change]


def cloudevent(kind: str, name: str, text: str | None = None) -> Envelope:
    """Return an event in structured mode."""
    event = {
        "specversion": "1.0", "type": f"com.example.article.{kind}", "source": "https://cms.example.com/articles",
        "subject": name, "id": f"event of {name}", "time": "2026-05-01T07:00:00Z",
        "datacontenttype": "application/json", "data": {"id": name} | ({} if text is None else {"text": text}),
    }  # fmt: skip
    return name.encode(), _json(event), [("content-type", b"application/cloudevents+json; charset=UTF-8")]


def binary_cloudevent(kind: str, name: str, text: str | None) -> Envelope:
    """Return an event in binary mode; no text is a tombstone."""
    attributes = {"specversion": "1.0", "type": f"com.example.article.{kind}", "source": "/articles", "id": "event"}
    headers = [(f"ce_{key}", value.encode()) for key, value in attributes.items()]
    value = None if text is None else _json({"id": name, "text": text})
    return name.encode(), value, [*headers, ("content-type", b"application/json")]
