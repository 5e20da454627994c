"""The OpenAPI document and the page that shows it.

The framework describes routes, parameters and responses; the bodies of the requests that ``requests`` decodes are
added here. The page has no script and no external resource, unlike those that the framework offers.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from typing import Any, Final

import msgspec
from litestar import Litestar
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import ControllerRouterHandler, Dependencies

from streamdedup import __version__
from streamdedup.serve.schemas import CompareRequest, LookupBatchRequest, LookupRequest

#: Request bodies by path; a new one needs a row here.
_BODIES: Final = {
    "/v1/profiles/{profile}/lookup": LookupRequest,
    "/v1/profiles/{profile}/lookup:batch": LookupBatchRequest,
    "/v1/profiles/{profile}/compare": CompareRequest,
}
_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color-scheme:light dark}"
    "h2{font:600 1rem ui-monospace,monospace;border-top:1px solid #8886;padding-top:1rem}"
    "td,th{text-align:left;vertical-align:top;padding:.1rem 1rem .1rem 0}code{font-family:ui-monospace,monospace}"
)
#: Content security policy of the page: its style and nothing else.
PAGE_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'; "
    "frame-ancestors 'none'"
)
_DESCRIPTION: Final = "Look-ups in the near-duplicate indexes that streamdedup daemons maintain. Nothing is written."


def describe(handlers: Sequence[ControllerRouterHandler], dependencies: Dependencies) -> dict[str, Any]:
    """Return the OpenAPI document of routes, as JSON values."""
    bearer = SecurityScheme(type="http", scheme="bearer", description="A token of `api.tokens_file`.")
    config = OpenAPIConfig(
        title="streamdedup",
        version=__version__,
        description=_DESCRIPTION,
        components=Components(security_schemes={"bearer": bearer}),
        security=[{"bearer": []}],
        use_handler_docstrings=True,
    )
    # A second application, only to make the document. The framework's routes for the document would answer every
    # unknown path with a page, so the application that serves has none.
    described = Litestar(handlers, dependencies=dependencies, openapi_config=config, logging_config=None)
    return _with_bodies(described.openapi_schema.to_schema())


def _with_bodies(document: dict[str, Any]) -> dict[str, Any]:
    """Add the bodies of requests to the document of the framework."""
    _, schemas = msgspec.json.schema_components(_BODIES.values(), ref_template="#/components/schemas/{name}")
    document["components"]["schemas"] |= schemas
    for path, body in _BODIES.items():
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{body.__name__}"}}}
        document["paths"][path]["post"]["requestBody"] = {"required": True, "content": content}
    return document


def render_page(document: Mapping[str, Any]) -> str:
    """Return an OpenAPI document as a page of HTML."""
    info = document["info"]
    parts = [f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>", f"<p>{escape(info['description'])}</p>"]
    parts.append("<p>For programs: <a href='openapi.json'>openapi.json</a></p>")
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(_operation(f"{method.upper()} {path}", operation))
    schemas = document["components"]["schemas"]
    parts.append("<h1>Bodies</h1>")
    parts += [_schema(name, schema) for name, schema in sorted(schemas.items())]
    body = "\n".join(parts)
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style></head><body>{body}</body></html>"
    )


def _operation(title: str, operation: Mapping[str, Any]) -> str:
    rows = [
        (f"{parameter['in']} <code>{escape(parameter['name'])}</code>", escape(parameter.get("description") or ""))
        for parameter in operation.get("parameters", ())
    ]
    bodies = operation.get("requestBody", {}).get("content", {}).values()
    rows += [("body", _type(content["schema"])) for content in bodies]
    for status, response in operation["responses"].items():
        types = ", ".join(_type(content.get("schema", {})) for content in response.get("content", {}).values())
        rows.append((f"answer {escape(status)}", f"{escape(response['description'])} {types}"))
    summary = escape(operation.get("description") or operation.get("summary") or "")
    return f"<h2>{escape(title)}</h2><p>{summary}</p>{_table(rows)}"


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (
            f"<code>{escape(field)}</code>{'' if field in required else ' (optional)'}",
            f"{_type(shape)} {escape(shape.get('description') or '')}",
        )
        for field, shape in schema.get("properties", {}).items()
    ]
    text = escape(schema.get("description") or "")
    return f"<h2 id='{escape(name)}'>{escape(name)}</h2><p>{text}</p>{_table(rows)}"


def _table(rows: list[tuple[str, str]]) -> str:
    return "<table>" + "".join(f"<tr><th>{left}</th><td>{right}</td></tr>" for left, right in rows) + "</table>"


def _type(schema: Mapping[str, Any]) -> str:
    """Return a schema in a few words, with links to those that it refers to."""
    if "$ref" in schema:
        name = escape(str(schema["$ref"]).rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    for key in ("oneOf", "anyOf"):
        if key in schema:
            return " or ".join(_type(option) for option in schema[key])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "enum" in schema:
        return escape(" or ".join(str(option) for option in schema["enum"]))
    kind = schema.get("type", "")
    return escape(" or ".join(kind) if isinstance(kind, list) else str(kind))
