"""Profiles for kinds of texts: examples for a settings file, and profiles that need no settings file.

``streamdedup config example`` prints the examples, docs/tuning.md lists them. Commands on files, such as ``scan``,
``evaluate`` and ``tune``, take a profile of a settings file or of ``_PRESETS``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from streamdedup.errors import SettingsError
from streamdedup.settings.profile import Profile
from streamdedup.settings.root import Settings
from streamdedup.settings.sources import read_sources


class ExampleProfile(NamedTuple):
    """An example for ``texts``; ``toml_values`` has by key the value as TOML text. Also needs a row in docs/tuning.md.

    ``measured``: pairs that ``scan`` finds in open data sets with this example, and with the defaults (shingles of 3
    words, threshold and containment 0.8).
    """

    texts: str
    toml_values: Mapping[str, str]
    measured: str


#: Short shingles: a typing error changes few of them, and a short text has enough of them to be compared.
_CHARACTERS: Final = {"shingle_unit": '"char"', "shingle_size": "5"}
#: One spelling for texts with and without accents or vowel signs, and for the variants of a Han character.
_FOLDINGS: Final = {"fold_marks": "true", "fold_variants": "true"}
EXAMPLES: Final[Mapping[str, ExampleProfile]] = {
    "news": ExampleProfile(
        "agency news, rewritten or embedded in longer articles",
        {"threshold": "0.5", "containment_threshold": "0.8", "recall_from": "0.6"},
        "243 pairs instead of 172 of 2,587 web articles (fnc1_bodies); 170 instead of 167 of bbc_news; none lost",
    ),
    "reviews": ExampleProfile(
        "reviews and comments, of which the shortest say nothing",
        {**_CHARACTERS, "min_words": "3"},
        "12,152 pairs instead of 120,538 of 37,427 reviews (playstore_reviews); of the lost pairs all but 41 are of "
        "reviews with one or two words",
    ),
    "spam": ExampleProfile(
        "reviews that are spaced out, glued together or sprinkled with emoji",
        {**_CHARACTERS, "keep_white_space": "false", **_FOLDINGS, "fold_look_alikes": "true"},
        "1,500 of 1,500 such copies of 500 reviews (playstore_reviews) are found, by the defaults none",
    ),
    "mails": ExampleProfile(
        "mails and short messages",
        {"min_words": "3", "threshold": "0.5", "containment_threshold": "0.8", "recall_from": "0.6"},
        "1,478 pairs instead of 1,326 of 5,575 messages (sms_spam); 208 are lost, all of messages of one or two words",
    ),
    "poems": ExampleProfile(
        "poems and lyrics in several spellings, with and without vowel signs",
        {**_CHARACTERS, "threshold": "0.7", "recall_from": "0.7", **_FOLDINGS},
        "no open set has poems: 304 pairs instead of 178 of 17,432 Arabic texts (ar_reviews), 3 lost",
    ),
    "ocr": ExampleProfile(
        "scanned texts, with errors of recognition",
        {**_CHARACTERS, "threshold": "0.6", "recall_from": "0.6"},
        "500 of 500 copies of bbc_news with 2 % of their characters replaced are found, by the defaults none",
    ),
    "licences": ExampleProfile(
        "licences, contracts and other families of texts from one template",
        {"threshold": "0.7", "recall_from": "0.7", "containment_threshold": "0.8"},
        "1,283 pairs instead of 1,174 of 819 licences (spdx_licenses), none lost",
    ),
}
#: Settings of the profiles that need no settings file.
_PRESETS: Final[Mapping[str, Mapping[str, object]]] = {
    "articles": {"shingle_unit": "word"},
    "reviews": {"shingle_unit": "char"},
    "news": EXAMPLES["news"].toml_values,  # numbers: quotes would become part of a text
}


def example_section(name: str) -> str:
    """Return the section of an example, with comments; ``name`` is in ``EXAMPLES``."""
    example = EXAMPLES[name]
    lines = [f"# {example.texts}", f"# {example.measured}", f"[profiles.{name}]", f'topics = ["{name}"]']
    return "\n".join([*lines, *(f"{key} = {value}" for key, value in example.toml_values.items()), ""])


def default_profile_name(config: Path | None) -> str:
    """Return the profile's name for a command without ``--profile``: the only one of the file, else ``articles``."""
    profiles = {} if config is None else _unvalidated_profiles(config)
    return next(iter(profiles)) if len(profiles) == 1 else "articles"


def named_profile(config: Path | None, name: str, overrides: Mapping[str, Any]) -> Profile:
    """Return a profile of the settings file ``config``, or a preset without a file, with overrides by key."""
    changes = {f"profiles.{name}.{key}": value for key, value in overrides.items() if value is not None}
    if config is not None:
        if name not in _unvalidated_profiles(config):
            changes = {}  # the overrides would make the profile, and the error below would not be raised
        settings = Settings.load(config, changes, needs_servers=False)
        if name not in settings.profiles:
            names = ", ".join(sorted(settings.profiles))
            raise SettingsError(f"{config} has no profile {name}; name one with --profile: {names}")
        return settings.profiles[name]
    if name not in _PRESETS:
        raise SettingsError(f"--profile {name}: without --config it is one of {', '.join(_PRESETS)}")
    preset = {f"profiles.{name}.{key}": value for key, value in _PRESETS[name].items()}
    # The topic is a placeholder; the section that ``tune`` prints shows it.
    topics = {f"profiles.{name}.topics": "scan"}
    # Environment variables are for a daemon, so they do not change a preset.
    return Settings.load(None, topics | preset | changes, environ={}, needs_servers=False).profiles[name]


def _unvalidated_profiles(config: Path) -> dict[str, Any]:
    profiles = read_sources(config, overrides=None, environ=None, needs_servers=False).tree.get("profiles")
    return profiles if isinstance(profiles, dict) else {}
