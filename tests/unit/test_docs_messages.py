"""docs/messages.md agrees with the code: examples, fields, codes, headers and the outcome of bad input."""

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from streamdedup.position import Position
from streamdedup.wire import Decoder, ErrorCode, decode_alert, schema
from streamdedup.wire.dead_letters import PREFIX
from tests.bad_input import ROWS

PAGE = (Path(__file__).parents[2] / "docs" / "messages.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```json (\S+)\n(.*?)```", PAGE, re.DOTALL)
NAMES = ("document", "alert", "dead-letter")


def section(title):
    return PAGE.split(f"# {title}\n")[1].split("\n#")[0]


def first_column(text):
    return [row.split("|")[1].strip().strip("`") for row in text.splitlines() if row.startswith("| `")]


def test_every_kind_of_message_has_an_example():
    assert {name for name, _ in EXAMPLES} == set(NAMES)


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_an_example_of_the_page_is_valid(name, example):
    validator = Draft202012Validator(json.loads(schema(name)), format_checker=Draft202012Validator.FORMAT_CHECKER)
    validator.validate(json.loads(example))


@pytest.mark.parametrize("example", [example for name, example in EXAMPLES if name == "document"])
def test_a_document_of_the_page_is_decoded(example):
    Decoder().decode(Position("articles", 0, 0), 0, None, example.encode())


@pytest.mark.parametrize("example", [example for name, example in EXAMPLES if name == "alert"])
def test_an_alert_of_the_page_is_decoded(example):
    assert decode_alert(example.encode()).matches


def test_the_table_of_codes_is_complete():
    assert first_column(section("Dead letters, by code")) == [str(code) for code in ErrorCode]


def test_the_table_of_skip_reasons_is_complete():
    reasons = {"empty", "too_few_words", "too_short", "redelivered", "superseded"}
    assert set(first_column(section("Skipped, counted by reason"))) == reasons


def test_the_tables_of_headers_are_complete():
    listed = set()
    for row in first_column(section("Dead letters")):
        names = row.replace("`", "").split(", ")
        stem = names[0].removeprefix(PREFIX)
        listed |= {stem} | {name.removeprefix(".") for name in names[1:]}
    assert {PREFIX + name for name in listed} == set(json.loads(schema("dead-letter"))["properties"])


def test_the_fields_of_a_document_are_all_listed():
    assert first_column(section("Documents")) == list(json.loads(schema("document"))["properties"])


def test_every_outcome_of_a_row_is_a_known_code():
    codes = re.findall(r"dead letter `(\w+)`", PAGE)
    assert codes
    assert set(codes) <= {str(code) for code in ErrorCode}


def test_a_row_has_examples_and_they_have_the_outcome_that_the_row_promises():
    promised = {}
    for line in section("Surprising input").splitlines():
        if line.startswith("| `"):
            name, *_, outcome = (cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|")))
            promised[name.strip("`")] = outcome
    found = {
        name: re.search(r"(processed|deleted|skipped|dead letter)(?:,? `(\w+)`)?", text)
        for name, text in promised.items()
    }
    assert {name: ":".join(filter(None, match.groups())) for name, match in found.items()} == {
        name: row.outcome for name, row in ROWS.items() if name in promised
    }
    assert len(promised) > 12
