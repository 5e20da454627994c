"""The installed daemon with a rule of containment: copies with a paragraph added, replies, and equality with `scan`."""

import json
import random

from streamdedup.detection.model import DetectorOptions
from streamdedup.similarity.containment import ContainmentRule
from streamdedup.similarity.lsh import Banding
from streamdedup.similarity.minhash import DEFAULT_SEED
from streamdedup.text.shingles import ShingleOptions
from streamdedup.wire import decode_alert
from tests.daemons import Installation, streamdedup
from tests.made_corpus import WORDS
from tests.reference_pairs import expected_pairs

RULE = ContainmentRule(0.9, 20)
#: Bands that find all pairs of the corpus.
BANDING = Banding(35, 3)


def a_corpus(seed: int) -> list[tuple[str, str]]:
    """Texts, half of them with a copy that has a paragraph more; a greeting, also with a line more."""
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(40, 80))) for _ in range(60)]
    corpus = [(f"text-{at}", text) for at, text in enumerate(texts)]
    for at, text in enumerate(texts[::2]):
        added = " ".join(rng.choices(WORDS, k=len(text.split()) // 2))
        corpus.append((f"longer-{2 * at}", f"{text}\n\n{added}"))
    rng.shuffle(corpus)
    return [
        *corpus,
        ("greeting", "kind regards from all of us"),
        ("mail", "kind regards from all of us here tonight at sea"),
    ]


def alerted(installation: Installation) -> dict[tuple[str, str], dict[str, object]]:
    """Each alerted pair, with the fields of its match as they are in the message, and those of the alert."""
    found = {}
    for record in installation.published(installation.duplicates):
        decode_alert(record.value)
        message = json.loads(record.value)
        for match in message["matches"]:
            pair = tuple(sorted((message["document"]["id"], match["id"])))
            assert pair not in found
            found[pair] = match | {"document": message["document"]["id"], "of_alert": message}
    return found


def test_a_text_with_a_paragraph_added_is_alerted_by_containment(install, tmp_path):
    corpus = a_corpus(4)
    installation = install(3, threshold=0.8)
    installation.send(corpus)
    with installation.config.open("a", encoding="utf-8") as config:  # its last section is the profile
        config.write(f"bands = {BANDING.bands}\nrows = {BANDING.rows}\n")
    installation.run_until_committed(len(corpus), **{"profiles.articles.containment_threshold": RULE.threshold})
    found = alerted(installation)

    expected = {tuple(sorted((f"longer-{at}", f"text-{at}"))) for at in range(0, 60, 2)}
    options = DetectorOptions("articles", ShingleOptions(size=2), BANDING, 128, DEFAULT_SEED, 0.8, containment=RULE)
    assert set(found) == expected == expected_pairs(corpus, options)
    for pair, match in found.items():
        assert (match["reason"], match["containment"]) == ("containment", 1.0), pair
        assert match["similarity"] < match["of_alert"]["threshold"] == 0.8
        shorter = next(one for one in pair if one.startswith("text"))
        assert match["contained"] == ("document" if match["document"] == shorter else "match")
        assert match["of_alert"]["containment_threshold"] == RULE.threshold

    corpus_file = tmp_path / "corpus.jsonl"
    corpus_file.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in corpus), encoding="utf-8")
    options = "--config", installation.config, "--profile", "articles", "--containment-threshold", RULE.threshold
    scanned = streamdedup("scan", corpus_file, *options)
    assert scanned.returncode == 0, scanned.stderr
    rows = [line.split("\t") for line in scanned.stdout.splitlines()]
    assert [(a, b, f"{found[a, b]['similarity']:.6f}", "1.000000", "containment") for a, b in sorted(found)] == [
        tuple(row) for row in rows
    ]
    without = streamdedup("scan", corpus_file, *options[:4])
    assert (without.stdout, without.returncode) == ("", 0), without.stderr

    followed = streamdedup(
        *("tail", "--config", installation.config),
        *("--from-beginning", "--limit", 1),
    )
    assert followed.returncode == 0, followed.stderr
    assert any(f"{side} 1.0000, alerted by containment" in followed.stdout for side in ("new in old", "old in new"))
