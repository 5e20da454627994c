"""The last release: today's alerts are valid by its schemas, and its index is continued or refused by name."""

import json

import pytest
from jsonschema import Draft202012Validator

from streamdedup.errors import IndexMismatch
from streamdedup.index.redis.buckets import LAYOUTS
from streamdedup.wire import schema
from tests import released

LAST = released.last()


def test_an_alert_is_valid_by_the_schema_of_the_last_release():
    validator = Draft202012Validator(json.loads((LAST / "alert.schema.json").read_text(encoding="utf-8")))
    for alert in json.loads(schema("alert"))["examples"]:
        validator.validate(alert)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_index_of_the_last_release_is_continued_or_refused_by_name(redis_client, redis_url, layout):
    released.restore(redis_client, json.loads((LAST / f"{layout}.json").read_text(encoding="utf-8")))
    refusal = None
    try:
        with released.opened(redis_url, layout) as stored:
            state = stored.index.partition_states([released.PARTITION])[released.PARTITION]
            result = released.insert(stored, {"later": (f"{released.TEXT} later", "hill")}, 3)
    except IndexMismatch as error:
        refusal = str(error)
    if refusal is not None:
        assert "streamdedup index rebuild" in refusal
        return
    assert (state.high_water_mark, state.least_announced) == (3, "0000000000000001")
    (detection,) = result.detections
    assert {match.id for match in detection.matches} == {"first", "copy"}
