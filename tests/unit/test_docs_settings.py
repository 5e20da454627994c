"""docs/settings.md and the tables of docs/redis.md agree with the code."""

import importlib.util
import re
from collections import Counter
from pathlib import Path

import pytest

from streamdedup.index.redis.admin import KINDS
from streamdedup.index.redis.checks import PROBES, REBUILD_PROBES
from streamdedup.settings import Profile
from streamdedup.settings.base import keys_of, secrets_of
from streamdedup.settings.schema import SECTIONS
from streamdedup.tuning.memory import CLAIM_BYTES, CLAIM_LIFETIMES
from tests import redis_sets
from tests.guarded import rights_of

REDIS = (Path(__file__).parents[2] / "docs" / "redis.md").read_text(encoding="utf-8")
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def page():
    return (DOCS / "settings.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["settings_tables", "alert_fields"])
def test_the_tables_are_what_the_code_says(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    written = script.PAGE.read_text(encoding="utf-8")
    assert written == script.render(written), f"rewrite them: python docs/{name}.py"


def test_the_tables_name_every_key_once(page):
    for section in (*SECTIONS.values(), Profile):
        for key in keys_of(section):
            assert f"| `{key}` |" in page


def test_the_contradictions_name_keys_that_exist(page):
    table = page.split("\n## Contradictions\n")[1].split("\n#")[0]
    known = {key for section in (*SECTIONS.values(), Profile) for key in keys_of(section)}
    assert known.issuperset(re.findall(r"`(?:\w+\.)?(\w+) = [^`]*`", table))


def test_each_section_whose_secret_may_go_in_clear_is_named(page):
    paragraph = page.split("\nA secret is not sent in clear")[1].split("\n\n")[0]
    allowing = {name for name, section in SECTIONS.items() if "allow_plaintext" in keys_of(section)}
    named = set(re.findall(r"`(\w+)\.url`", paragraph))
    assert {name for name, section in SECTIONS.items() if secrets_of(section)} == allowing | named


def test_the_rights_on_kafka_are_those_with_which_the_daemon_is_tried_out(page):
    table = page.split("### Rights on Kafka\n")[1].split("\n#")[0]
    listed = Counter(re.findall(r"^\|[^|]*\| `(\w+)` \|", table, re.MULTILINE))
    # Two topics are in one row.
    needed = Counter({operation.name: len(names) for operation, names in grouped(rights_of("whole")).items()})
    assert listed == needed


def grouped(rights):
    """Kinds of resources by operation."""
    found = {}
    for kind, _, operation in rights:
        found.setdefault(operation, set()).add(kind)
    return found


def table_of_redis(heading):
    """Return the rows of the table whose heading begins with a cell."""
    return re.search(rf"^\| {heading} \|.*\n(?:\|.*\n)+", REDIS, re.MULTILINE)[0]


def test_every_kind_of_key_is_listed():
    listed = re.findall(r"^\| `\{\.\.\}(\w)`", table_of_redis("key"), re.MULTILINE)
    assert set(listed) == {letter.decode() for letter in KINDS} | {"h"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tuning.md", "{claim}, for two and a half lifetimes: {mean} |"),
        ("redis.md", "a claim takes {claim} bytes on Redis 7.0"),
        ("deployment.md", "| {claim} bytes for each pair that was published, for two to three times `retention`"),
        ("deployment.md", "in the mean {mean} bytes for each pair"),
    ],
)
def test_every_page_states_the_memory_of_a_claim_that_tune_forecasts(name, text):
    stated = text.format(claim=CLAIM_BYTES, mean=round(CLAIM_BYTES * CLAIM_LIFETIMES))
    assert stated in (DOCS / name).read_text(encoding="utf-8")


def test_the_rights_on_redis_are_those_that_the_check_tries():
    granted = {rule[1:] for rule in redis_sets.acl_line("daemon") if rule[0] == "+"}
    probed = sorted(probe.split()[0] for probe in (*PROBES, *REBUILD_PROBES))
    assert sorted(granted - {"info", "evalsha", "script|load"}) == probed
