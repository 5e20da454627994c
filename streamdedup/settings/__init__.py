"""Frozen settings from one TOML file, the environment and the command line; the only reader of the environment.

``Settings.load`` (``root``) takes the tree of values from ``sources``, has ``validation`` check each section, and names
every mistake by its key in full. Each key is declared once, as an attribute with unit, bounds, default and description,
from which messages, ``config show`` and docs/settings.md are derived. Secrets are never shown.
"""

from streamdedup.settings.describe import describe_banding, describe_suppression, profile_lines, show
from streamdedup.settings.kafka import Kafka
from streamdedup.settings.profile import Profile
from streamdedup.settings.redis import Redis
from streamdedup.settings.root import Settings
from streamdedup.settings.schema_registry import SchemaRegistry
from streamdedup.settings.service import Service
from streamdedup.settings.sources import settings_file
