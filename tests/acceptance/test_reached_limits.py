"""The limits for storms, as ``scan``, ``evaluate`` and ``tune`` name them when documents reach them."""

import json
import re
from pathlib import Path

import pytest

from tests.daemons import streamdedup

SERVERS = '[kafka]\nbootstrap_servers = "localhost:9092"\n[redis]\nurl = "redis://localhost:6379/0"\n'
#: Texts that share boilerplate, so that all are near-duplicates of each other, and limits that they reach.
TEXTS, LIMIT = 160, 100
LIMITS = {"bucket_cap": LIMIT, "max_candidates": LIMIT}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("limits") / "texts.jsonl"
    boilerplate = " ".join(f"notice{word}" for word in range(120))
    lines = (json.dumps({"id": f"d{at:03}", "text": f"{boilerplate} own{at} words{at}"}) for at in range(TEXTS))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def settings(folder: Path, **keys: object) -> Path:
    path = folder / "streamdedup.toml"
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    path.write_text("\n".join([SERVERS, "[profiles.pages]", 'topics = ["pages"]', *lines]), encoding="utf-8")
    return path


def test_scan_says_how_many_documents_reached_a_limit_and_the_cure_finds_all_pairs(corpus, tmp_path):
    everything = TEXTS * (TEXTS - 1) // 2
    limited = streamdedup("scan", corpus, "--config", settings(tmp_path, **LIMITS), "--profile", "pages")
    assert limited.returncode == 0, limited.stderr
    assert len(limited.stdout.splitlines()) < 0.7 * everything
    said = limited.stderr.splitlines()[-1]
    in_full, over = map(int, re.match(r"pairs may be missed: (\d+) doc.* times\), (\d+) with too", said).groups())
    assert 40 < in_full + over <= TEXTS - LIMIT
    assert "raise bucket_cap and max_candidates" in said
    assert "streamdedup stop-shingles" in said
    lifted = settings(tmp_path, bucket_cap="none", max_candidates="none")
    cured = streamdedup("scan", corpus, "--config", lifted, "--profile", "pages")
    assert len(cured.stdout.splitlines()) == everything
    assert "missed" not in cured.stderr


def test_evaluate_says_it_with_the_recall(corpus, tmp_path):
    options = ["--config", settings(tmp_path, **LIMITS), "--profile", "pages"]
    done = streamdedup("evaluate", corpus, *options, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["recall"]["share"] < 0.7
    limits = found["limits"]
    assert 0 < limits["in_full_buckets"] + limits["over_candidates"] <= TEXTS - LIMIT
    assert limits["full_buckets"] >= limits["in_full_buckets"]
    assert "pairs may be missed: " in streamdedup("evaluate", corpus, *options).stdout


def test_tune_raises_limits_that_would_prevent_the_recall(corpus, tmp_path):
    config = settings(tmp_path, **LIMITS)
    options = ["--config", config, "--profile", "pages", "--unit", "word", "--size", 3]
    done = streamdedup("tune", corpus, *options, "--threshold", 0.8, "--json")
    assert done.returncode == 0, done.stderr
    best = json.loads(done.stdout)["recommendation"]
    assert best["bucket_cap"] == best["max_candidates"] == 4 * LIMIT
    assert best["found_recall"] > 0.99
    assert best["recall_reached"]
    config = settings(tmp_path, **{key: best[key] for key in ("bucket_cap", "max_candidates", "bands", "rows")})
    found = streamdedup("scan", corpus, "--config", config, "--profile", "pages")
    assert len(found.stdout.splitlines()) == TEXTS * (TEXTS - 1) // 2
    assert "missed" not in found.stderr
