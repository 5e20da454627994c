"""A profile's section in a settings file: found, replaced, and written with its stop shingles."""

import pytest

from streamdedup.cli.applied_settings import apply_section, check_target, with_section
from streamdedup.errors import SettingsError
from streamdedup.tuning.advice import SERVERS

NEW = '[profiles.articles]\ntopics = ["new"]'
OLD = '[profiles.articles]\ntopics = ["old"]\nthreshold = 0.7\n'


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# mine\n", "# mine\n\n" + NEW + "\n"),
        (OLD, NEW + "\n"),
        (OLD.rstrip(), NEW + "\n"),
        (
            f"a = 1\n{OLD}\n# about others\n[profiles.others]\nx = 1\n",
            f"a = 1\n{NEW}\n\n# about others\n[profiles.others]\nx = 1\n",
        ),
        (f"{OLD}\n# the end\n", f"{NEW}\n\n# the end\n"),
        ('[profiles.articles]\ntopics = [\n"a",\n["b"],\n]\n\n[service]\n', f"{NEW}\n\n[service]\n"),
        (
            '[ profiles."articles" ] # ours\n# first\nx = """\n[profiles.articles]\n"""\n[service]\n',
            f"{NEW}\n[service]\n",
        ),
        (f'x = """\n[profiles.articles]\n"""\n{OLD}', f'x = """\n[profiles.articles]\n"""\n{NEW}\n'),
        ("[profiles.articles2]\nx = 1\n", f"[profiles.articles2]\nx = 1\n\n{NEW}\n"),
    ],
)
def test_a_section_is_replaced_and_everything_else_stays(before, after):
    assert with_section(before, "articles", NEW) == after


@pytest.mark.parametrize(
    ("text", "is_config", "message"),
    [
        (f"{SERVERS}\n{OLD}", False, "has a profile 'articles'"),
        ("[profiles.articles", False, "no TOML"),
        ("# f\udcfcr alle", False, "no TOML"),
        (f"x = {'[' * 3_000}", False, "no TOML: nested too deeply"),
        ('profiles = {other = {topics = ["other"]}}', False, "streamdedup.toml with the new section: is not TOML"),
        (f"{SERVERS}\n[profiles.other]\ntopics = 5\n", False, "profiles.other.topics"),
        (f'profiles.articles.topics = ["a"]\n{SERVERS}', True, "below one heading"),
        (f'{SERVERS}\n{OLD}[profiles.articles.op_values]\nc = "upsert"\n', True, "below one heading"),
    ],
)
def test_a_file_to_which_nothing_can_be_applied_is_refused(tmp_path, text, is_config, message):
    path = tmp_path / "streamdedup.toml"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(SettingsError, match=message):
        check_target(path, "articles", path if is_config else None)
    assert files_in(tmp_path) == ["streamdedup.toml"]


def test_a_link_is_not_replaced_by_a_file(tmp_path):
    path, link = tmp_path / "shared.toml", tmp_path / "streamdedup.toml"
    path.write_text(f"{SERVERS}\n{OLD}", encoding="utf-8")
    link.symlink_to(path)
    with pytest.raises(SettingsError, match=f"name the file behind it, {path}$"):
        check_target(link, "articles", link)
    check_target(path, "articles", link)


def test_files_to_which_a_section_can_be_applied_stay_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMDEDUP_PROFILES__ARTICLES__THRESHOLD", "of the shell, not of the file")
    path = tmp_path / "streamdedup.toml"
    check_target(path, "articles", None)
    assert files_in(tmp_path) == []
    for text in (SERVERS, f"{SERVERS}\n{OLD}"):
        path.write_text(text, encoding="utf-8")
        check_target(path, "articles", path if OLD in text else None)
        assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("mode", [0o600, 0o640, None])
def test_a_file_keeps_its_permissions_and_a_new_one_is_readable_for_all(tmp_path, mode):
    path = tmp_path / "streamdedup.toml"
    if mode is not None:
        path.write_text(f"{SERVERS}\n{OLD}", encoding="utf-8")
        path.chmod(mode)
    apply_section(path, "articles", {"toml": NEW, "stop_shingles": None})
    assert NEW in path.read_text(encoding="utf-8")
    assert path.stat().st_mode & 0o777 == (mode or 0o644)


def test_stop_shingles_are_written_before_the_settings_that_name_them(tmp_path, monkeypatch):
    path = tmp_path / "streamdedup.toml"
    path.write_text(f"{SERVERS}\n{OLD}", encoding="utf-8")
    stops = tmp_path / "boilerplate-articles.txt"
    toml = f'{NEW}\nshingle_size = 0\nstop_shingles = "{stops}"'
    proposed = {"toml": toml, "stop_shingles": "# no shingles\n", "stops_path": str(stops)}
    with pytest.raises(SettingsError, match="shingle_size"):
        apply_section(path, "articles", proposed)
    assert path.read_text(encoding="utf-8") == f"{SERVERS}\n{OLD}"
    assert files_in(tmp_path) == ["boilerplate-articles.txt", "streamdedup.toml"]
