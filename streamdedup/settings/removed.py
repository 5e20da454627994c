"""Settings that earlier versions had: each is refused, with what applies instead."""

from collections.abc import Mapping

#: A daemon starts without a person, so a password of the key would also be in a file, with the same rights as the key.
_PLAIN_KEY = "ssl_key_file holds the key without a password, readable by the user of the daemon alone"

#: By section and key (``profiles.KEY`` for the keys of profiles): what applies instead. A mistake reads
#: ``kafka.max_batch_bytes: was removed: TEXT``.
REMOVED: Mapping[str, str] = {
    "api.cluster_lookback": "the index keeps the members of clusters",
    "api.daemon_metrics": "/v1/state is gone; Grafana shows the metrics of the daemons",
    "api.gather": "look-ups that arrive during a pass of the index are answered together by the next one",
    "api.max_bodies_bytes": "the bodies of all requests in progress have at most 64 MiB, or one longest body",
    "api.max_body_bytes": "a body has at most 8 MiB, or eight times the largest max_text_bytes of the profiles",
    "api.max_cluster_members": "the index keeps the members of clusters",
    "api.max_connections": "512 connections may be open, and 16 for probes",
    "api.max_requests": "256 requests may be in progress",
    "api.max_subscribers": "128 streams of alerts may be open, and as many of dead letters",
    "api.timeout": "a request may take 10 s",
    "kafka.compression": "alerts and dead letters are compressed by zstd, unless their topics set compression.type",
    "kafka.max_batch_bytes": "a batch of input records has at most 64 MiB, decompressed",
    "kafka.request_timeout": "a request may take a third of kafka.transaction_timeout",
    "kafka.ssl_key_password": _PLAIN_KEY,
    "kafka.ssl_key_password_file": _PLAIN_KEY,
    "profiles.containment_min_shingles": "the smaller text of a pair alerted by containment has at least 20 shingles",
    "profiles.keep_sources": "the index keeps sources while a rule is about sources; one that suppresses nothing: "
    'ignore_sources = [["none", "nobody"]]',
    "profiles.max_matches": "a message has at most 100 matches",
    "profiles.records_in_order": "a backlog that is read at full speed is in the index as a whole; "
    'kafka.auto_offset_reset = "window" makes a new group begin at the window',
    "redis.connect_timeout": "a connect may take 1 s, and an answer redis.timeout",
    "redis.database": "Sentinels and clusters have database 0; redis.key_prefix keeps installations apart",
    "redis.ssl_key_password": _PLAIN_KEY,
    "redis.ssl_key_password_file": _PLAIN_KEY,
    "service.dead_letter_window": "service.dead_letter_limit counts in the last 1,000 records of a topic",
    "service.log_format": "the log is text on a terminal and JSON elsewhere, such as through `2>&1 | cat`",
    "service.stop_timeout": "a daemon has 8 s to finish its batch, less than supervisors wait by default",
    "service.watchdog": "the process ends after four times kafka.transaction_timeout without progress, or longer where "
    "requests to Redis may take longer",
}


def removal(path: tuple[str, ...]) -> str | None:
    """Describe the removal of a key by its path (``schema.KeyPath``); None for a key that was not removed."""
    text = REMOVED.get(f"{path[0]}.{path[-1]}") if len(path) > 1 else None
    return None if text is None else f"was removed: {text}"
