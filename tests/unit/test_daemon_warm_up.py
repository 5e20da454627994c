"""Work before the daemon is ready, so that no document waits for it."""

import gc
import subprocess
import sys

from streamdedup.cli import run as run_module
from streamdedup.cli.warm_up import freeze_heap
from streamdedup.daemon.health import Readiness
from streamdedup.daemon.metrics import Metrics
from streamdedup.settings import Settings

#: Builds the pipelines of a daemon, warms up, and prepares first documents of many scripts. Prints the tables and
#: modules that were built or imported only then.
FIRST_DOCUMENTS = """
import sys
from streamdedup.cli import run  # all that the daemon has imported
from streamdedup.cli.assembly import pipelines
from streamdedup.indexes import connect_backend, detector_options
from streamdedup.cli.warm_up import warm_up
from streamdedup.wire import Document
from streamdedup.position import Position
from streamdedup.settings import Settings

def misses():
    modules = [module for name, module in sys.modules.items() if name.startswith("streamdedup")]
    cached = {value for module in modules for value in vars(module).values() if hasattr(value, "cache_info")}
    # A cache with a limit holds a few values, such as names of partitions; tables are kept without a limit.
    built = {value for value in cached if value.cache_parameters()["maxsize"] is None}
    return {value.__qualname__: value.cache_info().misses for value in built}

profiles = {
    "p": {"topics": "p"},
    "q": {"topics": "q", "shingle_unit": "char", "fold_marks": True},
    "r": {"topics": "r", "fold_variants": True},
}
values = {"kafka.bootstrap_servers": "localhost:9092", "redis.url": "redis://localhost", "profiles": profiles}
settings = Settings.load(None, values, environ={})
with connect_backend(settings) as backend:
    profiles = pipelines(settings, backend)
    if WARM:
        warm_up(detector_options(name, profile) for name, profile in settings.profiles.items())
    modules, built = set(sys.modules), misses()
    texts = ["Gr\\u00f6\\u00dfe", "cafe\\u0301 \\u0308\\u0323", "\\u6211\\u4eec\\u7684 \\ud55c", "\\U0001f600 \\ufdfa"]
    for topic in "pq":
        profiles[topic].decoder.decode(Position(topic, 0, 0), 1, None, b'{"text": "x"}')
        documents = [Document(text, text * 40, Position(topic, 0, at), 1) for at, text in enumerate(texts)]
        profiles[topic].detector.prepare(documents)
print("built", sorted(name for name, count in misses().items() if count != built[name]))
print("imported", sorted(name for name in set(sys.modules) - modules if "." in name))
"""


#: The same for the look-ups of the HTTP service.
FIRST_LOOKUPS = """
from streamdedup.cli import serve  # all that the service has imported
from streamdedup.cli.warm_up import warm_up
from streamdedup.detection.lookup import IndexLookup, LookupQuery
from streamdedup.index.memory import MemoryIndex
from streamdedup.indexes import detector_options
SETTINGS_AND_MISSES
options = [detector_options(name, profile) for name, profile in settings.profiles.items()]
if WARM:
    warm_up(options)
modules, built = set(sys.modules), misses()
texts = ["Gr\\u00f6\\u00dfe", "cafe\\u0301 \\u0308\\u0323", "\\u6211\\u4eec\\u7684 \\ud55c", "\\U0001f600 \\ufdfa"]
for each in options:
    IndexLookup(each, MemoryIndex()).look_up([LookupQuery(text * 40) for text in texts], 0)
print("built", sorted(name for name, count in misses().items() if count != built[name]))
print("imported", sorted(name for name in set(sys.modules) - modules if "." in name))
"""


def first_documents(*, warm: bool) -> list[str]:
    """Return what the first documents of a new process build and import."""
    return printed(f"WARM = {warm}\n{FIRST_DOCUMENTS}")


def first_lookups(*, warm: bool) -> list[str]:
    """Return what the first look-ups of a new process build and import."""
    start, end = FIRST_DOCUMENTS.index("from streamdedup.settings"), FIRST_DOCUMENTS.index("with connect_backend")
    shared = "import sys\n" + FIRST_DOCUMENTS[start:end]
    return printed(f"WARM = {warm}\n{FIRST_LOOKUPS.replace('SETTINGS_AND_MISSES', shared)}")


def printed(program: str) -> list[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()


def test_no_document_builds_or_imports_anything_after_the_warm_up():
    assert first_documents(warm=True) == ["built []", "imported []"]


def test_no_lookup_builds_or_imports_anything_after_the_warm_up():
    assert first_lookups(warm=True) == ["built []", "imported []"]
    assert "'tables'" in first_lookups(warm=False)[0]


def test_without_the_warm_up_the_first_documents_build_tables():
    built, _ = first_documents(warm=False)
    assert "'tables'" in built


def test_the_daemon_is_warm_before_it_waits_for_servers_and_freezes_its_heap_before_its_loop(monkeypatch):
    steps = []

    class Loop:
        def __init__(self, metrics: Metrics, **_arguments: object) -> None:
            self.readiness = Readiness(metrics)

        def run(self) -> None:
            steps.append("loop")

    monkeypatch.setattr(run_module, "Loop", Loop)
    for name in ("warm_up", "_await_servers", "freeze_heap"):
        monkeypatch.setattr(run_module, name, lambda *_arguments, name=name: steps.append(name))
    values = {
        "kafka.bootstrap_servers": "localhost:9092",
        "redis.url": "redis://localhost",
        "profiles.p.topics": "t",
        "service.metrics_port": 0,
    }
    run_module.run_daemon(Settings.load(None, values, environ={}))
    assert steps == ["warm_up", "_await_servers", "freeze_heap", "loop"]


def test_objects_made_before_the_heap_is_frozen_are_left_out_of_collections():
    kept = [[] for _ in range(1_000)]
    try:
        freeze_heap()
        assert gc.get_freeze_count() > len(kept)
        found = {id(one) for one in gc.get_objects()}
        assert not found.intersection(map(id, kept))
    finally:
        gc.unfreeze()
