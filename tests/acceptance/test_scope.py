"""Recipes of docs/deployment.md: the erasure of a scope, and two looks at one topic."""

import json
import re
from pathlib import Path

from tests.daemons import PATIENT, Daemon, Installation, produce_keyed, streamdedup, wait_no_members

PAGE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8")
TEXT = "the harbour lamp burns again tonight over the quiet bay of the old town"


def send(installation: Installation, documents) -> None:
    values = [(document["id"].encode(), json.dumps(document).encode()) for document in documents]
    produce_keyed(installation.kafka, installation.topic, values)


def section(title: str) -> str:
    return re.search(rf"^## {title}\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)[1]


def erase(installation: Installation, scope: str) -> None:
    """Follow the recipe of the page."""
    command = re.search(r"^streamdedup (produce .*)", section("Erase a scope"), re.MULTILINE)[1].replace("acme", scope)
    names = {"articles": installation.topic, "streamdedup.toml": installation.config}
    sent = streamdedup(*(names.get(word, word) for word in command.split()))
    # The command tells the record that is no document, and ends with 1.
    assert (sent.returncode, "1 record left out: unreadable" in sent.stderr) == (1, True), sent.stderr


def test_an_erased_scope_stays_away_after_a_rebuild_and_the_others_stay(install, redis_client):
    installation = install(2)
    with installation.config.open("a", encoding="utf-8") as config:
        config.write('scope_field = "tenant"\n')
    documents = [{"id": f"{tenant}{number}", "text": TEXT, "tenant": tenant} for tenant in "xy" for number in range(3)]
    moved = {"id": "x0", "text": TEXT, "tenant": "y"}
    with installation.running(**PATIENT):
        send(installation, [*documents, moved])
        by_key = json.dumps({"text": TEXT, "tenant": "x"}).encode()
        others = [(b"bad", b"no JSON"), (b"absent", None), (b"by-key", by_key)]
        produce_keyed(installation.kafka, installation.topic, others)
        installation.wait_committed(10)
        erase(installation, "x")
        installation.wait_committed(13)
    redis_client.flushdb()
    wait_no_members(installation.kafka, installation.group)
    rebuilt = streamdedup("index", "rebuild", "--yes", "--config", installation.config)
    assert rebuilt.returncode == 0, rebuilt.stderr
    before = installation.pairs()
    with installation.running(**PATIENT):
        send(installation, [{"id": f"later-{tenant}", "text": TEXT, "tenant": tenant} for tenant in "xy"])
        installation.wait_committed(15)
    later = [pair for pair in installation.pairs() if pair not in before]
    assert later == [("later-y", name) for name in ("x0", "y0", "y1", "y2")]


def test_two_installations_look_at_titles_and_bodies_of_one_topic(install, new_topic, new_group, redis_url):
    installation = install(2)
    outputs, daemons = {}, []
    title, other_title = "Ferry to the island runs again", "Council elects a new harbour master"
    documents = [
        {"id": "a", "title": title, "body": TEXT},
        {"id": "b", "title": title + "!", "body": "nothing of the kind was said in the office of the mayor today"},
        {"id": "c", "title": other_title, "body": TEXT},
    ]
    page = section("Two looks at one topic")
    (titles,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert 'has `bodies` in place of `titles`, `text_fields = ["body"]` and `shingle_unit = "word"`.' in page
    bodies = titles.replace("titles", "bodies").replace('["title"]', '["body"]').replace('"char"', '"word"')
    for name, text in [("titles", titles), ("bodies", bodies)]:
        duplicates = new_topic("duplicates")
        changes = {
            "localhost:9092": installation.kafka,
            "redis://localhost:6379/0": redis_url,
            '["articles"]': f'["{installation.topic}"]',
            f"duplicates-{name}": duplicates,
            f"dead-letters-{name}": new_topic("letters"),
            f"streamdedup-{name}": new_group(),
        }
        changed = text
        for old, new in changes.items():
            assert old in changed
            changed = changed.replace(old, new)
        config = installation.folder / f"{name}.toml"
        config.write_text(changed + "\n[service]\nmetrics_port = 0\n", encoding="utf-8")
        outputs[name] = duplicates
        looking = Installation.__new__(Installation)
        looking.__dict__ |= {**installation.__dict__, "config": config, "duplicates": duplicates}
        looking.group = changes[f"streamdedup-{name}"]
        daemons.append((name, looking, Daemon(looking, name, dict(PATIENT))))
    send(installation, documents)
    found = {}
    for name, looking, daemon in daemons:
        with daemon:
            looking.wait_committed(len(documents))
            assert daemon.stop() == 0
        found[name] = looking.pairs()
    assert found == {"titles": [("a", "b")], "bodies": [("a", "c")]}
