"""The settings-file section that ``streamdedup tune`` recommends."""

from typing import Final

from streamdedup.settings import Profile, profile_lines
from streamdedup.tuning.rows import TuningRow

#: Settings of the printed section, also where they have their default.
_ALWAYS: Final = (
    "topics",
    "shingle_unit",
    "shingle_size",
    "threshold",
    "min_recall",
    "bands",
    "rows",
    "exact_limit",
    "retention_s",
)
#: Servers for a settings file that has none yet.
SERVERS: Final = """# Your servers:
[kafka]
bootstrap_servers = "localhost:9092"

[redis]
url = "redis://localhost:6379/0"
"""


def tuned_profile(profile: Profile, row: TuningRow) -> Profile:
    """Return a profile with a row's settings, without those that other shingles would contradict."""
    changes: dict[str, object] = {
        "shingle_unit": row.options.unit,
        "shingle_size": row.options.size,
        "threshold": row.threshold,
        "min_recall": row.min_recall,
        "bands": row.banding.bands,
        "rows": row.banding.rows,
        "permutations": row.permutations,
        **row.limits._asdict(),
    }
    if row.options.unit != profile.shingle_unit:
        changes |= {"stop_words": "none", "keep_white_space": True}
    if (row.options.unit, row.options.size) != (profile.shingle_unit, profile.shingle_size):
        changes["stop_shingles"] = "none"
    return profile.model_copy(update=changes)


def settings_section(name: str, profile: Profile, row: TuningRow) -> str:
    """Return the settings-file section with a row's settings.

    Other settings in the profile are in it where they are not the default; so the section can replace the old one.
    """
    return "\n".join([f"[profiles.{name}]", *profile_lines(tuned_profile(profile, row), _ALWAYS)])
