"""Settings as text: the effective ones as TOML, bandings and rules in sentences."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from streamdedup.settings.base import fields_of, is_secret, key_of, kind_of, names_file
from streamdedup.settings.kafka import Kafka
from streamdedup.settings.profile import Profile
from streamdedup.settings.redis import Redis
from streamdedup.settings.root import Settings
from streamdedup.settings.schema import SECTIONS
from streamdedup.settings.units import counted, write_text
from streamdedup.similarity.lsh import (
    BAND_BYTES,
    REFERENCE_DOCUMENTS,
    Banding,
    banding_cost,
    false_candidates,
)

#: Replacement of a secret in shown settings.
HIDDEN = '"***"'
#: Keys without effect where the rule of containment is off.
_OF_CONTAINMENT = ("containment_min_similarity", "containment_min_shingles")


def show(settings: Settings) -> str:
    """Return the effective settings as TOML, secrets hidden, with the banding of each profile as comments.

    The text has the same meaning as a file in any folder, except for the secrets.
    """
    blocks = ["\n".join([f"[{name}]", *_lines(getattr(settings, name))]) for name in SECTIONS]
    for name, profile in settings.profiles.items():
        comments = [f"# {line}" for line in describe_banding(profile)]
        blocks.append("\n".join([f"[profiles.{name}]", *comments, *_lines(profile)]))
    return "\n\n".join(blocks) + "\n"


def describe_banding(profile: Profile) -> Iterator[str]:
    """Yield the banding of a profile and the chances of pairs at some similarities, a line each."""
    banding: Banding = profile.banding()
    shared = profile.min_shared_bands
    chosen = "chosen" if profile.bands is None else "given"
    bands, rows = counted(banding.bands, "band"), counted(banding.rows, "row")
    yield f"banding ({chosen}): {bands} x {rows}, {banding.permutations} of {profile.permutations} permutations"
    yield f"steepest near (1/{banding.bands})^(1/{banding.rows}) = {banding.threshold:.3f}"
    at, below = profile.recall(profile.threshold), profile.recall(profile.threshold / 2)
    yield (
        f"chance to share at least {counted(shared, 'band')}: {at:.4f} at the threshold {profile.threshold:g}, "
        f"{below:.4f} at {profile.threshold / 2:g}"
    )
    yield from _describe_containment(profile)


def _describe_containment(profile: Profile) -> Iterator[str]:
    """Yield the rule of containment and its price; nothing where it is off."""
    rule = profile.containment_rule()
    if rule is None:
        return
    yield (
        f"containment from {rule.threshold:g}, of at least {counted(rule.min_shingles, 'shingle')}, from similarity "
        f"{rule.min_similarity:g} on: chance {profile.recall(rule.min_similarity):.4f} there"
    )
    if profile.bands is not None:
        return
    without, banding = profile.cheapest_banding(profile.threshold), profile.banding()
    jaccard = profile.least_jaccard(profile.threshold)
    false = [false_candidates(one, jaccard) for one in (without, banding)]
    times = banding_cost(banding, jaccard) / banding_cost(without, jaccard)
    more_bytes = (banding.bands - without.bands) * BAND_BYTES
    yield (
        f"price of it: {banding} bands instead of {without}, {more_bytes:+,} bytes a document in Redis; with "
        f"{REFERENCE_DOCUMENTS:,} documents {false[1]:.1f} candidates below the threshold instead of {false[0]:.1f}, "
        f"and {times:.1f} times the time for buckets and comparisons"
    )


def describe_suppression(profile: Profile) -> Iterator[str]:
    """Yield the rules by which pairs are suppressed, and the need of a new index; nothing for a profile without any."""
    keys = ("min_shingles", "only_sources", "ignore_same_source", "ignore_sources")
    rules = [line for line in profile_lines(profile) if line.partition(" = ")[0] in keys]
    if rules:
        yield f"suppressed pairs: {', '.join(rules)}"
    if profile.keep_sources:
        yield "the index keeps sources: rules about sources can be set and removed without a new index"
    elif profile.keeps_sources:
        yield (
            "the index keeps sources: rules about sources can be changed; without any of them, a new index is needed, "
            "or keep_sources = true"
        )


def profile_lines(profile: Profile, always: Sequence[str] = ()) -> Iterator[str]:
    """Yield a line for each key of a profile that has not its default, and for the fields named in ``always``."""
    for name, field in fields_of(Profile).items():
        value = getattr(profile, name)
        if name in always or value != field.default:
            yield f"{key_of(name)} = {kind_of(field).write(_lasting(field, value))}"


def _lines(section: BaseModel) -> Iterator[str]:
    """Yield one line for each key of a section."""
    for name, field in fields_of(type(section)).items():
        key, value = key_of(name), getattr(section, name)
        if value in {None, ()} and value == field.default:
            continue
        if name not in section.model_fields_set and name in _unused(section):
            yield f"# {key}: {_unused(section)[name]}"
        elif is_secret(field) and getattr(section, f"{key}_file") is None:
            yield f"{key} = {_shown_secret(section, key)}"
        elif not is_secret(field):
            yield f"{key} = {kind_of(field).write(_lasting(field, value))}"


def _lasting(field: FieldInfo, value: Any) -> Any:
    """Return a value that means the same in a settings file of any folder: relative paths become absolute."""
    if names_file(field, value):
        return Path(value).absolute()
    return value


def _shown_secret(section: BaseModel, key: str) -> str:
    return write_text(section.shown_url) if isinstance(section, Redis) and key == "url" else HIDDEN


def _unused(section: BaseModel) -> dict[str, str]:
    """Return the fields whose default is shown as a comment because it has no effect, and the reason."""
    if isinstance(section, Kafka):
        return {"instance_id": "random for each process"}
    if not isinstance(section, Profile):
        return {}
    return {
        **({"keep_white_space": 'for shingle_unit = "char" only'} if section.shingle_unit == "word" else {}),
        **({"min_recall": "bands and rows are given"} if section.bands is not None else {}),
        **(
            dict.fromkeys(_OF_CONTAINMENT, "for containment_threshold") if section.containment_threshold is None else {}
        ),
    }
