"""Work before the daemon is ready, so that no document waits for it."""

import gc
import os
import signal
import subprocess
import sys

import pytest

from streamdedup.cli import run as run_module
from streamdedup.cli.warm_up import freeze_heap
from streamdedup.daemon.logs import ClientRepeats
from streamdedup.daemon.metrics import Metrics
from streamdedup.daemon.readiness import Readiness
from streamdedup.settings import Settings

#: Settings, texts of many scripts, and a count of the tables that were built so far.
SETUP = """
import sys
from streamdedup.cli.warm_up import warm_up
from streamdedup.indexes import detector_options
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
options = [detector_options(name, profile) for name, profile in settings.profiles.items()]
texts = ["Gr\\u00f6\\u00dfe", "cafe\\u0301 \\u0308\\u0323", "\\u6211\\u4eec\\u7684 \\ud55c", "\\U0001f600 \\ufdfa"]
"""

#: Builds the pipelines of a daemon, warms up, and prepares first documents.
FIRST_DOCUMENTS = """
from streamdedup.cli.assembly import pipelines
from streamdedup.indexes import connect_backend
from streamdedup.position import Position
from streamdedup.wire import Document

with connect_backend(settings) as backend:
    profiles = pipelines(settings, backend)
    if WARM:
        warm_up(options)
    modules, built = set(sys.modules), misses()
    for topic in "pq":
        profiles[topic].decoder.decode(Position(topic, 0, 0), 1, None, b'{"text": "x"}')
        documents = [Document(text, text * 40, Position(topic, 0, at), 1) for at, text in enumerate(texts)]
        profiles[topic].detector.prepare(documents)
"""

#: The same for the look-ups of the HTTP service.
FIRST_LOOKUPS = """
from streamdedup.detection.lookup import IndexLookup, LookupQuery
from streamdedup.index.memory import MemoryIndex

if WARM:
    warm_up(options)
modules, built = set(sys.modules), misses()
for profile in options:
    IndexLookup(profile, MemoryIndex()).look_up([LookupQuery(text * 40) for text in texts], 0)
"""

#: Prints the tables and modules that were built or imported only by the first documents or look-ups.
REPORT = """
print("built", sorted(name for name, count in misses().items() if count != built[name]))
print("imported", sorted(name for name in set(sys.modules) - modules if "." in name))
"""


FIRST_WORK = {"run": FIRST_DOCUMENTS, "serve": FIRST_LOOKUPS}


def first_work(command: str, *, warm: bool) -> list[str]:
    """Return what the first work of a new process builds and imports, after all imports of its command."""
    program = f"from streamdedup.cli import {command}\nWARM = {warm}\n{SETUP}{FIRST_WORK[command]}{REPORT}"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return run.stdout.splitlines()


@pytest.mark.parametrize("command", FIRST_WORK)
def test_only_the_warm_up_builds_tables_and_nothing_is_imported_after_it(command):
    assert first_work(command, warm=True) == ["built []", "imported []"]
    assert "'tables'" in first_work(command, warm=False)[0]


def test_the_daemon_is_warm_before_it_waits_for_servers_and_freezes_its_heap_before_its_loop(monkeypatch):
    steps = []

    class Loop:
        def __init__(self, metrics: Metrics, **_arguments: object) -> None:
            self.readiness = Readiness(metrics)

        def run(self) -> None:
            steps.append("loop")
            assert not ClientRepeats.is_stopping
            os.kill(os.getpid(), signal.SIGTERM)
            assert ClientRepeats.is_stopping, "the clients log errors when they are closed"

    monkeypatch.setattr(run_module, "Loop", Loop)
    monkeypatch.setattr(ClientRepeats, "is_stopping", False)
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
