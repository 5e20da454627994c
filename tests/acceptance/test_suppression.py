"""The rules of a profile about suppressed pairs, in the installed daemon and in ``scan``, on real servers."""

import itertools
import json
from pathlib import Path

from tests import servers
from tests.daemons import Installation, produce_keyed, streamdedup
from tests.made_corpus import a_corpus, the_expected

RULES = {
    "ignore_same_source": True,
    "ignore_sources": [["daily", "evening"], ["agency", "weekly"]],
    "only_sources": ["daily", "agency", "weekly"],
    "min_shingles": 12,
}
SOURCES = ("daily", "evening", "agency", "weekly", None)


def with_sources(corpus):
    """Return documents as JSON objects; the number of a document decides its source."""
    return [{"id": name, "text": text, "source": SOURCES[at % 5]} for at, (name, text) in enumerate(corpus)]


def rules_as_toml(rules) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in rules.items())


def is_alerted(a, b) -> bool:
    """The rules in other words."""
    if any(len(set(itertools.pairwise(words))) < 12 for words in (a["text"].split(), b["text"].split())):
        return False
    pair = {a["source"], b["source"]}
    if None in pair:
        return True
    return pair not in ({"daily", "evening"}, {"agency", "weekly"}) and pair != {"evening"} and len(pair) == 2


def send(installation: Installation, documents) -> None:
    values = [(one["id"].encode(), json.dumps(one).encode()) for one in documents]
    produce_keyed(installation.kafka, installation.topic, values)


def scanned(installation: Installation, documents) -> list[tuple[str, str]]:
    """Return the pairs that ``scan`` finds with the settings of an installation."""
    corpus: Path = installation.folder / "corpus.jsonl"
    corpus.write_text("\n".join(map(json.dumps, documents)), encoding="utf-8")
    done = streamdedup("scan", corpus, "--config", installation.config)
    assert done.returncode == 0, done.stderr
    assert ", suppressed: " in done.stderr
    return sorted(tuple(sorted(line.split("\t")[:2])) for line in done.stdout.splitlines())


def test_two_daemons_alert_exactly_the_pairs_of_scan_and_count_the_others(install):
    installation = install(3, batch_records=25)
    with installation.config.open("a", encoding="utf-8") as config:
        config.write(rules_as_toml(RULES))
    documents = with_sources(a_corpus(77, 450))
    by_id = {one["id"]: one for one in documents}
    similar = the_expected([(one["id"], one["text"]) for one in documents])
    expected = [pair for pair in similar if is_alerted(*map(by_id.get, pair))]
    assert 20 < len(expected) < len(similar) - 50
    with installation.all_running("ab") as running:
        send(installation, documents)
        installation.wait_committed(len(documents))
        # A batch is counted after its commit. Both documents of a pair may find each other.
        servers.wait_until(
            lambda: (
                sum(daemon.metric("streamdedup_suppressed_total") for daemon in running) >= len(similar) - len(expected)
            ),
            what="all suppressed pairs",
        )
        shown = "".join(daemon.get("/metrics")[1] for daemon in running)
    assert installation.pairs() == expected == scanned(installation, documents)
    for rule in RULES:
        assert f'streamdedup_suppressed_total{{profile="articles",rule="{rule}"}}' in shown


def test_an_index_takes_and_drops_rules_about_sources_at_a_restart(install):
    installation = install(1)
    text = "the harbour lamp burns again tonight over the quiet bay of the old town"
    sent = [{"id": f"d{at}", "text": text, "source": "daily"} for at in range(3)]
    for at, rules in enumerate([{}, {"profiles.articles.ignore_same_source": "true"}, {}]):
        with installation.running(**rules):
            send(installation, sent[at : at + 1])
            installation.wait_committed(at + 1)
    # The second document was inserted under the rule, the third one finds both.
    assert installation.pairs() == [("d0", "d2"), ("d1", "d2")]


def test_config_check_prints_the_rules(install):
    installation = install(1)
    with installation.config.open("a", encoding="utf-8") as config:
        config.write(rules_as_toml(RULES))
    done = streamdedup("config", "check", "--config", installation.config)
    assert done.returncode == 0, done.stderr
    assert (
        'suppressed pairs: min_shingles = 12, only_sources = ["daily", "agency", "weekly"], '
        'ignore_same_source = true, ignore_sources = [["daily", "evening"], ["agency", "weekly"]]'
    ) in done.stdout
