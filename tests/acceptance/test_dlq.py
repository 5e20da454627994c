"""Dead letters from the daemon, through ``dlq inspect``, mended settings and ``dlq replay``, to alerts."""

import json

from typer.testing import CliRunner

from streamdedup.cli import main as cli
from streamdedup.wire.dead_letters import PREFIX
from tests import servers
from tests.daemons import produce_keyed, values_of

TEXT = "the ferry to the island runs twice a day from the first week of may to the last of october "
GOOD = [("a1", TEXT), ("a2", TEXT + "each year")]
LONG = [(f"long{number}", TEXT * 4 + f"{number}") for number in range(4)]
BAD = [(b"bad1", b'{"id": "bad1", "txt": "\x1b[31mred"}'), (None, b"not json \x07 at all")]
TOTAL = len(GOOD) + len(LONG) + len(BAD)


def dlq(installation, *arguments):
    """What a command prints; it reads all dead letters of the batches that are committed."""
    servers.wait_no_transaction(installation.kafka, [f"{installation.duplicates}.dlq"])
    done = CliRunner().invoke(cli.app, ["dlq", *arguments, "--config", str(installation.config)])
    assert done.exit_code == 0, done.output
    return done.stdout


def sent_twice(installation):
    """The records that were sent twice: as they came, and as they were replayed."""
    by_value = {}
    for record in servers.read_topic(installation.kafka, installation.topic):
        by_value.setdefault(record.value, []).append(record)
    return [sorted(records, key=lambda r: r.offset) for records in by_value.values() if len(records) == 2]


def test_dead_letters_are_inspected_replayed_with_mended_settings_and_given_up_after_three_attempts(install):
    installation = install(partitions=2)
    produce_keyed(installation.kafka, installation.topic, [*values_of([*GOOD, *LONG]), *BAD])
    installation.run_until_committed(TOTAL, **{"profiles.articles.max_text_bytes": "200"})
    lines = dlq(installation, "inspect").splitlines()
    assert len(lines) == 6
    assert sum("  too_large  " in line for line in lines) == 4
    assert any("\\x1b[31mred" in line for line in lines)
    assert not any(character < " " for line in lines for character in line)
    codes = [json.loads(line)["code"] for line in dlq(installation, "inspect", "--json").splitlines()]
    assert sorted(codes) == ["not_json"] * 2 + ["too_large"] * 4

    replayed = dlq(installation, "replay", "--yes", "--from-beginning")
    assert replayed.startswith(f"replayed: 6 dead letters ({installation.topic} 6)\n")
    twice = sent_twice(installation)
    assert len(twice) == 6
    for first, later in twice:
        names = ("key", "value", "timestamp", "partition")
        assert [getattr(first, name) for name in names] == [getattr(later, name) for name in names]
        assert dict(later.headers)[f"{PREFIX}attempts"] == b"1"

    with installation.running():
        for attempt in (2, 3):
            installation.wait_committed(TOTAL + 6 + (attempt - 2) * 2)
            letters = [json.loads(line) for line in dlq(installation, "inspect", "--json").splitlines()]
            last = [one for one in letters if one["attempts"] == attempt]
            assert [one["code"] for one in last] == ["not_json"] * 2
            assert len(letters) == 6 + (attempt - 1) * 2
            replayed = dlq(installation, "replay", "--yes").splitlines()
            assert replayed[0].startswith("replayed: 2 dead letters" if attempt == 2 else "replayed: 0 dead letters")
        assert replayed[1:] == ["2 left out: failed 3 times"]
    pairs = installation.pairs()
    assert len(pairs) == len(set(pairs))
    assert {("a1", "a2"), ("long0", "long1"), ("long2", "long3")} <= set(pairs)
