"""The client of a schema registry, over the HTTP API of Confluent; the loop of the daemon repeats failed requests."""

import json
import re
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from threading import Event
from typing import Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import quote, urlsplit
from uuid import UUID

import msgspec

from streamdedup.errors import DecodeError, RegistryMisconfigured, RegistryUnavailable
from streamdedup.http_client import HttpSession
from streamdedup.wire.error_codes import ErrorCode

T = TypeVar("T")

_HALF_PAIR = re.compile("[\ud800-\udfff]")

#: Largest number of bytes of a schema and of those that it refers to; schemas have some kilobytes.
MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
#: Largest number of schemas that a schema refers to, directly or not: each takes a request.
MAX_REFERENCES: Final = 200
#: Time for all referred schemas, in units of ``timeout_s``: with the last request less than the watchdog's four.
_REFERENCES_TIMEOUTS = 2
_MAX_ID = 2**31 - 1  # of the API; the four bytes of a frame may hold a greater number
#: Error codes of the API: no such subject, version, schema.
_MISSING = frozenset({40401, 40402, 40403})
_BUSY = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_LOGIN_REFUSED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
#: A schema that does not fit the earlier schemas of a subject, or the rules of the registry.
_CONFLICTS = frozenset({HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY})


class RegisteredSchema(NamedTuple):
    """A registered schema of the kind ``AVRO``, ``JSON`` or ``PROTOBUF``; ``schema_id`` is 0 if it was looked up by id.

    ``references``: text by name of each schema that it refers to, directly or not; referred schemas come first.
    """

    kind: str
    text: str
    references: Mapping[str, str]
    schema_id: int = 0


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _Answer(msgspec.Struct, rename="camel"):
    schema: str
    schema_type: str | None = None
    references: list[_Reference] | None = None
    id: int = 0


class _SchemaId(msgspec.Struct):
    id: int


class _Refusal(msgspec.Struct):
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class Registry:
    """Address and login of a registry; may be used by several threads.

    ``authorization`` and ``tls`` are called for each request and each connection, because their files may change.
    ``has_answered`` is set by the first answer of a registry; a later refusal may pass by itself.
    """

    url: str
    authorization: Callable[[], str | None] = lambda: None
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context
    timeout_s: float = 10.0
    has_answered: Event = field(default_factory=Event)


class RegistrySession:
    """Requests of one thread over one connection; a context manager that closes it."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._http = HttpSession(registry.url, registry.timeout_s, MAX_ANSWER_BYTES, registry.tls)
        self._received_bytes = 0  # for the present schema and those that it refers to

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._http.close()

    def by_id(self, schema_id: int | UUID) -> RegisteredSchema:
        """Return the schema with an id; ``DecodeError`` if there is none, or a schema that it refers to is gone.

        Raises ``RegistryUnavailable`` if the registry does not answer, or refuses a client that it accepted before, and
        ``RegistryMisconfigured`` if it refuses this client, or no registry is at the URL.
        """
        answer, self._received_bytes = None, 0
        if isinstance(schema_id, UUID):
            answer = self._get(f"schemas/guids/{schema_id}", may_be_unknown=True)
        elif schema_id <= _MAX_ID:
            answer = self._get(f"schemas/ids/{schema_id}")
        if answer is None:
            raise DecodeError(ErrorCode.UNKNOWN_SCHEMA, f"the schema registry has no schema {schema_id}")
        return self._with_references(answer)

    def latest(self, subject: str) -> RegisteredSchema | None:
        """Return the newest schema of a subject; None if there is no such subject."""
        self._received_bytes = 0
        answer = self._get(f"subjects/{quote(subject, safe='')}/versions/latest")
        return None if answer is None else self._with_references(answer)

    def register(self, subject: str, text: str) -> int:
        """Return the id of an Avro schema in a subject, which gets the schema if it does not have it.

        Raises as ``by_id``; ``RegistryMisconfigured`` also where the subject does not accept the schema.
        """
        path = f"subjects/{quote(subject, safe='')}/versions"
        status, body = self._send("POST", path, msgspec.json.encode({"schema": text}))
        return self._answer(_SchemaId, status, body, path, final=_LOGIN_REFUSED | _CONFLICTS).id

    def _with_references(self, answer: _Answer) -> RegisteredSchema:
        texts: dict[str, str] = {}
        self._collect(answer, texts, set(), time.monotonic() + _REFERENCES_TIMEOUTS * self._registry.timeout_s)
        kind = answer.schema_type or "AVRO"  # the API leaves this type out
        return RegisteredSchema(kind, answer.schema, texts, answer.id)

    def _collect(self, answer: _Answer, texts: dict[str, str], visited: set[str], ends_at: float) -> None:
        """Add to ``texts`` the schemas that an answer refers to; before each schema those that it refers to itself.

        ``visited`` ends cycles and bounds the number of schemas. After ``ends_at``, monotonic time, no request is made.
        """
        for reference in answer.references or ():
            if reference.name in visited:
                continue
            if len(visited) == MAX_REFERENCES:
                raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, f"it refers to more than {MAX_REFERENCES} schemas")
            visited.add(reference.name)
            subject = f"{reference.subject}, version {reference.version}"
            if time.monotonic() > ends_at:
                raise DecodeError(ErrorCode.UNKNOWN_SCHEMA, f"a schema refers to {subject}, which is not there in time")
            referred = self._get(f"subjects/{quote(reference.subject, safe='')}/versions/{reference.version}")
            if referred is None:
                raise DecodeError(ErrorCode.UNKNOWN_SCHEMA, f"a schema refers to {subject}, which is gone")
            self._collect(referred, texts, visited, ends_at)
            texts[reference.name] = referred.schema

    def _get(self, path: str, *, may_be_unknown: bool = False) -> _Answer | None:
        """Return a schema; None if subject, version or schema is missing, or with ``may_be_unknown`` the path."""
        status, body = self._send("GET", path)
        if status == HTTPStatus.NOT_FOUND and _error_code(body) in _MISSING:
            self._registry.has_answered.set()
            return None
        if status == HTTPStatus.NOT_FOUND and may_be_unknown:
            # A registry without ids of this kind answers as for an unknown path, and so does any other server. This
            # request, whose path every registry knows, raises an error for another server.
            self._get(f"schemas/ids/{_MAX_ID}")
            return None
        return self._answer(_Answer, status, body, path)

    def _send(self, method: str, path: str, sent: bytes | None = None) -> tuple[int, bytes]:
        url, authorization = self._registry.url, self._registry.authorization()
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        headers |= {} if authorization is None else {"Authorization": authorization}
        headers |= {} if sent is None else {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        try:
            return self._http.request(method, f"{urlsplit(url).path.rstrip('/')}/{path}", headers, sent)
        except (OSError, HTTPException) as error:
            raise RegistryUnavailable(f"the schema registry {url} does not answer: {error!r}") from error

    def _answer(
        self, answer_type: type[T], status: int, body: bytes, path: str, final: frozenset[int] = frozenset()
    ) -> T:
        """Return the answer in a body; else raise as ``register``. A status in ``final`` never passes by itself."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _BUSY:
            raise RegistryUnavailable(f"the schema registry {self._registry.url} answers with status {status}")
        with suppress(ValueError):  # a body that is no answer of the API
            if status == HTTPStatus.OK:
                return self._decoded(answer_type, body)
        may_pass = self._registry.has_answered.is_set() and status not in final
        error_type = RegistryUnavailable if may_pass else RegistryMisconfigured
        raise error_type(self._refusal_text(status, path))

    def _decoded(self, answer_type: type[T], body: bytes) -> T:
        """Return an answer; ``DecodeError`` if it is too long or deep, ``ValueError`` if it is no answer of the API."""
        self._received_bytes += len(body)
        if self._received_bytes > MAX_ANSWER_BYTES:
            reason = f"the schema and those that it refers to are longer than {MAX_ANSWER_BYTES:,} bytes"
            raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, reason)
        try:
            answer = msgspec.convert(parsed_json(body), answer_type)
        except RecursionError:
            raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, "the answer of the registry is nested too deeply") from None
        self._registry.has_answered.set()
        return answer

    def _refusal_text(self, status: int, path: str) -> str:
        url, where = self._registry.url, f"(status {status}, {path})"
        if status in _LOGIN_REFUSED:
            return f"the schema registry {url} refuses the login {where}; see schema_registry.username"
        if status in _CONFLICTS:
            text = "later schemas or those of another program are there; choose another topic, or delete them"
            return f"the schema registry {url} refuses the schema {where}: {text}"
        if self._registry.has_answered.is_set():  # so the URL is right
            return f"the schema registry {url} gives no usable answer {where}"
        return f"schema_registry.url: {url} is not the API of a schema registry (status {status})"


def parsed_json(text: str | bytes) -> Any:
    """Return the content of a JSON text, with U+FFFD for each half of a surrogate pair.

    Other clients accept such halves, NaN, Infinity and 1e999, which msgspec refuses. Raises as ``json.loads``.
    """
    written = json.dumps(json.loads(text), ensure_ascii=False)
    return json.loads(_HALF_PAIR.sub("\ufffd", written))


def _error_code(body: bytes) -> int:
    try:
        return msgspec.json.decode(body, type=_Refusal).error_code
    except (msgspec.DecodeError, RecursionError):
        return 0
