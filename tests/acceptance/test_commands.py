"""The commands as a user types them: what they print, what they write, with which code they end."""

import contextlib
import csv
import json
import subprocess
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from tests import servers
from tests.daemons import Installation, streamdedup

SAMPLE = Path(str(resources.files("streamdedup"))) / "sample"


def rows(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


def expected_sample_pairs(profile: str) -> list[tuple[str, str]]:
    with (SAMPLE / "expected_pairs.tsv").open(encoding="utf-8") as file:
        lines = [row for row in csv.reader(file, delimiter="\t") if row and row[0] == profile]
    return sorted(tuple(sorted(row[1:3])) for row in lines)


def story(name: str, number: int) -> str:
    return " ".join(f"{name}{number}x{word}" for word in range(8))


class TestStopShingles:
    @pytest.fixture
    def paywall(self):
        """Articles of two sources and of none; 30 of the smaller source have a notice, two others are copies."""
        notice = " ".join(f"notice{word}" for word in range(80))
        texts = [(f"paid/{at}", f"{story('paid', at)} {notice if at < 30 else ''}", "paid") for at in range(100)]
        texts += [(f"free/{at}", f"{story('free', at)} {story('more', at)}", "free") for at in range(900)]
        texts += [("free/copy", f"{story('free', 0)} {story('more', 0)} again", "free")]
        texts += [(f"none/{at}", story("none", at), None) for at in range(9)]
        return [{"id": one, "text": text} | ({"source": source} if source else {}) for one, text, source in texts]

    def test_a_notice_of_one_source_is_learnt_within_it_and_makes_no_pairs_then(self, tmp_path, paywall):
        corpus, config = tmp_path / "news.jsonl", tmp_path / "streamdedup.toml"
        corpus.write_text("\n".join(map(json.dumps, paywall)), encoding="utf-8")
        config.write_text(
            '[kafka]\nbootstrap_servers = "h:1"\n[redis]\nurl = "redis://h"\n[profiles.articles]\n'
            'topics = ["news"]\nstop_shingles = "boilerplate.txt"\n',
            encoding="utf-8",
        )
        learnt = streamdedup("stop-shingles", corpus)
        assert learnt.returncode == 0, learnt.stderr
        (tmp_path / "boilerplate.txt").write_text(learnt.stdout, encoding="utf-8")
        first, passage = learnt.stderr.splitlines()
        assert first == (
            "78 stop shingles: 0 in at least 0.05 of all 1,010 different documents, 78 only in at least this share "
            "of the documents of one of 2 sources"
        )
        assert passage.startswith("in 30 documents: notice0 notice1 ")
        assert len(rows(streamdedup("scan", corpus).stdout)) == 436
        without = streamdedup("scan", corpus, "--config", config)
        assert [row[:2] for row in rows(without.stdout)] == [["free/0", "free/copy"]], without.stderr

    def test_the_field_or_column_of_the_source_can_be_named(self, tmp_path, paywall):
        documents = [{"id": one["id"], "text": one["text"], "outlet": one.get("source", "")} for one in paywall]
        lines, table = tmp_path / "news.jsonl", tmp_path / "news.csv"
        lines.write_text("\n".join(map(json.dumps, documents)), encoding="utf-8")
        with table.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["id", "text", "outlet"])
            writer.writeheader()
            writer.writerows(documents)
        for corpus, option in ((lines, "--source-field"), (table, "--source-column")):
            done = streamdedup("stop-shingles", corpus, option, "outlet")
            assert "in 30 documents: notice0 notice1 " in done.stderr, done.stderr

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ([], "name files, or --from-topic"),
            (["-", "--from-topic"], "--from-topic reads no files: -"),
            (["--from-topic"], "--from-topic needs --config, with brokers and a profile"),
        ],
    )
    def test_documents_come_from_files_or_from_topics(self, arguments, text):
        done = streamdedup("stop-shingles", *arguments, text="")
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"streamdedup: {text}\n")

    @pytest.mark.parametrize(("field", "what"), [("id", "; files and lines are the ids"), ("source", "")])
    @pytest.mark.parametrize(("suffix", "form"), [("jsonl", '{{"{0}": "{1}", "text": "one {1}"}}'), ("txt", "one {1}")])
    def test_a_field_that_is_named_and_that_no_document_has_is_told(self, tmp_path, field, what, suffix, form):
        corpus = tmp_path / f"news.{suffix}"
        corpus.write_text("\n".join(form.format(field, value) for value in "abc"), encoding="utf-8")
        for name in ("misspelt", field):
            done = streamdedup("stop-shingles", corpus, f"--{field}-field", name)
            told = f"streamdedup: {corpus}: no document has --{field}-field {name}{what}"
            assert (told in done.stderr.splitlines()) == (name == "misspelt" or suffix == "txt"), done.stderr

    def test_nothing_is_learnt_from_no_document(self):
        done = streamdedup("stop-shingles", "-", text="")
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "streamdedup: -: no document to learn from\n")


class TestScan:
    @pytest.mark.parametrize("profile", ["articles", "reviews"])
    def test_it_finds_exactly_the_copies_of_the_sample(self, profile):
        done = streamdedup("scan", SAMPLE / f"{profile}.jsonl", "--profile", profile)
        assert done.returncode == 0, done.stderr
        assert [tuple(row[:2]) for row in rows(done.stdout)] == expected_sample_pairs(profile)
        assert "pairs with similarity of at least 0.8" in done.stderr
        assert "left out: no documents" in done.stderr

    def test_pairs_are_sorted_and_on_request_json_lines(self, tmp_path):
        corpus = tmp_path / "texts.txt"
        corpus.write_text("one two three four five six\n" * 3, encoding="utf-8")
        done = streamdedup("scan", corpus, "--json")
        assert done.returncode == 0, done.stderr
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert [(pair["id1"], pair["id2"], pair["similarity"]) for pair in found] == [
            ("texts.txt:1", "texts.txt:2", 1.0),
            ("texts.txt:1", "texts.txt:3", 1.0),
            ("texts.txt:2", "texts.txt:3", 1.0),
        ]


@pytest.fixture
def installation(tmp_path, kafka, redis_client, redis_url, new_group):
    names = {kind: servers.fresh_name(kind) for kind in ("articles", "duplicates")}
    return Installation(
        tmp_path,
        kafka=kafka,
        redis=redis_url,
        topic=names["articles"],
        duplicates=names["duplicates"],
        group=new_group(),
        shingle_size=3,
        threshold=0.8,
    )


def topic_settings(bootstrap: str, topic: str, names: Iterable[str]) -> dict[str, str]:
    """Return settings of a topic by name."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict.fromkeys(names))
    with contextlib.closing(servers.admin_client(bootstrap)) as admin:
        described = admin.describe_configs([resource], config_filter="all")["topic"][topic]
    return {name: described[name]["value"] for name in names}


def test_output_topics_are_created_for_the_largest_message_of_the_settings(installation):
    config = ("--config", installation.config, "--set", "kafka.max_message_bytes=2MiB")
    assert streamdedup("topics", "create", *config).returncode == 0
    for topic, limit in ((installation.topic, 1_048_588), (installation.duplicates, 2 * 1024 * 1024)):
        assert topic_settings(installation.kafka, topic, ["max.message.bytes"]) == {"max.message.bytes": str(limit)}


def test_topics_produce_run_and_tail_work_together(installation):
    config = ("--config", installation.config)
    created = streamdedup("topics", "create", *config, "--partitions", "2")
    assert created.returncode == 0, created.stderr
    assert created.stdout.count("created") == 3
    again = streamdedup("topics", "create", *config, "--partitions", "3")
    assert again.stdout.count("exists with 2 partitions instead of 3, unchanged\n") == 3
    wanted = {"retention.ms": "-1", "cleanup.policy": "delete", "max.message.bytes": "1048588"}
    assert topic_settings(installation.kafka, f"{installation.duplicates}.dlq", wanted) == wanted
    sent = streamdedup("produce", SAMPLE / "articles.jsonl", "--topic", installation.topic, *config)
    assert sent.returncode == 0, sent.stderr
    count = len((SAMPLE / "articles.jsonl").read_bytes().splitlines())
    assert f"{count} records sent" in sent.stderr
    installation.run_until_committed(count, **{"profiles.articles.containment_threshold": "0.8"})
    assert installation.pairs() == expected_sample_pairs("articles")
    alerts = len(servers.read_topic(installation.kafka, installation.duplicates))
    shown = streamdedup("tail", *config, "--from-beginning", "--json", "--limit", alerts)
    assert shown.returncode == 0, shown.stderr
    pairs = [(a["document"]["id"], m["id"]) for a in map(json.loads, shown.stdout.splitlines()) for m in a["matches"]]
    assert sorted(tuple(sorted(pair)) for pair in pairs) == expected_sample_pairs("articles")


class TestStopShinglesOfTopics:
    @pytest.fixture
    def topic(self, installation):
        """A topic of two partitions: 300 articles of two sources, of which the last 100 of one have a notice."""
        notice = " ".join(f"notice{word}" for word in range(80))
        servers.create_topics(installation.kafka, [installation.topic], 2)
        documents = [
            {"id": f"d{at}", "text": f"{story('w', at)} {notice if at >= 200 else ''}", "source": f"s{at >= 150}"}
            for at in range(300)
        ]
        values = [json.dumps(one).encode() for one in documents]
        for partition in range(2):
            servers.produce(installation.kafka, installation.topic, values[partition::2], partition=partition)
        return installation

    def learn(self, installation, *options) -> subprocess.CompletedProcess[str]:
        return streamdedup("stop-shingles", "--from-topic", "--config", installation.config, *options)

    def test_the_boilerplate_of_a_topic_is_that_of_a_file_with_the_same_documents(self, topic, tmp_path):
        garbage = [b"{}", b"not json", json.dumps({"id": "d0", "op": "delete"}).encode()]
        servers.produce(topic.kafka, topic.topic, garbage, partition=0)
        with topic.config.open("a", encoding="utf-8") as file:
            file.write('stop_shingles = "boilerplate.txt"\n')  # does not exist yet
        done = self.learn(topic)
        assert done.returncode == 0, done.stderr
        assert "passed over: 3 records that are no whole documents" in done.stderr
        assert "in 100 documents: notice0 notice1 " in done.stderr
        records = [record.value.decode() for record in servers.read_topic(topic.kafka, topic.topic)]
        corpus = tmp_path / "news.jsonl"
        corpus.write_text("\n".join(line for line in records if '"text"' in line), encoding="utf-8")
        assert done.stdout == streamdedup("stop-shingles", corpus, "--config", topic.config).stdout
        assert topic.committed_count() == 0
