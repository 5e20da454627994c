"""All settings together: ``Settings.load`` reads them and reports all mistakes, also contradictions between sections.

A new section is an attribute of ``Settings`` and a row of ``schema.SECTIONS``.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from streamdedup.errors import SettingsError
from streamdedup.settings.api import Api
from streamdedup.settings.base import Mistakes, Section
from streamdedup.settings.kafka import Kafka
from streamdedup.settings.profile import Profile
from streamdedup.settings.redis import CONNECT_TIMEOUT_S, Redis
from streamdedup.settings.schema import SECTIONS
from streamdedup.settings.schema_registry import SchemaRegistry
from streamdedup.settings.service import Service
from streamdedup.settings.sources import read_sources
from streamdedup.settings.validation import read_sections, report_contradictions, shown

#: Tries of a request to Redis: 1 + ``RETRIES`` of ``index/redis/connection.py``, which settings must not import.
_STORE_ATTEMPTS = 3
#: A profile's name: part of keys in Redis, label of metrics.
_PROFILE_NAME = re.compile(r"[a-z0-9_-]{1,32}")


class Settings(Section):
    """All keys that a user can set, checked and frozen."""

    kafka: Kafka
    redis: Redis
    schema_registry: SchemaRegistry = SchemaRegistry()
    service: Service = Service()
    api: Api = Api()
    profiles: dict[str, Profile]

    @classmethod
    def load(
        cls,
        path: Path | None = None,
        overrides: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        needs_servers: bool = True,
    ) -> Self:
        """Read settings from a file, the environment and overrides; ``SettingsError`` names all mistakes.

        The environment replaces values of the file, overrides replace both. ``path``: None for the file that
        STREAMDEDUP_CONFIG names, if any. ``overrides``: by dotted key (``{"kafka.batch_records": 100}``) or nested;
        None values count as absent. Without ``needs_servers`` the sections of servers may lack keys.
        """
        sources = read_sources(path, overrides, environ, needs_servers=needs_servers)
        # ``read_sections`` has validated each value. The first argument, None, records the passed sections as set.
        settings = cls.model_construct(None, **read_sections(sources))
        report_contradictions(sources, settings)
        if sources.mistakes:
            raise SettingsError("\n".join(sources.mistakes))
        return settings

    @property
    def watchdog_s(self) -> float:
        """Time without progress after which the process ends itself: 4 times the longest wait, but at least a minute.

        The longest waits are a slow commit, all tries of a request to a silent store, and a silent schema registry. At
        least a minute, because steps on a busy machine take longer than their time limits.
        """
        store_s = (self.redis.timeout_s + CONNECT_TIMEOUT_S) * _STORE_ATTEMPTS
        return max(60.0, 4 * self.kafka.transaction_timeout_s, 4 * store_s, 4 * self.schema_registry.timeout_s)

    def hint_lines(self) -> Iterator[str]:
        """Yield a line for each value that is allowed but rarely useful."""
        sections: dict[str, Section] = {name: getattr(self, name) for name in SECTIONS}
        sections |= {f"profiles.{name}": profile for name, profile in self.profiles.items()}
        for name, section in sections.items():
            for key, text in section.hints():
                yield f"{name}.{key}: {text}"

    def _check_profile_names(self) -> Mistakes:
        for name in self.profiles:
            if not _PROFILE_NAME.fullmatch(name):
                yield "profiles", f"{shown(name)} is not a profile's name; allowed: 1 to 32 of a-z, 0-9, _ and -"

    def _check_formats(self) -> Mistakes:
        formats: dict[str, str | None] = {"kafka.alert_format": self.kafka.alert_format}
        for name, profile in self.profiles.items():
            for key in ("format", "key_format"):
                formats[f"profiles.{name}.{key}"] = getattr(profile, key, None)  # a wrong value is absent
        for key, form in formats.items():
            if form not in {None, "json", "text"} and self.schema_registry.url is None:
                yield "schema_registry.url", f'is missing; {key} = "{form}" needs it'
                return

    def _check_topics(self) -> Mistakes:
        outputs = {self.kafka.duplicates_topic: "duplicates_topic", self.kafka.dead_letter_topic: "dead_letter_topic"}
        owners: dict[str, str] = {}
        for name, profile in self.profiles.items():
            key = f"profiles.{name}.topics"
            for topic in getattr(profile, "topics", ()):  # a wrong value is absent
                if topic in outputs:
                    yield key, f"{topic} is kafka.{outputs[topic]} too; the daemon would read its own output"
                owner = owners.setdefault(topic, name)
                if owner != name:
                    yield key, f"{topic} belongs to profiles.{owner} already; a topic has one profile"
