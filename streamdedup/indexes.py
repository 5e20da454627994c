"""Builds the index and the detector of a profile from settings, for the command line and the library."""

from streamdedup.detection.model import DetectorOptions
from streamdedup.detection.suppression import suppression_of
from streamdedup.index.redis.base import RedisIndexOptions
from streamdedup.index.redis.connection import connect, connect_cluster, connect_sentinel
from streamdedup.index.redis.reader import RedisIndexReader
from streamdedup.index.redis.servers import Servers
from streamdedup.index.redis.store import RedisIndex
from streamdedup.settings import Profile, Settings
from streamdedup.similarity.measures import MEASURES


def detector_options(name: str, profile: Profile) -> DetectorOptions:
    """Return the options of the detector of a profile."""
    return DetectorOptions(
        profile=name,
        shingles=profile.shingle_options(),
        banding=profile.banding(),
        permutations=profile.permutations,
        seed=profile.seed,
        threshold=profile.threshold,
        containment=profile.containment_rule(),
        measure=MEASURES[profile.similarity],
        min_shared_bands=profile.min_shared_bands,
        min_words=profile.min_words,
        exact_limit=profile.exact_limit,
        window_ms=round(profile.retention_s * 1000),
        silent_until_ms=profile.index_silently_until_ms,
        max_candidates=profile.max_candidates,
        suppression=suppression_of(
            min_shingles=profile.min_shingles,
            only_sources=profile.only_sources,
            ignore_same_source=profile.ignore_same_source,
            ignore_sources=profile.ignore_sources,
        ),
        keep_sources=profile.keeps_sources,
    )


def lifetime_ms(profile: Profile) -> int:
    """Return the time to live of index entries of a profile, in milliseconds."""
    return round((profile.retention_s + profile.retention_slack_s) * 1000)


def connect_store(settings: Settings, *, from_replicas: bool = False) -> Servers:
    """Return the connections to the servers of the index; nothing is sent yet.

    Args:
        settings: All settings.
        from_replicas: Whether a cluster or Sentinels are asked for replicas; for commands that only read.
    """
    redis = settings.redis
    times = {"timeout_s": redis.timeout_s, "connect_timeout_s": redis.connect_timeout_s}
    if redis.mode == "cluster":
        return connect_cluster(redis.addresses, security=redis.security(), from_replicas=from_replicas, **times)
    if redis.mode == "sentinel":
        return connect_sentinel(
            redis.addresses,
            redis.sentinel_service or "",
            database=redis.database,
            security=redis.security(),
            sentinel_security=redis.sentinel_security(),
            from_replicas=from_replicas,
            **times,
        )
    url = redis.url.get_secret_value() if redis.url is not None else ""
    return connect(url, security=redis.security(), **times)


def redis_store(settings: Settings, name: str, servers: Servers, *, in_staging: bool = False) -> RedisIndex:
    """Return the index of a profile, or its staging index."""
    return RedisIndex(servers, _redis_options(settings, name), in_staging=in_staging)


def redis_reader(settings: Settings, name: str, servers: Servers) -> RedisIndexReader:
    """Return the reader of the index of a profile."""
    return RedisIndexReader(servers, _redis_options(settings, name))


def _redis_options(settings: Settings, name: str) -> RedisIndexOptions:
    redis = settings.redis
    return redis_options(
        namespace_of(settings, name), settings.profiles[name], shards=redis.shards, bucket_layout=redis.bucket_layout
    )


def redis_options(
    namespace: str, profile: Profile, *, shards: int = 1, bucket_layout: str = "sets"
) -> RedisIndexOptions:
    """Return place and limits of the index of a profile.

    Args:
        namespace: Beginning of its keys.
        profile: The profile.
        shards: Slots for each band.
        bucket_layout: Name of the bucket layout.
    """
    return RedisIndexOptions(
        namespace=namespace,
        bands=profile.banding().bands,
        shards=shards,
        lifetime_ms=lifetime_ms(profile),
        bucket_cap=profile.bucket_cap,
        bucket_layout=bucket_layout,
    )


def namespace_of(settings: Settings, name: str) -> str:
    """Return the namespace of the index of a profile that daemons maintain."""
    return f"{settings.redis.key_prefix}:{name}"
