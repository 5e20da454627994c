"""docs/deployment.md, docs/operating.md and the log events of docs/metrics.md agree with the code."""

import ast
import re
import shlex
from pathlib import Path

import pytest
from test_docs import blocks, understand

from streamdedup.daemon.logs import FOREIGN_EVENT
from streamdedup.repeats import REPEATS_EVENT

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "streamdedup"
SYMPTOMS_PAGE, DEPLOYMENT, METRICS = (
    (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("operating.md", "deployment.md", "metrics.md")
)
#: Both pages for operators.
PAGE = DEPLOYMENT + SYMPTOMS_PAGE
#: Functions that log an event whose name they are given.
HELPERS = {"_rebalanced", "_pause_or_raise", "ending_at_once"}
#: What logs the outages of a source, by its name.
OUTAGES = {"OutageLog", "StreamKind"}
#: Names of loggers, and of what limits their lines.
LOGGERS = {"log", "_repeats"}


def command_lines():
    """The commands of the page, continued lines joined."""
    return [line for block in blocks(PAGE, "bash") for line in block.replace("\\\n", " ").splitlines() if line.strip()]


@pytest.mark.parametrize("line", [line for line in command_lines() if line.startswith("streamdedup ")])
def test_a_command_of_ours_is_understood(line):
    understand(shlex.split(line)[1:])


def logged_events():
    """Every event that the daemon's code names: in a call of a logger, as ``extra``, or through a helper."""
    found = {FOREIGN_EVENT, REPEATS_EVENT}
    for path in PACKAGE.rglob("*.py"):
        if "embedded" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                first = node.args[0] if node.args else None
                by_name = getattr(node.func.value, "id", getattr(node.func.value, "attr", "")) in LOGGERS
                if (by_name or node.func.attr in HELPERS) and isinstance(first, ast.Constant):
                    found.add(first.value)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in OUTAGES:
                names = [*node.args[:1], *(each.value for each in node.keywords if each.arg == "name")]
                sources = [each.value.replace("-", "_") for each in names if isinstance(each, ast.Constant)]
                found |= {f"{source}_{state}" for source in sources for state in ("unavailable", "available")}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in HELPERS:
                found.add(getattr(node.args[0], "value", None))
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Check":
                found |= {each.value.value for each in node.keywords if each.arg == "event"}
            elif isinstance(node, ast.Dict):
                found |= {
                    value.value
                    for key, value in zip(node.keys, node.values, strict=True)
                    if isinstance(key, ast.Constant) and key.value == "event" and isinstance(value, ast.Constant)
                }
    return {event for event in found if isinstance(event, str) and re.fullmatch(r"[a-z_]+", event)}


def test_every_event_of_the_log_is_explained_and_no_other():
    table = METRICS.partition("\n## Log events")[2].partition("\n## ")[0]
    explained = {
        name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert explained == logged_events()
