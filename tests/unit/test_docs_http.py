"""docs/http.md says what the HTTP service does."""

from streamdedup.serve.access import PROBES
from streamdedup.serve.problems import PROBLEMS
from streamdedup.serve.schemas import MAX_BATCH_TEXTS
from streamdedup.wire import MAX_DEPTH
from tests.served import Service
from tests.unit.test_docs import PAGES, named, rows, section

PAGE = PAGES["docs/http.md"]


def test_the_endpoints_are_those_of_the_application():
    documented = {tuple(named(row[0])[0].partition("?")[0].split(" ")) for row in rows(section(PAGE, "Endpoints"))}
    made = Service()
    try:
        with made.client as client:
            described = client.get("/openapi.json").json()["paths"]
            others = {path for method, path in documented if path not in described}
            assert {client.get(path).status_code for path in others} == {200}
    finally:
        made.close()
    assert {(method.upper(), path) for path, item in described.items() for method in item} <= documented
    assert others == {*PROBES, "/", "/metrics", "/openapi.json"}
    assert f"up to {MAX_BATCH_TEXTS} texts" in PAGE


def test_the_problems_are_those_of_the_code():
    documented = {named(row[0])[0]: int(row[1]) for row in rows(section(PAGE, "Problems"))}
    assert documented == {name: status for name, (status, _) in PROBLEMS.items()}
    assert f"deeper than {MAX_DEPTH} levels" in PAGE
