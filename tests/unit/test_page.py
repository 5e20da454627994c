"""The files of the page: routes, headers, and that nothing in them takes HTML or leaves this server."""

import re
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from hatchling.build import build_wheel

from streamdedup.serve.admission import Tokens
from streamdedup.serve.page import page_files
from tests.served import Service

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "streamdedup" / "serve" / "static"
FILES = sorted(path.name for path in FOLDER.iterdir())
SCRIPTS = [name for name in FILES if name.endswith(".js")]
INDEX = (FOLDER / "index.html").read_text(encoding="utf-8")
STYLE = (FOLDER / "style.css").read_text(encoding="utf-8")
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
#: Pairs of colours of text and background.
CONTRASTS = [("text", "page"), ("text", "raised"), ("quiet", "page"), ("quiet", "raised"), ("problem", "page")]
CONTRASTS += [("accent", "page"), ("on-accent", "accent"), ("text", "old"), ("text", "new"), ("quiet", "old")]


def source(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.fixture
def service(tmp_path):
    (tmp_path / "tokens").write_text("t" * 22)
    with closing(Service(tokens=Tokens(tmp_path / "tokens"))) as made, made.client:
        yield made


class TestRoutes:
    @pytest.mark.parametrize("name", FILES)
    def test_every_file_is_served_without_a_token_under_its_type_and_a_strict_policy(self, service, name):
        response = service.client.get(f"/page/{name}")
        assert response.status_code == 200
        assert response.content == (FOLDER / name).read_bytes()
        assert response.headers["content-type"] == TYPES[Path(name).suffix]
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"
        policy = dict(part.split(" ", 1) for part in response.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
        assert (policy["require-trusted-types-for"], policy["trusted-types"]) == ("'script'", "'none'")
        assert "unsafe" not in response.headers["content-security-policy"]

    def test_every_link_of_the_document_is_answered(self, service):
        links = re.findall(r'<a [^>]*href="([a-z][^"]*)"', INDEX)
        answers = [service.client.get(f"/{link}", headers={"authorization": "Bearer " + "t" * 22}) for link in links]
        assert {link: answer.status_code for link, answer in zip(links, answers, strict=True)} == {
            "metrics": 200,
            "openapi.json": 200,
        }

    def test_the_document_is_the_root(self, service):
        response = service.client.get("/")
        assert (response.status_code, response.text) == (200, INDEX)
        head = service.client.head("/")
        assert (head.status_code, head.content) == (200, b"")

    @pytest.mark.parametrize("path", ["/page/app.py", "/page/..%2Fapp.py", "/page/a/b", "/page/%2e%2e/app.py"])
    def test_there_is_nothing_else(self, service, path):
        assert service.client.get(path).status_code == 404

    def test_data_needs_the_token_and_another_host_gets_no_page(self, service):
        assert service.client.get("/v1/profiles").status_code == 401
        assert [service.client.get(path).status_code for path in ("/pages", "/page/")] == [401, 401]
        with closing(Service()) as without, without.client:
            assert without.client.get("/", headers={"host": "example.org"}).status_code == 400


class TestFiles:
    def test_the_wheel_has_every_file(self, tmp_path, monkeypatch):
        monkeypatch.chdir(ROOT)
        with zipfile.ZipFile(tmp_path / build_wheel(str(tmp_path))) as wheel:
            names = set(wheel.namelist())
            notice = wheel.read(next(name for name in names if name.endswith("/licenses/LICENSE-UNICODE")))
        assert {f"streamdedup/serve/static/{name}" for name in FILES} <= names
        assert {name.partition("/")[0].partition("-")[0] for name in names} == {"streamdedup"}
        # The data of Unicode come with their notice, as its licence requires.
        assert {"streamdedup/text/look_alikes.txt", "streamdedup/sample/format_tables.txt"} <= names
        assert b"this copyright and permission notice appear" in b" ".join(notice.split())
        assert page_files().keys() == set(FILES)

    def test_the_document_has_no_inline_script_and_no_inline_style(self):
        assert re.findall(r"<script(?![^>]*\ssrc=)", INDEX) == []
        assert re.findall(r"<style|\sstyle=|\son[a-z]+=", INDEX) == []

    @pytest.mark.parametrize("name", FILES)
    def test_nothing_of_another_server_is_named(self, name):
        assert set(re.findall(r"[a-z]+://[^\s\"'`)]+", source(name))) <= {"http://www.w3.org/2000/svg"}

    def test_every_file_that_is_named_exists(self):
        named = set(re.findall(r'(?:href|src)="page/([^"]+)"', INDEX))
        for script in SCRIPTS:
            named |= set(re.findall(r'from "\./([^"]+)"', source(script)))
        assert named == set(FILES) - {"index.html"}

    @pytest.mark.parametrize("name", SCRIPTS)
    def test_no_script_takes_html_or_code_from_a_text(self, name):
        taking = (
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|setHTML|DOMParser|\beval\b|new Function|srcdoc"
        )
        assert re.findall(taking, source(name)) == []

    @pytest.mark.parametrize("name", SCRIPTS)
    def test_every_element_that_a_script_looks_for_is_in_the_document(self, name):
        ids = set(re.findall(r'\sid="([^"]+)"', INDEX))
        assert set(re.findall(r'byId\("([^"]+)"\)', source(name))) <= ids

    def test_every_label_and_every_reference_names_an_element(self):
        ids = re.findall(r'\sid="([^"]+)"', INDEX)
        assert len(ids) == len(set(ids))
        assert set(re.findall(r'(?:for|aria-controls|aria-labelledby|aria-describedby)="([^"]+)"', INDEX)) <= set(ids)
        fields = set(re.findall(r'<(?:input|select|textarea) id="([^"]+)"', INDEX))
        assert fields == set(re.findall(r'<label for="([^"]+)"', INDEX))

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize(("text", "background"), CONTRASTS)
    def test_texts_have_the_contrast_of_wcag_aa(self, scheme, text, background):
        light, dark = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light if scheme == "light" else dark))
        first, second = sorted((luminance(colours[text]), luminance(colours[background])), reverse=True)
        assert (first + 0.05) / (second + 0.05) >= 4.5


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour, by the formula of WCAG 2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
