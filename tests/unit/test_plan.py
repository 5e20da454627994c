"""``streamdedup plan``: its arithmetic on made-up machines, its files, its errors, and the tables of the pages."""

import importlib.util
import json
import math
from dataclasses import fields, replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from streamdedup.cli.main import app
from streamdedup.errors import SettingsError
from streamdedup.tuning import plan
from streamdedup.tuning.machine import (
    LayoutCosts,
    Machine,
    MeasuredProfile,
    MeasuredSample,
    StageCosts,
    decode_machine,
    encode_machine,
)
from streamdedup.tuning.plan import Demand, index_bytes, plan_of, shards_of
from tests.thoroughness import examples

DOCS = Path(__file__).parents[2] / "docs"
DAY_S = 86_400.0
LAYOUTS = ("sets", "packed")


def a_machine(**changes: object) -> Machine:
    """A machine with round numbers: 8 bands; entries of 700 bytes, buckets of 100 and 10, claims of 36."""
    costs = LayoutCosts(
        index_us=20.0,
        redis_us=40.0,
        slot_us=30.0,
        slot_redis_us=10.0,
        sent_bytes=900.0,
        received_bytes=300.0,
        fixed_bytes=(1_000.0, 0.0, 0.0, 0.0),
        each_bytes=(700.0, 100.0, 8.0, 36.0),
    )
    packed = msgspec.structs.replace(costs, redis_us=60.0, each_bytes=(700.0, 10.0, 8.0, 36.0))
    machine = Machine(
        format=1,
        measured_at="2026-01-01T00:00:00+00:00",
        processor="processor",
        cores=2,
        versions={"streamdedup": "1", "Python": "3", "server": "Redis 7"},
        profile=MeasuredProfile(
            namespace="sd:articles",
            shingles="word 3",
            bands=8,
            rows=4,
            bucket_layout="sets",
            retention_s=30 * DAY_S,
            retention_slack_s=DAY_S,
        ),
        sample=MeasuredSample(
            name="articles.jsonl",
            documents=1_000,
            document_bytes=1_000.0,
            alerts_share=0.1,
            matches=2.0,
            alert_bytes=500.0,
            buckets=7.5,
            members=8.0,
        ),
        stages=StageCosts(decode_us=4.0, prepare_us=20.0, alert_us=10.0, lookup_us=200.0, lookup_redis_us=100.0),
        layouts={"sets": costs, "packed": packed},
    )
    return msgspec.structs.replace(machine, **changes)


MACHINE = a_machine()
DEMAND = Demand(
    documents_per_day=864_000.0,
    retention_s=30 * DAY_S,
    retention_slack_s=DAY_S,
    document_bytes=1_000.0,
    alerts_share=0.1,
    lookups_per_s=0.0,
    peak=2.0,
    server_bytes=128e9,
)

amounts = st.floats(0.0, 1e4)
parts = st.tuples(*[amounts] * 4)
layout_costs = st.builds(
    LayoutCosts,
    index_us=amounts,
    redis_us=amounts,
    slot_us=amounts,
    slot_redis_us=amounts,
    sent_bytes=amounts,
    received_bytes=amounts,
    fixed_bytes=parts,
    each_bytes=parts,
)
samples = st.builds(
    MeasuredSample,
    name=st.just("made up"),
    documents=st.just(1),
    document_bytes=amounts,
    alerts_share=st.floats(0, 1),
    matches=amounts,
    alert_bytes=amounts,
    buckets=st.floats(0, 10),
    members=st.floats(0, 10),
)
stages = st.builds(
    StageCosts, **dict.fromkeys(("decode_us", "prepare_us", "alert_us", "lookup_us", "lookup_redis_us"), amounts)
)
machines = st.builds(
    lambda sets, packed, sample, stage: a_machine(
        layouts={"sets": sets, "packed": packed}, sample=sample, stages=stage
    ),
    *(layout_costs, layout_costs, samples, stages),
)
demands = st.builds(
    Demand,
    documents_per_day=st.floats(0, 9).map(lambda exponent: 10**exponent),
    retention_s=st.floats(1.0, 100 * DAY_S),
    retention_slack_s=st.floats(0.0, 10 * DAY_S),
    document_bytes=st.floats(1.0, 1e6),
    alerts_share=st.floats(0, 1),
    lookups_per_s=st.floats(0, 1e4),
    peak=st.floats(1.0, 10.0),
    server_bytes=st.floats(1e8, 1e12),
)


def numbers_of(planned):
    """Return all numbers of a plan by name."""
    found = {
        field.name: getattr(planned, field.name)
        for field in fields(planned)
        if isinstance(getattr(planned, field.name), int | float)
    }
    for layout, one in planned.layouts.items():
        found |= {
            f"{layout} memory": one.memory_bytes,
            f"{layout} masters": one.masters.count,
            f"{layout} shards": one.masters.shards,
            f"{layout} daemons": one.daemons,
            f"{layout} partitions": one.partitions,
            f"{layout} network": planned.redis_bytes_per_s[layout],
        }
    return found


class TestArithmetic:
    def test_processes_and_servers_of_a_small_stream(self):
        planned = plan_of(MACHINE, DEMAND)
        sets = planned.layouts["sets"]
        # 10 documents/s in the mean, 20 in the busiest hour; 9 + 4 + 20 + 20 + 0.1 x 10 + 40 microseconds each.
        assert planned.demand.documents_per_s == 20.0
        assert sets.document_us == pytest.approx(94.0)
        assert (sets.daemons, sets.partitions) == (1, 4)
        assert (sets.masters.count, sets.masters.shards, sets.masters.share) == (1, 1, 1.0)
        assert sets.limiting_stage.name == "Redis"
        assert planned.replicas == 0

    def test_memory_is_that_of_entries_buckets_members_and_claims_with_their_lifetimes(self):
        kept = 864_000 * 31
        claims = kept * 0.1 * 2 * 2.5 * 36
        sets = 1_000 + kept * (700 + 7.5 * 100 + 0.5 * 8) + claims
        assert index_bytes(MACHINE, DEMAND, "sets") == pytest.approx(sets)
        packed = 1_000 + kept * (700 + 1.5 * (7.5 * 10 + 0.5 * 8)) + claims
        assert index_bytes(MACHINE, DEMAND, "packed") == pytest.approx(packed)

    def test_network_and_topics(self):
        planned = plan_of(MACHINE, DEMAND)
        assert planned.input_bytes_per_s == 20 * 1_000
        assert planned.alert_bytes_per_s == pytest.approx(20 * 0.1 * 500)
        assert planned.copied_bytes_per_s == pytest.approx(2 * 20 * 1_050)
        assert planned.redis_bytes_per_s == {"sets": 20 * 1_200, "packed": 20 * 1_200}
        assert planned.input_topic_bytes == pytest.approx(864_000 * 31 * 1_000 * 3)
        assert planned.duplicates_topic_bytes == pytest.approx(864_000 * 31 * 50 * 3)
        assert planned.dead_letter_topic_bytes == pytest.approx(864_000 * 365 * 0.001 * 1_700 * 3)

    def test_a_fast_stream_needs_daemons_by_time_and_partitions_by_daemons(self):
        planned = plan_of(MACHINE, replace(DEMAND, documents_per_day=864_000_000.0, server_bytes=1e15))
        sets = planned.layouts["sets"]
        # 20,000 documents/s of 40 microseconds are 0.8 cores of Redis: two masters at half load, more for uneven slots.
        assert sets.masters.count > 1
        assert sets.masters.limit == "processor"
        assert 20_000 * sets.masters.share * sets.stages[-1].us / 1e6 <= plan.LOAD
        assert sets.daemons == math.ceil(20_000 * sets.document_us / 1e6 / plan.LOAD)
        assert sets.partitions == 4 * sets.daemons

    def test_large_records_need_partitions_by_bytes(self):
        planned = plan_of(MACHINE, replace(DEMAND, document_bytes=5e6))
        assert planned.layouts["sets"].partitions == 20

    def test_memory_decides_on_the_masters_of_a_long_retention_and_the_fullest_one_has_room(self):
        demand = replace(DEMAND, retention_s=3_000 * DAY_S, server_bytes=64e9)
        for one in plan_of(MACHINE, demand).layouts.values():
            assert one.masters.limit == "memory"
            assert one.masters.share * one.memory_bytes <= plan.MEMORY_FILL * 64e9
            # With one master fewer the fullest one has none.
            assert one.masters.count < 200
            fewer = one.masters.count - 1
            share = plan.fullest_share("sd:articles", 8, shards_of(8, fewer), fewer)
            assert share * one.memory_bytes > plan.MEMORY_FILL * 64e9

    def test_more_masters_than_a_cluster_can_have_are_counted_evenly(self):
        demand = replace(DEMAND, documents_per_day=8.64e7, server_bytes=1e8)
        masters = plan_of(MACHINE, demand).layouts["sets"].masters
        assert masters.count == math.ceil(index_bytes(MACHINE, demand, "sets") / (plan.MEMORY_FILL * 1e8)) > 16_384
        assert masters.share == 1 / masters.count

    def test_look_ups_need_replicas_and_time_of_redis(self):
        planned = plan_of(MACHINE, replace(DEMAND, lookups_per_s=10_000.0))
        assert planned.replicas == math.ceil(10_000 * (plan.HTTP_US + 300) / 1e6 / plan.LOAD)
        assert planned.layouts["sets"].masters.count > 1

    @pytest.mark.parametrize("masters", [1, 2, 3, 7, 100, 1_000])
    def test_each_master_has_enough_slots(self, masters):
        shards = shards_of(9, masters)
        assert masters == shards == 1 or 9 * shards >= plan.SLOTS_PER_MASTER * masters
        assert shards.bit_count() == 1

    def test_the_times_of_one_slot_grow_with_slots_up_to_one_for_each_document(self):
        costs = MACHINE.layouts["sets"]
        assert plan._index_times(MACHINE, costs, 1) == (20.0, 40.0)
        # A chunk uses all of few slots, and of very many slots one for each document.
        assert plan._index_times(MACHINE, costs, 2) == pytest.approx((20 + 8 / 1_000 * 30, 40 + 8 / 1_000 * 10))
        index_us, _ = plan._index_times(MACHINE, costs, 4_096)
        assert 20 + 8 * 0.85 * 30 < index_us < 20 + 8 * 30

    def test_the_time_of_the_kafka_client_is_about_that_of_the_bare_loop_of_the_page(self):
        page = (DOCS / "performance.md").read_text(encoding="utf-8")
        processes = page.partition("<!-- bench: end_to_end.processes -->")[2].partition("<!-- end")[0]
        (bare,) = [line for line in processes.splitlines() if line.startswith("| bare loop")]
        # A new measurement of the page may differ a little.
        assert 0.5 <= float(bare.split("|")[3]) / plan.KAFKA_CLIENT_US <= 2


class TestMonotone:
    @settings(max_examples=examples(150), deadline=None)
    @given(machine=machines, demand=demands, factor=st.floats(1.0, 100.0))
    def test_no_number_falls_when_there_are_more_documents(self, machine, demand, factor):
        more = replace(demand, documents_per_day=demand.documents_per_day * factor)
        few, many = numbers_of(plan_of(machine, demand)), numbers_of(plan_of(machine, more))
        assert {name: (few[name], many[name]) for name in few if many[name] < few[name] * (1 - 1e-9)} == {}

    @settings(max_examples=examples(150), deadline=None)
    @given(machine=machines, demand=demands, factor=st.floats(1.0, 100.0))
    def test_no_number_falls_with_a_longer_retention(self, machine, demand, factor):
        longer = replace(demand, retention_s=demand.retention_s * factor)
        before, after = numbers_of(plan_of(machine, demand)), numbers_of(plan_of(machine, longer))
        assert {name: (before[name], after[name]) for name in before if after[name] < before[name] * (1 - 1e-9)} == {}

    @settings(max_examples=examples(50), deadline=None)
    @given(machine=machines, demand=demands)
    def test_the_fullest_master_has_room_and_time(self, machine, demand):
        for one in plan_of(machine, demand).layouts.values():
            assert one.masters.share * one.memory_bytes <= plan.MEMORY_FILL * demand.server_bytes * (1 + 1e-9)
            redis_us = (
                demand.documents_per_s * one.stages[-1].us + demand.lookups_per_s * machine.stages.lookup_redis_us
            )
            assert one.masters.share * redis_us / 1e6 <= plan.LOAD * (1 + 1e-9)


@pytest.fixture
def measured(tmp_path):
    path = tmp_path / "machine.json"
    path.write_bytes(encode_machine(MACHINE))
    return path


def invoke(*arguments):
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


class TestFile:
    def test_a_saved_machine_is_read_again(self):
        assert decode_machine(encode_machine(MACHINE), "file") == MACHINE

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            (lambda value: value.pop("stages"), "missing required field `stages`"),
            (lambda value: value.update(format=2), "Invalid enum value 2"),
            (lambda value: value["stages"].update(prepare_us=-1), "`float` >= 0"),
            (lambda value: value["stages"].update(prepare_us="much"), "Expected `float`"),
            (lambda value: value["sample"].update(alerts_share=2), "`float` <= 1"),
            (lambda value: value["layouts"].pop("packed"), "layouts are sets and packed"),
            (lambda value: value.update(more=1), "unknown field `more`"),
        ],
    )
    def test_another_file_is_refused_with_the_reason(self, change, text):
        value = json.loads(encode_machine(MACHINE))
        change(value)
        with pytest.raises(SettingsError) as caught:
            decode_machine(json.dumps(value).encode(), "here.json")
        assert str(caught.value).startswith("here.json: not a measurement of streamdedup plan --save: ")
        assert text in str(caught.value)

    def test_a_file_that_is_no_json_or_not_there_is_named(self, tmp_path):
        path = tmp_path / "machine.json"
        for content, text in ((None, "cannot be read: No such file"), (b"{", "not a measurement"), (b"\xff", "UTF-8")):
            if content is not None:
                path.write_bytes(content)
            result = invoke("--measured", path, "--documents-per-day", 1_000)
            assert result.exit_code != 0
            assert isinstance(result.exception, SettingsError)
            assert f"--measured {path}" in str(result.exception)
            assert text in str(result.exception)


class TestCommand:
    def test_each_number_has_its_origin(self, measured):
        result = invoke("--measured", measured, "--documents-per-day", 864_000)
        assert result.exit_code == 0, result.output
        for text in (
            "daemons",
            "Redis masters",
            "39.4 GB",
            "the limiting stage",
            "busy for at most 50%",
            "serve replicas",
        ):
            assert text in result.stdout
        lines = [line for line in result.stdout.splitlines() if line.startswith("  ")]
        assert len(lines) > 25
        # Name, value and origin are at least two blanks apart.
        assert all(len([part for part in line.strip().split("  ") if part.strip()]) >= 3 for line in lines)

    def test_json_has_the_same_numbers(self, measured):
        result = invoke("--measured", measured, "--documents-per-day", 864_000, "--json")
        numbers = json.loads(result.stdout)["numbers"]
        planned = plan_of(MACHINE, DEMAND)
        assert numbers["daemons"]["value"] == planned.layouts["sets"].daemons
        assert numbers["memory_packed"]["value"] == planned.layouts["packed"].memory_bytes
        assert numbers["documents_per_s"] == {
            "value": 20.0,
            "unit": "/s",
            "origin": "documents a day / 86,400 s x peak 2",
        }
        assert all(number["origin"] for number in numbers.values())
        assert json.loads(result.stdout)["limiting_stage"] == "Redis"

    def test_options_replace_the_numbers_of_the_sample(self, measured):
        options = ["--retention", "1d", "--document-bytes", "2KiB", "--alerts-share", 0, "--peak", 1]
        options += ["--lookups-per-second", 100, "--redis-memory", "8GiB"]
        result = invoke("--measured", measured, "--documents-per-day", 864_000, "--json", *options)
        numbers = {key: one["value"] for key, one in json.loads(result.stdout)["numbers"].items()}
        assert numbers["documents_kept"] == 864_000 * 2
        assert numbers["kafka_to_daemons"] == 10 * 2_048
        assert numbers["duplicates_topic"] == numbers["daemons_to_kafka"] == 0
        assert numbers["serve_replicas"] == 1

    @pytest.mark.parametrize(("size", "is_warned"), [("500", True), ("501", False), ("1999", False), ("2000", True)])
    def test_records_of_another_size_than_those_that_were_measured_are_warned_about(self, measured, size, is_warned):
        result = invoke("--measured", measured, "--documents-per-day", 864_000, "--json", "--document-bytes", size)
        warnings = json.loads(result.stdout)["warnings"]
        assert [warning for warning in warnings if "are those of records of 1.0 kB" in warning] == warnings[:is_warned]

    def test_the_table_has_a_row_for_each_rate(self, measured):
        result = invoke("--measured", measured, "--table")
        rows = [line.strip("| ").split("|") for line in result.stdout.splitlines() if line.startswith("|")][2:]
        assert [row[0].strip() for row in rows] == ["1,000", "10,000", "100,000", "1,000,000"]
        assert "more than one Redis Cluster" in result.stdout

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ([], "how many documents arrive on a day"),
            (["--documents-per-day", 0], "--documents-per-day 0: must be at least 1"),
            (["--documents-per-day", "nan"], "--documents-per-day nan: must be at least 1"),
            (["--documents-per-day", 1e13], "at most 1e+12"),
            (
                ["--documents-per-day", 10, "--redis-memory", "1TB"],
                '--redis-memory 1TB: must be a size, such as "512KiB" or "64GB", in B, kB, MB, GB, KiB, MiB, GiB',
            ),
            (
                ["--documents-per-day", 10, "--retention", "30"],
                '--retention 30: must be a duration, such as "12h" or "30d"',
            ),
            (["--documents-per-day", 10, "--retention", "0s"], "--retention 0s: must be at least 1s"),
            (["--documents-per-day", 10, "--document-bytes", "2 apples"], "--document-bytes 2 apples: must be a size"),
            (["--documents-per-day", 10, "--document-bytes", 0], "--document-bytes 0: must be from 1 to 1,073,741,824"),
            (["--documents-per-day", 10, "--redis-memory", "1MB"], "--redis-memory 1MB: must be from 100,000,000 to"),
            (
                ["--documents-per-day", 10, "--alerts-share", 1.5],
                "--alerts-share 1.5: must be at least 0 and at most 1",
            ),
            (["--documents-per-day", 10, "--lookups-per-second", -1], "--lookups-per-second -1: must be at least 0"),
            (["--documents-per-day", 10, "--peak", 0.5], "--peak 0.5: must be at least 1"),
            (["--table", "--json"], "--table has rates of its own"),
            (["--table", "--documents-per-day", 10], "--table has rates of its own"),
        ],
    )
    def test_a_wrong_value_is_named_before_anything_is_measured(self, options, text, monkeypatch):
        monkeypatch.setattr("streamdedup.cli.plan.tune_server", None)
        result = invoke(*options)
        assert isinstance(result.exception, SettingsError), result.output
        assert text in str(result.exception)

    @pytest.mark.parametrize("option", ["--config", "--save", "--redis"])
    def test_a_file_of_measurements_and_a_measurement_exclude_each_other(self, measured, option):
        result = invoke("--measured", measured, "--documents-per-day", 10, option, "x")
        assert isinstance(result.exception, SettingsError)
        assert f"leave out {option}" in str(result.exception)
        result = invoke("articles.jsonl", "--measured", measured, "--documents-per-day", 10)
        assert "leave out FILE" in str(result.exception)


class TestPages:
    @pytest.fixture
    def script(self):
        spec = importlib.util.spec_from_file_location("plan_tables", DOCS / "plan_tables.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def test_the_pages_show_what_the_command_computes(self, script):
        for path in script.PAGES:
            page = path.read_text(encoding="utf-8")
            assert len(script.BLOCK.findall(page)) == page.count("<!-- plan: ") > 0
            assert page == script.render(page), "write it anew: python docs/plan_tables.py"

    def test_the_table_of_the_page_has_four_rates(self, script):
        page = (DOCS / "deployment.md").read_text(encoding="utf-8")
        tables = [match[0] for match in script.BLOCK.finditer(page) if "--table" in match[2]]
        assert tables
        for table in tables:
            rates = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")][2:]
            assert rates == ["1,000", "10,000", "100,000", "1,000,000"]
