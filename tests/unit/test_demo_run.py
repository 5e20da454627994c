"""The demo without servers: its loop, with a daemon that consumes each record at once, or none; its end."""

import sys
from contextlib import ExitStack, nullcontext
from functools import partial
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from streamdedup.cli import demo, demo_run
from streamdedup.cli.demo_run import DemoOptions, DemoRun
from streamdedup.corpora import Entry
from streamdedup.embedded import MissingToolError, MockBroker
from streamdedup.errors import SettingsError, StreamdedupError
from streamdedup.kafka.pace import Pace
from streamdedup.kafka.protocols import Batch
from tests.support.clock import ManualClock

#: Time without progress after which the demo fails, and the time between two records, in seconds.
STALL_S, INTERVAL_S = 0.2, 0.5


@pytest.fixture
def run_demo(tmp_path, monkeypatch):
    """Return a function that runs the demo with three documents."""
    config = tmp_path / "streamdedup.toml"
    config.write_text('kafka.bootstrap_servers = "h:1"\nredis.url = "redis://h:1"\nprofiles.p.topics = ["p"]\n')
    records = [("articles", Entry(str(number), "a text", "sample", number)) for number in range(3)]
    monkeypatch.setattr(demo_run, "sample_records", lambda: records)
    sent, clock = [], ManualClock()
    monkeypatch.setattr(demo_run, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(demo_run, "Pace", partial(Pace, clock=clock, sleep=clock.sleep))

    def poll(timeout_s):
        clock.sleep(max(timeout_s, 0.001))
        return Batch()

    feeder = SimpleNamespace(send=lambda *record: sent.append(record), flush=lambda: None)
    reader = SimpleNamespace(poll=poll)
    monkeypatch.setattr(demo_run, "Feeder", lambda _options: nullcontext(feeder))
    monkeypatch.setattr(demo_run, "TopicReader", lambda _options: nullcontext(reader))
    monkeypatch.setattr(demo_run, "_STALL_S", STALL_S)

    def run(pace, *, consumes):
        def metrics():
            count = len(sent) if consumes else 0
            return f"streamdedup_records_total {count}\nstreamdedup_documents_indexed_total {count}\n"

        daemon = SimpleNamespace(config_path=config, log_tail=lambda: "")
        options = DemoOptions(pace=pace, diff=False, keep=False, open_page=False)
        with ExitStack() as stack:
            console, servers = Console(quiet=True), SimpleNamespace(daemon=daemon, metrics=metrics)
            DemoRun(options, console, servers, stack).run()
        return len(sent)

    return run


@pytest.mark.parametrize(("no_color", "mark"), [(True, "{+this way+}"), (False, "green")])
def test_the_demo_explains_the_marks_that_the_terminal_shows(no_color, mark):
    console = Console(file=StringIO(), width=200, force_terminal=True, color_system="256", no_color=no_color)
    daemon = SimpleNamespace(config_path="c", log_path="l", url=str)
    names = {"redis": SimpleNamespace(url="r"), "broker": SimpleNamespace(bootstrap_servers="k"), "service": None}
    options = DemoOptions(pace=0, diff=True, keep=False, open_page=False)
    demo._introduce(options, console, SimpleNamespace(daemon=daemon, **names))
    assert f"marked {mark}" in console.file.getvalue()


def test_without_an_extra_its_name_is_told(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingToolError, match=r"streamdedup\[demo\]"):
        MockBroker()
    with pytest.raises(SettingsError, match=r"pip install 'streamdedup\[serve\]' to have one"):
        demo._open_page(None, SimpleNamespace(service=None))


def test_a_slow_pace_is_no_stall(run_demo):
    assert run_demo(1 / INTERVAL_S, consumes=True) == 3


def test_a_daemon_that_consumes_nothing_is_a_stall(run_demo):
    with pytest.raises(StreamdedupError, match=r"no progress for .* 3 sent; 0 consumed"):
        run_demo(0.0, consumes=False)


def test_a_closed_standard_input_keeps_no_servers_running(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    runs = []
    monkeypatch.setattr(demo, "_run", lambda options, _console: runs.append(options.keep))
    demo.demo()
    assert runs == [False]


def test_servers_that_are_kept_with_a_closed_standard_input_run_until_they_are_interrupted(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(demo, "_CHECK_INTERVAL_S", 0.001)
    checks = []

    def check():
        checks.append(1)
        if len(checks) == 3:
            raise KeyboardInterrupt

    servers = SimpleNamespace(daemon=SimpleNamespace(config_path="c.toml"), service=None, check=check)
    demo._wait_for_user(Console(quiet=True), servers)
    assert len(checks) == 3
