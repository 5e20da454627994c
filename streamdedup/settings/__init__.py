"""Frozen settings from one TOML file, the environment and the command line; the only reader of the environment.

    base        sections: immutable, strict, contradictions reported together
    kinds       kinds of values: durations, sizes, lists, secrets; ``profile_kinds``: those of profiles alone
    kafka, redis, schema_registry, service, api, profile    the sections; ``tls`` has keys that three of them share
    schema      all keys, and suggestions for unknown ones
    sources     file, environment, overrides and files of secrets, as one tree of values; ``files`` reads the files
    validation  mistakes of values and unknown keys
    root        all sections, and contradictions between them
    describe    ``config show``; ``presets``: profiles without a settings file

``Settings.load`` collects every mistake and names each key in full. Each key is declared once, as an attribute with its
unit, bounds, default and description; messages, ``config show`` and docs/settings.md (``docs/settings_tables.py``) are
derived from the declaration. Secrets are never shown.
"""

from streamdedup.settings.describe import describe_banding, describe_suppression, profile_lines, show
from streamdedup.settings.kafka import Kafka
from streamdedup.settings.profile import Profile
from streamdedup.settings.redis import Redis
from streamdedup.settings.root import Settings
from streamdedup.settings.schema_registry import SchemaRegistry
from streamdedup.settings.service import Service
from streamdedup.settings.sources import crash_point, settings_file

__all__ = [
    "Kafka",
    "Profile",
    "Redis",
    "SchemaRegistry",
    "Service",
    "Settings",
    "crash_point",
    "describe_banding",
    "describe_suppression",
    "profile_lines",
    "settings_file",
    "show",
]
