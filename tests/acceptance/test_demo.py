"""The demo as a user runs it: what it prints, how it ends, and that nothing is left of it whatever ends it."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from importlib import resources
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browsing import Tab, opened_browser
from tests.servers import wait_until

#: Seconds that a fast demo may take on a busy machine.
DEADLINE_S = 300.0
#: Name of the variable by which processes of a demo are found.
MARK = "DEMO_OF_THE_TESTS"
#: A pair as a line.
PAIR = re.compile(
    r"^\d\d:\d\d:\d\d[+-]\d{4}  \w+ +(\S+) ~ (\S+)  (\d\.\d{4}) exact  [a-z ]+ \d\.\d{4}"
    r"(?:, alerted by containment)?  cluster \S+ \(\d+\)$",
    re.MULTILINE,
)

pytestmark = [
    pytest.mark.timeout(DEADLINE_S * 2),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are looked up in /proc"),
]


class Demo:
    """One ``streamdedup demo`` as a process."""

    def __init__(self, folder: Path, *arguments: str, python: str = sys.executable) -> None:
        self.mark = uuid.uuid4().hex
        self.folder = folder / self.mark
        self.folder.mkdir()
        self.process = subprocess.Popen(
            [python, "-m", "streamdedup", "demo", *arguments],
            cwd=self.folder,
            env=os.environ | {MARK: self.mark, "TMPDIR": str(self.folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self.printed = ""

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.process.kill()
        self.process.communicate()

    def wait_line(self, part: str) -> None:
        """Read up to a line that contains ``part``."""
        for line in self.process.stdout:
            self.printed += line
            if part in line:
                return
        pytest.fail(f"ended without {part!r}:\n{self.printed}{self.process.stderr.read()}")

    def finish(self) -> tuple[int, str, str]:
        """Wait for the end; return exit code, all output and all errors."""
        out, errors = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, self.printed + out, errors

    def processes(self, part: str = "") -> list[int]:
        """Return the ids of those of its processes, itself excepted, whose command line contains ``part``."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                ours = f"{MARK}={self.mark}".encode() in (process / "environ").read_bytes().split(b"\0")
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it has ended, or is somebody else's
            if ours and part in command and int(process.name) != self.process.pid:
                found.append(int(process.name))
        return found

    def assert_nothing_left(self, *, folders: bool = True) -> None:
        """Fail when a process, or a temporary folder, is still there."""
        wait_until(lambda: not self.processes(), what="the end of all that the demo started")
        assert not folders or not list(self.folder.iterdir())


@pytest.fixture
def start(tmp_path):
    demos = []

    def run(*arguments: str) -> Demo:
        demos.append(Demo(tmp_path, *arguments))
        return demos[-1]

    yield run
    for demo in demos:
        demo.__exit__()


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A demo that has played the sample and leaves its servers running, and its settings file."""
    with Demo(tmp_path_factory.mktemp("kept"), "--pace", "0", "--no-diff", "--keep") as demo:
        demo.wait_line("Enter or Ctrl-C ends.")
        yield demo, re.search(r"run --config (\S+)", demo.printed)[1]
        demo.process.stdin.write("\n")
        demo.process.stdin.flush()
        code, _, errors = demo.finish()
        assert (code, errors) == (0, "")
        demo.assert_nothing_left()


def expected_pairs() -> dict[tuple[str, str], str]:
    with (resources.files("streamdedup") / "sample" / "expected_pairs.tsv").open(encoding="utf-8") as lines:
        return {
            tuple(sorted((row["id1"], row["id2"]))): row["similarity"] for row in csv.DictReader(lines, delimiter="\t")
        }


def pairs_in(text: str) -> list[tuple[tuple[str, str], str]]:
    return sorted((tuple(sorted((new, old))), similarity) for new, old, similarity in PAIR.findall(text))


def tail(config: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streamdedup", "tail", "--config", config, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=DEADLINE_S, encoding="utf-8")


def test_the_sample_gives_exactly_its_known_pairs(start):
    demo = start("--pace", "0")

    code, out, errors = demo.finish()

    assert (code, errors) == (0, "")
    demo.assert_nothing_left()
    expected = expected_pairs()
    assert pairs_in(out) == sorted(expected.items())
    assert f"{len(expected)} of {len(expected)} known pairs found, 0 others" in out
    # What only one of two texts has is marked without colours too.
    assert "{+" in out
    assert "[-" in out
    assert "\x1b" not in out


def test_every_record_of_the_sample_is_accounted_for(kept):
    demo, _ = kept

    account = re.search(
        r"(\d+) sent; (\d+) consumed = (\d+) indexed \+ (\d+) skipped \+ (\d+) dead letters", demo.printed
    )

    sent, consumed, indexed, skipped, dead = map(int, account.groups())
    assert sent == consumed == indexed + skipped + dead
    assert dead > 0
    assert demo.printed.count("  dead letter  ") == dead


def test_tail_prints_the_same_pairs_a_line_each(kept):
    _, config = kept
    alerts_count = len({new for new, _, _ in PAIR.findall(kept[0].printed)})

    done = tail(config, "--from-beginning", "--limit", str(alerts_count))

    assert done.returncode == 0
    # The time is the whole date here.
    assert pairs_in(re.sub(r"^\d{4}-\d\d-\d\d ", "", done.stdout, flags=re.MULTILINE)) == sorted(
        expected_pairs().items()
    )


def test_a_text_of_the_sample_that_is_pasted_into_the_page_has_its_near_duplicate_with_differences(kept):
    demo, _ = kept
    url = re.search(r"into (http://127\.0\.0\.1:\d+/)$", demo.printed, re.MULTILINE)[1]
    assert re.search(rf"^  page +{re.escape(url)}  ", demo.printed, re.MULTILINE)
    with opened_browser() as browser:
        tab = Tab(browser)
        page = tab.page
        page.goto(url)
        expect(page.locator("#indexes")).to_contain_text("articles")  # a browser asks nothing without a profile
        page.get_by_label("Text", exact=True).fill(sample_text("art-005"))
        page.get_by_role("button", name="Find near-duplicates").click()
        rows = page.locator("#ask-matches > li")
        expect(rows.nth(1)).to_contain_text("art-002")
        rows.nth(1).get_by_role("button").click()
        expect(rows.nth(1).get_by_role("region", name="art-002").locator("del").first).to_contain_text("Ferry link")
        page.get_by_role("tab", name="Live").click()
        expect(page.locator("#live-status")).to_have_text("Following.")
        page.get_by_role("tab", name="State").click()
        profiles = page.get_by_role("table", name="Profiles")
        expect(profiles).to_contain_text("can be looked up")
        expect(profiles.get_by_role("row").nth(1)).to_contain_text(re.compile(r"1[34]\d"))
        tab.close(url)


def sample_text(document_id: str) -> str:
    with (resources.files("streamdedup") / "sample" / "articles.jsonl").open(encoding="utf-8") as lines:
        return next(json.loads(line)["text"] for line in lines if f'"{document_id}"' in line)


def test_open_opens_the_page_in_the_browser_and_leaves_the_servers_running(start, tmp_path, monkeypatch):
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {opened}\n', encoding="utf-8")
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    demo = start("--pace", "0", "--no-diff", "--open")
    demo.wait_line("Enter or Ctrl-C ends.")
    url = re.search(r"^ +page +(http://\S+)", demo.printed, re.MULTILINE)[1]
    wait_until(lambda: opened.exists() and opened.read_text(encoding="utf-8").strip() == url, what="the browser")
    demo.process.stdin.write("\n")
    demo.process.stdin.flush()
    code, _, errors = demo.finish()
    assert (code, errors) == (0, "")
    demo.assert_nothing_left()


def test_without_the_extra_serve_the_demo_says_how_to_get_its_page():
    script = (
        "import sys; sys.modules['litestar'] = None; import importlib.util; found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'litestar' else found(name, *rest)\n"
        "from streamdedup.cli.main import main; main(['demo', '--pace', '0', '--no-diff'])"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=DEADLINE_S
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "pip install 'streamdedup[serve]' to have one" in done.stdout


def test_tail_shows_both_texts_side_by_side(kept):
    _, config = kept

    done = tail(config, "--from-beginning", "--diff", "--limit", "20")

    assert done.returncode == 0
    assert "{+" in done.stdout
    assert "[-" in done.stdout
    assert "Kafka no longer has" not in done.stdout


def test_tail_takes_json_or_texts_but_not_both(kept):
    _, config = kept

    assert tail(config, "--json", "--diff").returncode == 2


def test_tail_ends_with_130_on_ctrl_c(kept):
    _, config = kept
    command = [sys.executable, "-m", "streamdedup", "tail", "--config", config]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert "following duplicates from its end" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=DEADLINE_S)

    assert (process.returncode, out, errors) == (130, "", "")


def test_the_users_settings_are_not_the_demos(start, monkeypatch):
    monkeypatch.setenv("STREAMDEDUP_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:9")
    monkeypatch.setenv("STREAMDEDUP_PROFILES__ARTICLES__THRESHOLD", "1.0")

    code, _, errors = start("--pace", "0", "--no-diff").finish()

    assert (code, errors) == (0, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"])
def test_a_signal_in_the_middle_ends_everything(start, number, code):
    demo = start("--pace", "20")
    demo.wait_line(" ~ art-")

    demo.process.send_signal(number)

    returned, _, errors = demo.finish()
    assert (returned, errors) == (code, "")
    demo.assert_nothing_left()


def test_ctrl_c_while_the_servers_start_ends_everything(start):
    demo = start()
    wait_until(lambda: demo.processes("mock_child"), what="the start of the broker")

    demo.process.send_signal(signal.SIGINT)

    assert demo.finish()[0] == 130
    demo.assert_nothing_left()


def test_kill_9_leaves_no_process(start):
    demo = start("--pace", "20")
    demo.wait_line(" ~ art-")

    demo.process.kill()

    demo.process.wait(DEADLINE_S)
    demo.assert_nothing_left(folders=False)


def test_the_end_of_the_daemon_is_reported_with_its_log(start):
    demo = start("--pace", "20")
    demo.wait_line(" ~ art-")

    for pid in demo.processes("streamdedup run"):
        # The keeper, which has the same words in its command line, would take its part of the log along.
        if "keeper" not in Path(f"/proc/{pid}/cmdline").read_bytes().decode():
            os.kill(pid, signal.SIGKILL)

    code, _, errors = demo.finish()
    assert code == 1
    assert "daemon ended with code 137" in errors
    assert "at_work" in errors
    demo.assert_nothing_left()


def test_without_the_extra_the_demo_names_the_package_to_install():
    script = "import sys; sys.modules['confluent_kafka'] = None; from streamdedup.cli.main import main; main(['demo'])"

    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=DEADLINE_S
    )

    assert done.returncode == 1
    assert "streamdedup[demo]" in done.stderr
