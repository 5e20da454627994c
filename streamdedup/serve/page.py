"""The page for people: the files in ``static``, their content types, and the content security policy.

One HTML document and its ES modules, without a build step and without any resource of another server. Trusted Types are
required and no policy is allowed, so that the browser itself refuses every assignment of HTML: the text of a document
is always shown as text. The files hold no data, and ``access`` requires no token for them.
"""

from importlib import resources
from pathlib import PurePath
from typing import Final

from litestar import Response, route
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from streamdedup.serve.problems import RequestProblem

#: Content type of each kind of file; the framework adds the character set to texts.
_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
#: Headers of every file of the page.
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
}


def page_files() -> dict[str, tuple[bytes, str]]:
    folder = resources.files("streamdedup.serve") / "static"
    return {path.name: (path.read_bytes(), _TYPES[PurePath(path.name).suffix]) for path in folder.iterdir()}


def page_routes() -> list[HTTPRouteHandler]:
    files = page_files()

    def respond(name: str) -> Response[bytes]:
        if name not in files:
            raise RequestProblem("not-found")
        content, media_type = files[name]
        return Response(content, media_type=media_type, headers=_HEADERS)

    @route("/", http_method=["GET", "HEAD"], sync_to_thread=False)
    def page() -> Response[bytes]:
        return respond("index.html")

    @route("/page/{name:str}", http_method=["GET", "HEAD"], sync_to_thread=False)
    def page_file(name: FromPath[str]) -> Response[bytes]:
        return respond(name)

    return [page, page_file]
