"""The default profiles, as the settings make them."""

from functools import cache

from streamdedup.settings import Profile, Settings

_UNITS = {"articles": "word", "reviews": "char"}


@cache
def profile(kind: str, **settings: object) -> Profile:
    """Return a default profile.

    Args:
        kind: "articles" (words) or "reviews" (characters).
        settings: Settings that differ from the default.
    """
    given = {
        "kafka.bootstrap_servers": "localhost:9092",
        "redis.url": "redis://localhost:6379/0",
        f"profiles.{kind}.topics": kind,
        f"profiles.{kind}.shingle_unit": _UNITS[kind],
    }
    own = {f"profiles.{kind}.{key}": value for key, value in settings.items()}
    return Settings.load(None, given | own, environ={}).profiles[kind]
