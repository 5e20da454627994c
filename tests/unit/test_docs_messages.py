"""docs/messages.md agrees with the code: examples, fields, codes, headers and the outcome of bad input."""

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from streamdedup.detection.model import Skip
from streamdedup.wire import ErrorCode, schema
from streamdedup.wire.dead_letters import PREFIX
from tests.unit.test_docs import rows, section

PAGE = (Path(__file__).parents[2] / "docs" / "messages.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```json (\S+)\n(.*?)```", PAGE, re.DOTALL)


def first_column(title):
    return [row[0].strip("`") for row in rows(section(PAGE, title)) if row[0].startswith("`")]


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_an_example_of_the_page_is_valid(name, example):
    validator = Draft202012Validator(json.loads(schema(name)), format_checker=Draft202012Validator.FORMAT_CHECKER)
    validator.validate(json.loads(example))


def test_the_table_of_codes_is_complete():
    assert first_column("Dead letters, by code") == [str(code) for code in ErrorCode]


def test_the_table_of_skip_reasons_is_complete():
    assert set(first_column("Skipped, counted by reason")) == set(Skip)


def test_the_tables_of_headers_are_complete():
    listed = set()
    for row in first_column("Dead letters"):
        names = row.replace("`", "").split(", ")
        stem = names[0].removeprefix(PREFIX)
        listed |= {stem} | {name.removeprefix(".") for name in names[1:]}
    assert {PREFIX + name for name in listed} == set(json.loads(schema("dead-letter"))["properties"])


def test_the_fields_of_a_document_are_all_listed():
    assert first_column("Documents") == list(json.loads(schema("document"))["properties"])
