"""docs/settings.md and the tables of docs/redis.md agree with the code."""

import importlib.util
import re
from collections import Counter
from pathlib import Path

import pytest

from streamdedup.index.redis.checks import PROBES, REBUILD_PROBES
from streamdedup.index.redis.inspection import KINDS
from streamdedup.settings import Profile
from streamdedup.settings.base import keys_of, secrets_of
from streamdedup.settings.schema import SECTIONS
from streamdedup.tuning.memory import CLAIM_BYTES, CLAIM_LIFETIMES
from tests import redis_sets
from tests.guarded import rights_of

DOCS = Path(__file__).parents[2] / "docs"
PAGE, REDIS, TUNING = ((DOCS / name).read_text(encoding="utf-8") for name in ("settings.md", "redis.md", "tuning.md"))


@pytest.mark.parametrize("name", ["settings_tables", "alert_fields"])
def test_the_tables_are_what_the_code_says(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    written = script.PAGE.read_text(encoding="utf-8")
    assert written == script.render(written), f"rewrite them: python docs/{name}.py"


def test_the_contradictions_name_keys_that_exist():
    table = PAGE.split("\n## Contradictions\n")[1].split("\n#")[0]
    known = {key for section in (*SECTIONS.values(), Profile) for key in keys_of(section)}
    assert known.issuperset(re.findall(r"`(?:\w+\.)?(\w+) = [^`]*`", table))


def test_each_section_whose_secret_may_go_in_clear_is_named():
    paragraph = PAGE.split("\nA secret is not sent in clear")[1].split("\n\n")[0]
    allowing = {name for name, section in SECTIONS.items() if "allow_plaintext" in keys_of(section)}
    named = set(re.findall(r"`(\w+)\.url`", paragraph))
    assert {name for name, section in SECTIONS.items() if secrets_of(section)} == allowing | named


def test_the_rights_on_kafka_are_those_with_which_the_daemon_is_tried_out():
    table = PAGE.split("### Rights on Kafka\n")[1].split("\n#")[0]
    listed = Counter(re.findall(r"^\|[^|]*\| `(\w+)` \|", table, re.MULTILINE))
    needed = {(kind, operation.name) for kind, _, operation in rights_of("whole")}  # two topics are in one row
    assert listed == Counter(operation for _, operation in needed)


def test_every_kind_of_key_is_listed():
    table = re.search(r"^\| key \|.*\n(?:\|.*\n)+", REDIS, re.MULTILINE)[0]
    listed = re.findall(r"^\| `\{\.\.\}(\w)`", table, re.MULTILINE)
    assert set(listed) == {letter.decode() for letter in KINDS} | {"h"}


def test_the_memory_of_a_claim_is_that_which_tune_forecasts():
    assert f"| {CLAIM_BYTES}, for two and a half lifetimes: {CLAIM_BYTES * CLAIM_LIFETIMES:g} |" in TUNING


def test_the_rights_on_redis_are_those_that_the_check_tries():
    granted = {rule[1:] for rule in redis_sets.acl_line("daemon") if rule[0] == "+"}
    probed = sorted(probe.split()[0] for probe in (*PROBES, *REBUILD_PROBES))
    assert sorted(granted - {"info", "evalsha", "script|load"}) == probed
