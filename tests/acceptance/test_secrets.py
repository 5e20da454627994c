"""No secret is printed: not by any command, at any level, in any format, whether the secrets are right or wrong.

Passwords are chosen so that they occur nowhere by chance, and looked for as they are and as they are written in
addresses, in JSON, in base64 and in hexadecimal.
"""

import base64
import json
import re
import tempfile
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from streamdedup.errors import EXIT_FATAL, EXIT_OK
from tests import canaries, servers
from tests.daemons import Daemon
from tests.guarded import DUPLICATES, INPUT, LETTERS, Done, Guarded, run

#: What is given where the right password is not; it holds the right one, so that it is looked for with it.
WRONG = {name: f"wrong-{password}" for name, password in canaries.PASSWORDS.items()}

#: Ways to tell the settings their secrets, each with a level and a format of the log.
WAYS = {"files": "debug", "inline": "info", "environment": "debug"}
#: Of each secret: its line in the settings file, its own key, its variable.
PLACES = {
    "kafka": ('sasl_password_file = "kafka-password"', "sasl_password", "STREAMDEDUP_KAFKA__SASL_PASSWORD"),
    "redis": ('username = "whole"\npassword_file = "redis-password"', "password", "STREAMDEDUP_REDIS__PASSWORD"),
}
#: Commands by the names of their tests.
COMMANDS = {
    "check": ["config", "check"],
    "show": ["config", "show"],
    "create": ["topics", "create"],
    "produce": ["produce", "documents.jsonl", "--topic", INPUT],
    "run": ["run"],
    "tail": ["tail", "--from-beginning", "--limit", "1"],
    "learn": ["stop-shingles", "--from-topic"],
    "unfence": ["index", "unfence", "--yes"],
}
#: Where alerts and dead letters go.
OUTPUTS = (DUPLICATES, LETTERS)
#: Documents to send: a pair, and what becomes a dead letter.
DOCUMENTS = b"""\
{"id": "a", "text": "the ferry runs twice a day from May to October"}
{"id": "b", "text": "The ferry runs twice a day, from May to October!"}
{"id": "c", "text": 5}
"""


def forms(secret: str) -> set[str]:
    """Return all ways in which a secret could be printed."""
    raw = secret.encode()
    found = {secret, urllib.parse.quote(secret), urllib.parse.quote(secret, safe=""), urllib.parse.quote_plus(secret)}
    found |= {json.dumps(secret)[1:-1], repr(secret)[1:-1], raw.hex(), raw.hex(" ")}
    for offset in range(3):
        # Base64 of a text that holds the secret: but for the ends it depends on the place in that text modulo three.
        text = base64.b64encode(bytes(offset) + raw).decode()
        piece = text[4 if offset else 0 : len(text) - 4]
        found |= {piece, piece.replace("+", "-").replace("/", "_")}
    return found


CANARIES = {form: name for name, secret in canaries.PASSWORDS.items() for form in forms(secret)}


def leaks(text: str) -> list[str]:
    """Return which secrets a text holds, each with what stands before it."""
    places = {form: text.find(form) for form in CANARIES}
    return [f"{CANARIES[form]}: {text[max(0, at - 200) : at]}" for form, at in places.items() if at >= 0]


@dataclass
class Configured:
    """A settings file with its secrets, one way or another.

    Attributes:
        folder: Where the file is.
        environ: Variables that belong to it.
    """

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        """The settings file."""
        return self.folder / "streamdedup.toml"

    def run(self, name: str) -> Done:
        """Run a command of ``COMMANDS`` to its end."""
        command = [self.folder / part if part.endswith(".jsonl") else part for part in COMMANDS[name]]
        return run(*command, "--config", self.config, environ=self.environ)

    def daemon(self) -> Daemon:
        """Return a daemon."""
        return Daemon(self, "a", {}, environ=self.environ)


def configured(setup: Guarded, way: str, *wrong: str, **changes: str) -> Configured:
    """Write a settings file.

    Args:
        setup: The servers.
        way: One of ``WAYS``.
        wrong: Which secrets are wrong ones.
        changes: What else to write over: the address of ``kafka`` or ``redis``.
    """
    made = Configured(Path(tempfile.mkdtemp(dir=setup.folder)))
    (made.folder / "documents.jsonl").write_bytes(DOCUMENTS)
    text = setup.config.read_text(encoding="utf-8")
    text = replaced(text, "[service]\n", f'[service]\nlog_level = "{WAYS[way]}"\n')
    for name, address in changes.items():
        text = replaced(text, getattr(setup, name).bootstrap_servers if name == "kafka" else setup.redis.url, address)
    for name, (line, key, variable) in PLACES.items():
        secret = (WRONG if name in wrong else canaries.PASSWORDS)[name]
        if way == "files":
            (made.folder / f"{name}-password").write_text(secret, encoding="utf-8")
        elif way == "environment":
            made.environ[variable] = secret
            text = replaced(text, line, line.rpartition("\n")[0])
        elif name == "redis":
            text = replaced(text, line, "")
            text = replaced(text, "redis://", f"redis://whole:{urllib.parse.quote(secret, safe='')}@")
        else:
            text = replaced(text, line, f"{key} = {json.dumps(secret)}")
    made.config.write_text(text, encoding="utf-8")
    return made


def replaced(text: str, old: str, new: str) -> str:
    """Replace what must be there."""
    assert text.count(old) == 1, old
    return text.replace(old, new)


@pytest.fixture(scope="module")
def setup(guarded_servers: Guarded) -> Guarded:
    return guarded_servers


@pytest.mark.parametrize("way", [way if way == "files" else pytest.param(way, marks=pytest.mark.long) for way in WAYS])
def test_no_command_prints_a_secret_while_it_works(setup, way):
    made = configured(setup, way)
    # All commands read their settings by one function, so one way is enough for most of them.
    names = ("check", "show", "create", "produce", "unfence") if way == "files" else ("show", "produce")
    printed = {name: made.run(name) for name in names}
    with made.daemon() as daemon:
        wait_logged(daemon, "at_work", "dead_letter")
        pages = [page_of(daemon, path) for path in ("/metrics", "/livez", "/readyz")]
        assert daemon.stop() == EXIT_OK
    if way == "files":
        printed |= {name: made.run(name) for name in ("tail", "learn")}
    told = {name: (done.code, leaks(done.text)) for name, done in printed.items()}
    assert told == dict.fromkeys(printed, (EXIT_OK, []))
    assert len(re.findall(r'"\*{3}"|-password"|:\*{3}@', printed["show"].text)) == len(canaries.PASSWORDS)
    assert leaks(daemon.log.read_text(encoding="utf-8")) == []
    assert leaks("".join(pages)) == []
    topics = [servers.read_topic(setup.kafka.bootstrap_servers, name, **setup.kafka.login()) for name in OUTPUTS]
    assert all(topics)
    assert leaks(repr(topics)) == []


def wait_logged(daemon: Daemon, *events: str) -> None:
    """Wait until the log, in whatever format, holds all these events."""
    servers.wait_until(
        lambda: daemon.alive_or_fail() and all(event in daemon.log.read_text(encoding="utf-8") for event in events),
        what=" and ".join(events),
    )


def page_of(daemon: Daemon, path: str) -> str:
    """Ask the HTTP side of a daemon that logs in any format."""
    port = re.search(r"metrics_port\W+(\d+)", daemon.log.read_text(encoding="utf-8"))[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return answer.read().decode()


@pytest.mark.parametrize(
    ("way", "wrong", "name", "code"),
    [
        *(("files", "kafka", name, EXIT_FATAL) for name in ("create", "produce", "run", "tail", "learn", "unfence")),
        *(("files", "redis", name, EXIT_FATAL) for name in ("run", "unfence")),
        *(("inline", wrong, "run", EXIT_FATAL) for wrong in ("kafka", "redis")),
        ("environment", "kafka", "run", EXIT_FATAL),
    ],
)
def test_no_command_prints_a_secret_that_is_wrong(setup, way, wrong, name, code):
    done = configured(setup, way, wrong).run(name)
    assert (done.code, leaks(done.text)) == (code, []), done.text[-2000:]


@pytest.mark.parametrize("way", ["files", "inline"])
def test_no_secret_is_printed_while_servers_are_away(setup, way):
    made = configured(setup, way, redis="redis://127.0.0.1:1/0", kafka="127.0.0.1:1")
    with made.daemon() as daemon:
        wait_logged(daemon, "waiting")
        assert daemon.stop() == EXIT_OK
        assert leaks(daemon.log.read_text(encoding="utf-8")) == []
