"""Settings as TOML, bandings and rules as sentences, for ``cli.config`` and ``tuning.advice``."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from streamdedup.counts import counted
from streamdedup.settings.base import fields_of, is_file_path, is_secret, key_of, kind_of
from streamdedup.settings.kafka import Kafka
from streamdedup.settings.kinds import write_text
from streamdedup.settings.profile import Profile
from streamdedup.settings.redis import Redis
from streamdedup.settings.root import Settings
from streamdedup.settings.schema import SECTIONS

#: Similarities at which ``describe_banding`` shows the chance of a pair, beside ``recall_from``.
_CURVE = (0.5, 0.6, 0.7, 0.8)


def show(settings: Settings) -> str:
    """Return the effective settings as TOML for a file in any folder, secrets hidden, bandings as comments."""
    blocks = ["\n".join([f"[{name}]", *_lines(getattr(settings, name))]) for name in SECTIONS]
    for name, profile in settings.profiles.items():
        comments = [f"# {line}" for line in describe_banding(profile)]
        blocks.append("\n".join([f"[profiles.{name}]", *comments, *_lines(profile)]))
    return "\n\n".join(blocks) + "\n"


def describe_banding(profile: Profile) -> Iterator[str]:
    """Yield a profile's banding, the chances of pairs by their similarity, and the containment rule, a line each."""
    banding = profile.banding()
    origin = "chosen" if profile.bands is None else "given"
    bands, rows = counted(banding.bands, "band"), counted(banding.rows, "row")
    yield f"banding ({origin}): {bands} x {rows}, {banding.permutations} of {profile.permutations} permutations"
    yield f"steepest near (1/{banding.bands})^(1/{banding.rows}) = {banding.steepest_similarity:.3f}"
    curve = sorted({*_CURVE, profile.recall_from})
    yield f"found: {', '.join(f'{profile.recall(similarity):.4f} at {similarity:g}' for similarity in curve)}"
    alerted = f"alerted: pairs from similarity {profile.threshold:g} on"
    if (rule := profile.containment_rule()) is not None:
        alerted += f", or contained from {rule.threshold:g} of {rule.min_shingles} shingles or more"
    yield alerted


def describe_suppression(profile: Profile) -> Iterator[str]:
    """Yield the rules by which pairs are suppressed; nothing for a profile without any."""
    keys = ("min_shingles", "only_sources", "ignore_same_source", "ignore_sources")
    rules = [line for line in profile_lines(profile) if line.partition(" = ")[0] in keys]
    if rules:
        yield f"suppressed pairs: {', '.join(rules)}"


def profile_lines(profile: Profile, always: Sequence[str] = ()) -> Iterator[str]:
    """Yield a TOML line for each key with another value than its default, and each attribute in ``always``."""
    for name, field in fields_of(Profile).items():
        value = getattr(profile, name)
        if name in always or value != field.default:
            yield f"{key_of(name)} = {kind_of(field).write(_with_absolute_path(field, value))}"


def _lines(section: BaseModel) -> Iterator[str]:
    """Yield a line for each key in a section; none for a key without a value, or for a secret that a file holds."""
    reasons = _reasons_for_comments(section)
    for name, field in fields_of(type(section)).items():
        key, value = key_of(name), getattr(section, name)
        if value == field.default and value in {None, ()}:  # an absent key; another None is the word "none"
            continue
        if name not in section.model_fields_set and name in reasons:
            yield f"# {key}: {reasons[name]}"
        elif is_secret(field) and getattr(section, f"{key}_file") is None:
            # The URL of Redis without its password; nothing of other secrets.
            shown = section.shown_url if isinstance(section, Redis) and key == "url" else "***"
            yield f"{key} = {write_text(shown)}"
        elif not is_secret(field):  # of a secret in a file, the key of the file is shown
            yield f"{key} = {kind_of(field).write(_with_absolute_path(field, value))}"


def _with_absolute_path(field: FieldInfo, value: Any) -> Any:
    """Return a path as absolute, which a settings file in any folder may name, and any other value unchanged."""
    return Path(value).absolute() if is_file_path(field, value) else value


def _reasons_for_comments(section: BaseModel) -> dict[str, str]:
    """Return why a default is shown as a comment, by attribute: it has no effect, or is random."""
    if isinstance(section, Kafka):
        return {"instance_id": "random for each process"}
    if not isinstance(section, Profile):
        return {}
    reasons: dict[str, str] = {}
    if section.shingle_unit == "word":
        reasons["keep_white_space"] = 'for shingle_unit = "char" only'
    if section.bands is not None:
        reasons |= dict.fromkeys(("recall_from", "min_recall"), "bands and rows are given")
    return reasons
