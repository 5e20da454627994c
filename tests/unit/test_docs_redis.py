"""docs/redis.md agrees with the code; its rights are tried in tests/integration/test_redis_forms.py."""

import re
from pathlib import Path
from typing import get_args

import pytest
from redis.crc import key_slot

from streamdedup.index.redis.checks import PROBES, REBUILD_PROBES
from streamdedup.index.redis.keys import Keys
from streamdedup.settings.base import keys_of
from streamdedup.settings.profile import Profile
from streamdedup.settings.redis import Redis
from streamdedup.settings.schema import SECTIONS
from tests import redis_sets

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "redis.md").read_text(encoding="utf-8")
SLOTS_COUNT = 16384
#: Bands of a profile with defaults.
BANDS = 9


def rows(first_cell):
    """Return the cells of a table's rows below the heading that begins with a cell."""
    table = PAGE.split(f"\n| {first_cell} |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_ways_to_run_redis_are_those_of_the_settings():
    assert [re.findall(r"`(\w+)`", row[1])[0] for row in rows("Redis is run as")] == list(
        get_args(keys_of(Redis)["mode"].annotation)
    )


def test_every_key_named_exists():
    keys = {f"{name}.{key}" for name, model in SECTIONS.items() for key in keys_of(model)}
    named = set(re.findall(r"`((?:kafka|redis|service)\.[a-z_]+)`", PAGE))
    assert len(named) > 5
    assert named <= keys


@pytest.mark.parametrize("row", rows("masters"), ids=lambda row: f"{row[0]} masters")
def test_the_share_of_the_fullest_master_is_that_of_the_keys(row):
    masters, *shares, even = row
    headings = re.search(r"^\| masters \| `shards = 1` \| (\d+) \| (\d+) \| (\d+) \| even \|$", PAGE, re.MULTILINE)
    assert float(even) == round(1 / int(masters), 2)
    for shards, share in zip([1, *map(int, headings.groups())], shares, strict=True):
        keys = Keys("sd:articles", BANDS * shards)
        owners = [key_slot(keys.fingerprint if slot == 0 else keys.guard(slot)) for slot in range(BANDS * shards)]
        counts = [0] * int(masters)
        for owner in owners:
            counts[owner * int(masters) // SLOTS_COUNT] += 1
        assert f"{max(counts) / len(owners):.2f}" == share


def test_the_rights_of_the_page_are_those_that_the_check_tries():
    granted = {rule[1:] for rule in redis_sets.acl_line("daemon") if rule[0] == "+"}
    probed = sorted(probe.split()[0] for probe in (*PROBES, *REBUILD_PROBES))
    assert sorted(granted - {"info", "evalsha", "script|load"}) == probed


def test_the_memory_of_the_example_follows_from_that_of_a_document():
    (document_bytes,) = {
        int(text.replace(",", "")) for text in re.findall(r"article takes ([\d,]+) bytes", " ".join(PAGE.split()))
    }
    assert f"of {document_bytes:,} bytes a document" in PAGE
    defaults = keys_of(Profile)
    lifetime_s = defaults["retention"].default + defaults["retention_slack"].default
    text = " ".join(PAGE.split())
    a_second, millions, gigabytes = re.search(
        r"At (\d+) documents a second that is (\d+) million documents and (\d+) GB", text
    ).groups()
    documents_count = int(a_second) * lifetime_s
    assert f"({lifetime_s / 86_400:.0f} days with" in text
    assert round(documents_count / 1e6) == int(millions)
    assert round(documents_count * document_bytes / 1e9) == int(gigabytes)
