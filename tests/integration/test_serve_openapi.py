"""Generated requests to the installed HTTP service: no defect, and every answer is as the OpenAPI document says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streamdedup.serve.access import _STREAMS
from tests.integration.test_serve import TEXT, now_ms, settings_for
from tests.serving import ServeProcess, fill, settings_file

TOKEN = "a-token-of-22-characters-at-least"
#: Requests of the search for each operation, beside those that cover its parameters one by one.
MAX_EXAMPLES = 20
#: Seconds of one run.
DEADLINE_S = 600
#: A batch is answered although a text in it is wrong: the text has a problem in its place. A GET with a body, which
#: Schemathesis sends where only a POST is described, is refused with status 400 before its route is looked for.
SETTINGS = """
[[operations]]
include-path = "/v1/profiles/{profile}/lookup"
checks.unsupported_method.enabled = false

[[operations]]
include-path = "/v1/profiles/{profile}/lookup:batch"
checks.negative_data_rejection.enabled = false
checks.unsupported_method.enabled = false
"""
#: Values of parameters: without them almost no generated request would name a profile or a document that exists.
EXISTING = """
[parameters]
"path.profile" = "articles"
"path.document_id" = "d0"
"query.a" = "d0"
"query.b" = "d1"
"""


@pytest.fixture
def service(tmp_path, kafka, redis_url, redis_client):
    config = settings_file(tmp_path, redis_url, kafka)
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN}\n", encoding="ascii")
    fill(settings_for(redis_url), TEXT, TEXT + " iris", "kelp lime moss nettle oak pine", time_ms=now_ms())
    with ServeProcess(config, tmp_path, **{"api.tokens_file": tokens}) as process:
        yield process
        assert process.stop() == 0


@pytest.mark.long
@pytest.mark.parametrize("parameters", ["", EXISTING], ids=["any", "existing"])
def test_every_generated_request_is_answered_as_described(service, tmp_path, parameters):
    config = tmp_path / "schemathesis.toml"
    config.write_text(parameters + SETTINGS, encoding="utf-8")
    authorization = f"Authorization: Bearer {TOKEN}"
    report = tmp_path / "report.json"
    command = [Path(sys.executable).with_name("schemathesis"), "--config-file", config, "run"]
    command += [f"http://127.0.0.1:{service.port()}/openapi.json", "--header", authorization, "--no-color"]
    command += [part for path in _STREAMS for part in ("--exclude-path", path)]
    command += ["--phases", "examples,coverage,fuzzing", "--max-examples", str(MAX_EXAMPLES), "--seed", "1"]
    command += ["--generation-database", "none", "--report", "json", "--report-json-path", report]
    run = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, cwd=tmp_path)
    assert run.returncode == 0, run.stdout[-10_000:] + run.stderr[-2_000:]
    found = json.loads(report.read_text(encoding="utf-8"))
    operations = found["operations"]
    # Streams have no end, which no generated request could read.
    assert operations["tested"] == operations["selected"] == operations["total"] - len(_STREAMS) > 6
    assert found["test_cases"]["generated"] > 100
    if parameters:
        assert all(rates["fuzzing"]["accepted"] > 0 for rates in found["valid_rates"].values())
