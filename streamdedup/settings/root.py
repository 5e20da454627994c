"""All settings together: loading them, and what contradicts between sections."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, ValidationError

from streamdedup.errors import SettingsError
from streamdedup.settings.base import Check, Section
from streamdedup.settings.kafka import Kafka
from streamdedup.settings.mistakes import describe_mistakes
from streamdedup.settings.partial import overlooked
from streamdedup.settings.profile import Profile
from streamdedup.settings.redis import Redis
from streamdedup.settings.service import Service
from streamdedup.settings.sources import Schema, read_sources

#: The sections there are.
SCHEMA = Schema({"kafka": Kafka, "redis": Redis, "service": Service}, Profile)

#: How often the client of the store tries a request before the daemon hears of it.
_STORE_ATTEMPTS = 3

#: A profile's name: part of keys in Redis, label of metrics.
ProfileName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]{1,32}$")]


class Settings(Section):
    """Everything that a user can set, checked and frozen."""

    kafka: Kafka
    redis: Redis
    service: Service = Field(default=Service())
    profiles: dict[ProfileName, Profile] = Field(min_length=1)

    @classmethod
    def load(
        cls,
        path: Path | None = None,
        overrides: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Self:
        """Read settings from a file, below the environment, below overrides.

        Args:
            path: The TOML file; None for the one that STREAMDEDUP_CONFIG names, or for none at all.
            overrides: Values by dotted key (``{"kafka.batch_records": 100}``) or nested; None values count as absent.
            environ: The environment; the process's own if None.

        Raises:
            SettingsError: One line for each mistake.
        """
        sources = read_sources(SCHEMA, path, overrides or {}, os.environ if environ is None else environ)
        errors = []
        settings = None
        try:
            settings = cls.model_validate(sources.tree)
        except ValidationError as error:
            errors = error.errors(include_url=False)
        further = overlooked(cls, errors, SCHEMA, sources) if errors else ()
        mistakes = describe_mistakes(errors, SCHEMA, sources, further)
        # Raised outside the handler: the validator's own error holds the values, and ours must not lead to them.
        if mistakes or settings is None:
            raise SettingsError("\n".join(mistakes))
        return settings

    def checks(self) -> tuple[Check, ...]:
        """Return what looks for contradictions between sections."""
        return (*super().checks(), self._topics, self._slow_commit, self._silent_store)

    def _slow_commit(self) -> Iterator[tuple[str, str]]:
        if self.service.watchdog_s <= self.kafka.transaction_timeout_s:
            yield (
                "service.watchdog",
                "must be above kafka.transaction_timeout, or a slow commit would look like a standstill",
            )

    def _silent_store(self) -> Iterator[tuple[str, str]]:
        request_s = (self.redis.timeout_s + self.redis.connect_timeout_s) * _STORE_ATTEMPTS
        if self.service.watchdog_s <= request_s:
            limit = f"{_STORE_ATTEMPTS} times redis.timeout and redis.connect_timeout together"
            yield "service.watchdog", f"must be above {limit}, or a silent store would look like a standstill"

    def hints(self) -> Iterator[str]:
        """Yield a line for each value that is allowed and rarely meant."""
        for key, text in self.redis.hints():
            yield f"redis.{key}: {text}"

    def _topics(self) -> Iterator[tuple[str, str]]:
        outputs = {self.kafka.duplicates_topic: "duplicates_topic", self.kafka.dead_letter_topic: "dead_letter_topic"}
        owners: dict[str, str] = {}
        for name, profile in self.profiles.items():
            for topic in profile.topics:
                if topic in outputs:
                    yield (
                        f"profiles.{name}.topics",
                        f"{topic} is kafka.{outputs[topic]} too; the daemon would read its own output",
                    )
                if topic in owners:
                    yield (
                        f"profiles.{name}.topics",
                        f"{topic} belongs to profiles.{owners[topic]} already; a topic has one profile",
                    )
                owners.setdefault(topic, name)
