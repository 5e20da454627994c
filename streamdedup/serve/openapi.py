"""Completes the OpenAPI document that Litestar generates from the handlers.

Two parts are added: the request bodies, which Litestar does not know, because ``requests`` decodes them; and the
descriptions of the fields of a match, from ``wire/schemas/alert.schema.json``.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from litestar import Litestar, MediaType, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import ControllerRouterHandler, Dependencies

from streamdedup import __version__
from streamdedup.serve.schemas import CompareRequest, LookupBatchRequest, LookupRequest
from streamdedup.wire import schema

#: Types of request bodies by path; a new route with a body needs a row here.
_BODIES: Final = {
    "/v1/profiles/{profile}/lookup": LookupRequest,
    "/v1/profiles/{profile}/lookup:batch": LookupBatchRequest,
    "/v1/profiles/{profile}/compare": CompareRequest,
}
_DESCRIPTION: Final = "Look-ups in the near-duplicate indexes that streamdedup daemons maintain. Nothing is written."


def openapi_route(handlers: Sequence[ControllerRouterHandler], dependencies: Dependencies) -> HTTPRouteHandler:
    document_json = msgspec.json.encode(_document(handlers, dependencies))

    @get("/openapi.json", sync_to_thread=False)
    def openapi_json() -> Response[bytes]:
        return Response(document_json, media_type=MediaType.JSON)

    return openapi_json


def _document(handlers: Sequence[ControllerRouterHandler], dependencies: Dependencies) -> dict[str, Any]:
    bearer = SecurityScheme(type="http", scheme="bearer", description="A token of `api.tokens_file`.")
    config = OpenAPIConfig(
        title="streamdedup",
        version=__version__,
        description=_DESCRIPTION,
        components=Components(security_schemes={"bearer": bearer}),
        security=[{"bearer": []}],
        use_handler_docstrings=True,
    )
    # A second application, only to make the document. The one that serves is built without Litestar's OpenAPI routes,
    # which would answer every unknown path with a page.
    app = Litestar(handlers, dependencies=dependencies, openapi_config=config, logging_config=None)
    document = app.openapi_schema.to_schema()
    _add_bodies(document)
    _describe_match(document["components"]["schemas"]["Match"]["properties"])
    return document


def _add_bodies(document: dict[str, Any]) -> None:
    _, schemas = msgspec.json.schema_components(_BODIES.values(), ref_template="#/components/schemas/{name}")
    document["components"]["schemas"] |= schemas
    for path, body in _BODIES.items():
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{body.__name__}"}}}
        document["paths"][path]["post"]["requestBody"] = {"required": True, "content": content}


def _describe_match(properties: dict[str, dict[str, Any]]) -> None:
    definitions = msgspec.json.decode(schema("alert"))["$defs"]
    fields = definitions["place"]["properties"] | definitions["match"]["properties"]
    for name, field in properties.items():
        # A match refers to `place`, and to `label` and `incarnation`, which the alert's document has too.
        field["description"] = (definitions.get(name) or fields[name])["description"]
