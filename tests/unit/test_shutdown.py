"""Stopping in time; the end of a process is tested with a process of its own."""

import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
from types import SimpleNamespace

import pytest

from streamdedup.daemon import shutdown
from streamdedup.daemon.shutdown import StopSignals, StopTimer, Watchdog
from streamdedup.errors import EXIT_STALLED
from tests.support.clock import ManualClock

#: Longest wait of a test, in seconds.
PATIENCE_S = 180.0


def run_script(body: str) -> subprocess.CompletedProcess[str]:
    """Run ``body`` in a process of its own; its signals to itself replace those of an operator."""
    script = "import os, signal, sys, threading, time\nfrom streamdedup.daemon.shutdown import *\n"
    script += "def ending(code):\n    return lambda line: exit_at_once(line, code)\n" + textwrap.dedent(body)
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_requests_a_stop_and_the_earlier_handlers_are_restored(number):
    before = signal.getsignal(number)
    with StopSignals() as signals:
        assert not signals.stopping
        os.kill(os.getpid(), number)
        assert signals.wait(PATIENCE_S)
        assert signals.stopping
    assert signal.getsignal(number) is before


def test_signals_that_come_together_are_one_request():
    now = [100.0]
    with StopSignals(clock=lambda: now[0]) as signals:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
            now[0] += 0.2
        assert signals.stopping
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_the_second_signal_raises_keyboard_interrupt_and_leaves_the_third_its_default_action():
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        now = [100.0]
        with StopSignals(clock=lambda: now[0]) as signals:
            os.kill(os.getpid(), signal.SIGTERM)
            assert signals.wait(PATIENCE_S)
            now[0] += 0.5
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
        assert {signal.getsignal(number) for number in numbers} == {signal.SIG_DFL}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_signal_wakes_a_wait_that_has_begun():
    with StopSignals() as signals:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        assert signals.wait(PATIENCE_S)


def test_without_a_signal_a_wait_ends_with_its_time():
    with StopSignals() as signals:
        assert not signals.wait(0.01)
        assert not signals.wait(-1.0)


def test_another_thread_can_ask_to_stop_and_the_action_runs_once():
    calls = []
    signals = StopSignals(on_stop=lambda: calls.append("stop"))
    signals.stop()
    signals.stop()
    assert signals.wait(0.0)
    assert calls == ["stop"]


def test_no_wait_after_the_request_takes_time():
    signals = StopSignals()
    signals.stop()
    assert signals.wait(math.inf)  # an invalid time for a wait


def test_a_watchdog_without_ticks_acts_once_and_names_the_line_of_the_thread():
    lines = []
    acted = threading.Event()
    with Watchdog(0.1, action=lambda line: (lines.append(line), acted.set())):
        assert acted.wait(PATIENCE_S)
    assert len(lines) == 1
    assert lines[0].startswith("no progress for 0.1 s, at ")
    assert "threading.py" in lines[0]


def test_a_watchdog_with_ticks_does_nothing():
    lines = []
    watchdog = Watchdog(0.5, action=lines.append)
    looks = iter(range(3 * shutdown.WATCHDOG_CHECKS))

    def tick_until_the_next_look(_wait_s):
        watchdog.tick()
        return next(looks, None) is None

    watchdog._end = SimpleNamespace(wait=tick_until_the_next_look)
    watchdog._watch()
    assert lines == []


def test_a_watchdog_acts_when_the_ticks_end():
    lines, looks = [], iter(range(3 * shutdown.WATCHDOG_CHECKS))
    watchdog = Watchdog(0.5, action=lines.append)
    watchdog.tick()
    waits_s = []
    watchdog._end = SimpleNamespace(wait=lambda wait_s: waits_s.append(wait_s) or next(looks, None) is None)
    watchdog._watch()
    assert set(waits_s) == {0.5 / shutdown.WATCHDOG_CHECKS}
    assert len(lines) == 1
    assert next(looks) == shutdown.WATCHDOG_CHECKS + 1


def test_a_process_that_a_full_pipe_stalls_is_ended_without_the_line():
    ended = run_script("""
        _unread, full = os.pipe()
        os.dup2(full, 2)
        with Watchdog(0.2, ending(70)):
            while True:
                os.write(2, bytes(2**20))
    """)
    assert ended.returncode == EXIT_STALLED


def test_a_process_that_was_frozen_as_a_whole_is_not_taken_for_stalled():
    ended = run_script("""
        import subprocess
        with Watchdog(3.0, ending(70)) as watchdog:
            freeze = f"kill -STOP {os.getpid()}; sleep 4; kill -CONT {os.getpid()}"
            subprocess.run(["sh", "-c", freeze])
            threading.Event().wait(0.3)
            print("alive")
    """)
    assert (ended.returncode, ended.stdout) == (0, "alive\n")


def test_a_process_that_ends_in_time_keeps_its_own_code():
    ended = run_script("""
        with StopTimer(60.0, ending(75)) as timer, StopSignals(on_stop=timer.begin) as signals:
            os.kill(os.getpid(), signal.SIGTERM)
            assert signals.wait(60.0)
        sys.exit(7)
    """)
    assert (ended.returncode, ended.stderr) == (7, "")


def test_a_stop_that_takes_longer_than_its_time_is_told_and_one_that_was_not_begun_is_not():
    lines, acted = [], threading.Event()
    with StopTimer(0.0, action=lines.append):
        pass
    with StopTimer(0.0, action=lambda line: (lines.append(line), acted.set())) as timer:
        timer.begin()
        assert acted.wait(PATIENCE_S)
    assert lines == ["stopping took longer than 0 s; nothing is lost"]


def test_the_time_to_stop_counts_from_the_first_begin(monkeypatch):
    clock = ManualClock()
    monkeypatch.setattr(shutdown, "time", SimpleNamespace(monotonic=clock))
    events, waits_s = iter([(60, "begin"), (3, "begin"), (0, "end")]), []

    def get(timeout=None):
        waits_s.append(timeout)
        passed_s, event = next(events)
        clock.now_s += passed_s
        return event

    timer = StopTimer(8, action=lambda _line: None)
    timer._events = SimpleNamespace(get=get)
    timer._run()
    assert waits_s == [None, 8, 5]
