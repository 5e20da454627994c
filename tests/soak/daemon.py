"""The daemon under load."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.daemons import Daemon, Installation
from tests.servers import create_topics, fresh_name

#: What is kept beyond the window, as a share of it.
SLACK_SHARE = 0.1
PARTITIONS = 4


@contextlib.contextmanager
def a_daemon(folder: Path, window_s: float, kafka: str, redis_url: str) -> Iterator[tuple[Installation, Daemon]]:
    """Run one daemon that keeps documents for a short window."""
    topic, duplicates = fresh_name("articles"), fresh_name("duplicates")
    create_topics(kafka, [topic], PARTITIONS)
    create_topics(kafka, [duplicates, f"{duplicates}.dlq"])
    options = {"batch_records": 2_000, "shingle_size": 3, "threshold": 0.8}
    installation = Installation(
        folder,
        kafka=kafka,
        redis=redis_url,
        topic=topic,
        duplicates=duplicates,
        group=fresh_name("group"),
        **options,
    )
    kept = {
        "profiles.articles.retention": f"{round(window_s * 1_000)}ms",
        "profiles.articles.retention_slack": f"{round(window_s * SLACK_SHARE * 1_000)}ms",
        "profiles.articles.bucket_cap": "500",
        "profiles.articles.max_candidates": "500",
    }
    with installation.daemon(**kept) as daemon:
        daemon.wait_ready()
        yield installation, daemon
