import importlib.util
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from streamdedup.settings import Profile, Settings
from streamdedup.settings.base import keys_of
from streamdedup.settings.schema import SECTIONS
from streamdedup.settings.sources import CONFIG_VARIABLE, TEST_PREFIX
from tests.guarded import rights_of

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


@pytest.fixture(scope="module")
def page():
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("settings_tables", PAGE.parent / "settings_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_what_the_code_says(page, script):
    assert page == script.render(page), "rewrite them: python docs/settings_tables.py"


def test_the_tables_name_every_key_once(page):
    for section in (*SECTIONS.values(), Profile):
        for key in keys_of(section):
            assert f"| `{key}` |" in page


def test_the_smallest_file_of_the_page_is_valid(page):
    example = re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1]
    loaded = Settings.load(None, tomllib.loads(example), {})
    assert list(loaded.profiles) == ["articles"]


def test_every_variable_of_the_page_is_known(page):
    for name, value in re.findall(r"`(STREAMDEDUP_[A-Z_]+__[A-Z_]+)=([^`]+)`", page):
        example = {"kafka.bootstrap_servers": "h:1", "redis.url": "redis://h", "profiles.articles.topics": "t"}
        assert Settings.load(None, example, {name: value})
    for name in (CONFIG_VARIABLE, TEST_PREFIX):
        assert f"`{name}`" in page


def test_every_key_in_the_table_of_contradictions_exists(page):
    keys = {key for section in (*SECTIONS.values(), Profile) for key in keys_of(section)}
    table = page.partition("## Contradictions")[2]
    named = [name.rpartition(".")[2] for row in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
             for name in re.findall(r"`([a-z_.]+)`", row)]  # fmt: skip
    assert named
    assert set(named) <= keys


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
