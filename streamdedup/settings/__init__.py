"""Frozen settings from one TOML file, the environment and the command line; the only reader of the environment.

``Settings.load`` collects every mistake and names each key in full. Each key is declared once, with its unit, bounds,
default and description; messages, ``config show`` and the tables of the documentation all come from that declaration.
Secrets are never shown. ``python -m streamdedup.settings docs/settings.md`` rewrites the documentation's tables.
"""

from streamdedup.settings.describe import describe_banding, render_tables, show
from streamdedup.settings.kafka import Kafka
from streamdedup.settings.profile import Profile
from streamdedup.settings.redis import Redis
from streamdedup.settings.root import Settings
from streamdedup.settings.service import Service
from streamdedup.settings.sources import crash_point

__all__ = [
    "Kafka",
    "Profile",
    "Redis",
    "Service",
    "Settings",
    "crash_point",
    "describe_banding",
    "render_tables",
    "show",
]
