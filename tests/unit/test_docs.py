"""README, CONTRIBUTING, CHANGELOG and the explanations in docs/ agree with the code."""

import importlib
import importlib.util
import itertools
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from streamdedup import __version__, errors
from streamdedup.cli import main as cli
from streamdedup.cli.assembly import decoder_of
from streamdedup.daemon.metrics import Metrics
from streamdedup.detection.candidates import STORM_CANDIDATES
from streamdedup.detection.detector import Detector
from streamdedup.index.contract import Index
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.redis.admin import KINDS
from streamdedup.indexes import detector_options
from streamdedup.position import Partition, Position
from streamdedup.serve.metrics import ServeMetrics
from streamdedup.settings import Profile, Settings
from streamdedup.settings.base import keys_of
from streamdedup.settings.schema import SECTIONS
from streamdedup.similarity.lsh import BAND_BYTES
from streamdedup.similarity.minhash import standard_error
from streamdedup.wire import schema

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "streamdedup"
#: All pages.
PAGES = {
    str(page.relative_to(ROOT)): page.read_text(encoding="utf-8")
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
}
README, GUIDE, DELIVERY = PAGES["README.md"], PAGES["CONTRIBUTING.md"], PAGES["docs/delivery.md"]
COMMANDS = PAGES["docs/commands.md"]
#: The explanations, which name code.
EXPLANATIONS = ("docs/how-it-works.md", "docs/redis.md", "docs/delivery.md")
TARGETS = frozenset(re.findall(r"^\.PHONY: ([a-z-]+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

#: A fenced block, also one that is indented as a part of a list: indentation, language, content.
FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
#: A link or a picture: where it leads.
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def blocks(page, language):
    """Return the content of each fenced block of a language, indentation of the block removed."""
    found = [(indent, content) for indent, name, content in FENCE.findall(page) if name == language]
    return [re.sub(f"^{indent}", "", content, flags=re.MULTILINE) for indent, content in found]


def prose(page):
    """Return a page without its fenced blocks."""
    return FENCE.sub("", page)


def section(page, title):
    """Return the text below a heading, up to the next one of any level."""
    (text,) = re.findall(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", page, re.MULTILINE | re.DOTALL)
    return text


def rows(text):
    """Return the cells of each row of the tables in a text, headings and rules left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rules = {at for at, line in enumerate(lines) if set(line) <= set("|-: ")}
    assert rules
    kept = [line for at, line in enumerate(lines) if at not in rules and at + 1 not in rules]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in kept]


def named(cell):
    """Return the names in backquotes."""
    return re.findall(r"`([^`]+)`", cell)


def anchors(page):
    """Return the anchors that a page's headings get."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


class TestExamples:
    """The document lines and the alert of the README."""

    @pytest.fixture
    def documents(self):
        return FENCE.search(README)[3].splitlines()

    def test_the_documents_are_documents(self, documents):
        for line in documents:
            validate("document", json.loads(line))

    def test_the_documents_give_the_alert(self, documents):
        (toml,) = blocks(README, "toml")
        (short,) = re.findall(r"```json short\n(.*?)```", README, re.DOTALL)
        profile = load(toml).profiles["articles"]
        partition = Partition("articles", 0)
        store = MemoryIndex()
        store.open(profile.fingerprint())
        fence = store.fence(partition, 1, 0)
        decoder = decoder_of(profile)
        batch = [
            decoder.decode(Position(*partition, offset), 0, None, line.encode())
            for offset, line in enumerate(documents)
        ]
        detector = Detector(detector_options("articles", profile), store)
        (detection,) = detector.index(detector.prepare(batch), {partition: fence}).detections
        (match,) = detection.matches
        assert json.loads(short) == {
            "profile": "articles",
            "document": {"id": detection.document.id},
            "matches": [{"id": match.id, "similarity": match.similarity, "method": match.method}],
            "cluster_id": detection.cluster_id,
            "threshold": profile.threshold,
        }

    def test_the_output_of_the_demo_has_a_place_and_names_the_expected_pairs(self):
        (output,) = re.findall(r"<!-- demo output -->\n(.*?)<!-- end of demo output -->", README, re.DOTALL)
        count = len((PACKAGE / "sample" / "expected_pairs.tsv").read_text(encoding="utf-8").splitlines()) - 1
        assert not output.strip() or f"{count} of {count} known pairs found, 0 others" in output


def validate(name, value):
    checker = Draft202012Validator.FORMAT_CHECKER
    Draft202012Validator(json.loads(schema(name)), format_checker=checker).validate(value)


class TestCommands:
    def test_the_table_names_every_command_and_no_other(self):
        table = [words_of(named(row[0])[0]) for row in rows(section(COMMANDS, "All commands"))]
        expected = set()
        for name in cli.COMMANDS:
            command = cli.load_command(name)
            parts = getattr(command, "commands", None)
            expected |= {(name, part) for part in parts} if parts else {(name,)}
        assert len(table) == len(expected)
        assert set(table) == expected

    @pytest.mark.parametrize("line", re.findall(r"^streamdedup .+", "\n".join(blocks(README, "bash")), re.MULTILINE))
    def test_a_command_line_of_the_readme_is_understood(self, line):
        understand(shlex.split(line)[1:])

    def test_options_named_in_the_table_exist(self):
        for cell, text in rows(section(COMMANDS, "All commands")):
            options = [word for words in (*named(cell), *named(text)) for word in words.split() if word[:2] == "--"]
            known = {option for parameter in parameters(words_of(named(cell)[0])) for option in parameter.opts}
            assert set(options) <= known | {"--help"}

    def test_the_exit_codes_are_those_of_the_code(self):
        codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
        table = [int(row[0]) for row in rows(section(COMMANDS, "Exit codes"))]
        assert table == sorted(codes | {cli.EXIT_INTERRUPTED})
        assert sorted(cli.EXIT_CODES) == table


def understand(words):
    """Let the command line parse a command without running it; raises when it does not understand."""
    name, *arguments = words
    command = cli.load_command(name)
    if hasattr(command, "commands"):
        command = command.commands[arguments.pop(0)]
    command.make_context(name, arguments)


def words_of(line):
    """Return the words of a command line that name the command."""
    return tuple(itertools.takewhile(re.compile(r"[a-z]+(-[a-z]+)*").fullmatch, line.split()[1:]))


def parameters(words):
    """Return the parameters of a command."""
    command = cli.load_command(words[0])
    return command.commands[words[1]].params if hasattr(command, "commands") else command.params


class TestSettings:
    def test_every_settings_file_shown_is_valid(self, tmp_path):
        shown = [toml for page in PAGES.values() for toml in blocks(page, "toml")]
        assert shown
        for toml in shown:
            assert load(toml, tmp_path).profiles

    @pytest.mark.parametrize("page", ["docs/delivery.md", "docs/deployment.md", "docs/operating.md"])
    def test_every_key_named_exists(self, page):
        keys = {f"{name}.{key}" for name, model in SECTIONS.items() for key in keys_of(model)}
        used = set(re.findall(r"`((?:kafka|redis|service)\.[a-z_]+)`", PAGES[page]))
        assert used
        assert used <= keys

    @pytest.mark.parametrize(
        ("page", "key", "default"),
        [
            ("README.md", "min_recall", "0.99"),
            ("README.md", "retention", "30 days"),
            ("docs/how-it-works.md", "permutations", "128"),
            ("docs/how-it-works.md", "exact_limit", "8192"),
        ],
    )
    def test_a_default_beside_its_key_is_the_default(self, page, key, default):
        assert re.search(rf"`{key}` \({re.escape(default)}[;)]", PAGES[page])
        field = keys_of(Profile)[key]
        value = field.default / 86400 if "day" in default else field.default
        assert value == float(default.split()[0])

    @pytest.mark.parametrize("page", ["docs/settings.md", "docs/redis.md"])
    def test_the_number_of_candidates_in_a_storm_is_that_of_the_code(self, page):
        number = {3: "three"}[STORM_CANDIDATES]
        assert f"compared with {number} candidates only" in " ".join(PAGES[page].split())


def load(toml, folder=None):
    """Load settings from a text, with nothing from the environment."""
    if folder is None:
        return Settings.load(None, tomllib.loads(toml), {})
    path = folder / "streamdedup.toml"
    path.write_text(toml, encoding="utf-8")
    return Settings.load(path, environ={})


class TestCurve:
    def test_the_recall_that_the_readme_promises_is_that_of_the_default_bands(self):
        banding = Settings.load(None, SMALLEST, {}).profiles["articles"].banding()
        assert set(re.findall(r"0\.99\d\d", README)) == {f"{banding.probability(0.8):.4f}"}

    def test_the_standard_error_is_that_of_the_default_signature(self):
        error = standard_error(0.8, keys_of(Profile)["permutations"].default)
        assert f"{error:.3f} at" in PAGES["docs/how-it-works.md"]

    def test_the_picture_is_what_the_script_draws(self):
        script = ROOT / "docs" / "plot_s_curve.py"
        spec = importlib.util.spec_from_file_location("plot_s_curve", script)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert module.PICTURE.read_text(encoding="utf-8") == module.draw(), "draw it anew: python docs/plot_s_curve.py"


SMALLEST = {"kafka.bootstrap_servers": "h:1", "redis.url": "redis://h", "profiles.articles.topics": "articles"}


class TestLinks:
    @pytest.mark.parametrize("page", PAGES)
    def test_every_relative_link_leads_somewhere(self, page):
        for target in LINK.findall(prose(PAGES[page])):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            file = (ROOT / page).parent / path if path else ROOT / page
            assert file.exists(), target
            if anchor:
                assert anchor in anchors(file.read_text(encoding="utf-8")), target

    def test_the_readme_leads_to_every_page(self):
        targets = {target.partition("#")[0] for target in LINK.findall(README)}
        assert set(PAGES) - {"README.md"} <= targets

    @pytest.mark.parametrize("page", PAGES)
    def test_every_file_named_exists(self, page):
        named_files = re.findall(r"`((?:docs|tests|streamdedup|\.ci)/[\w./-]+|constraints\.txt|Makefile)`", PAGES[page])
        missing = [name for name in named_files if "NAME" not in name and not (ROOT / name).exists()]
        assert not missing


class TestCode:
    @pytest.mark.parametrize("page", EXPLANATIONS)
    def test_code_named_in_an_explanation_exists(self, page):
        listed = re.findall(r"(?:Code|Keys|scripts): ((?:[^`.;]*`[^`]+`)+)", PAGES[page])
        names = {name for text in listed for name in named(text)}
        assert len(names) > 5
        for name in names:
            assert exists(name), name

    def test_the_rules_are_named_in_the_contract_as_they_are_in_the_page(self):
        contract = re.findall(r"(\d+)\. ([a-z -]+)[,.]\s", importlib.import_module(Index.__module__).__doc__)
        stated = re.findall(
            r"^\*\*(\d+)\. ([\w -]+)\.\*\*", section(DELIVERY, "Eleven rules of delivery"), re.MULTILINE
        )
        assert len(stated) == 11
        assert contract == [(number, rule.lower()) for number, rule in stated]

    @pytest.mark.parametrize("page", PAGES)
    def test_every_metric_named_exists(self, page):
        registered = {
            {"counter": f"{family.name}_total", "info": f"{family.name}_info"}.get(family.type, family.name)
            for registry in (Metrics().registry, ServeMetrics().registry)
            for family in registry.collect()
        }
        assert set(re.findall(r"`(streamdedup_[a-z_]+)`", PAGES[page])) <= registered

    def test_every_kind_of_key_is_listed(self):
        (table,) = re.findall(r"^\| key \| type \|.*\n(?:\|.*\n)+", PAGES["docs/redis.md"], re.MULTILINE)
        assert set(re.findall(r"^\| `\{\.\.\}(\w)`", table, re.MULTILINE)) == {letter.decode() for letter in KINDS} | {
            "h"
        }

    def test_every_path_of_the_health_server_is_listed(self):
        served = set(re.findall(r'"(/[a-z]+)":', (PACKAGE / "daemon" / "health.py").read_text(encoding="utf-8")))
        table = rows(section(PAGES["docs/metrics.md"], "Paths"))
        assert served == {named(row[0])[0] for row in table if "`/" in row[0]}


def exists(name):
    """Tell whether a name of the pages is that of a script, a module, or an object in one."""
    if name.endswith(".lua") or "/" in name:
        return bool(list(PACKAGE.glob(f"**/{name}")))
    if name.split(".")[0] in {"Index", "Detector"}:
        owner = {"Index": Index, "Detector": Detector}[name.split(".")[0]]
        return "." not in name or hasattr(owner, name.split(".")[1])
    if importlib.util.find_spec(f"streamdedup.{name.split('.')[0]}") is None:
        return False
    parent, _, last = f"streamdedup.{name}".rpartition(".")
    return hasattr(importlib.import_module(parent), last) or importlib.util.find_spec(f"{parent}.{last}") is not None


class TestMake:
    @pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
    def test_every_target_named_exists(self, page):
        used = set(re.findall(r"(?:`|^ {4})make ([a-z-]+)", PAGES[page], re.MULTILINE))
        assert used
        assert used <= TARGETS

    def test_the_guide_lists_every_target(self):
        assert {named(row[0])[0] for row in rows(section(GUIDE, "Targets"))} == {f"make {t}" for t in TARGETS}

    def test_the_variables_of_the_tests_are_those_that_they_read(self):
        read = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
        variables = [named(row[0])[0] for row in rows(section(GUIDE, "Tests")) if row[0].strip("`").isupper()]
        assert len(variables) == 4
        assert all(f'"{variable}"' in read for variable in variables)


def test_the_shares_of_edited_copies_are_those_of_the_raw_page():
    raw = (ROOT / "docs" / "measurements" / "robustness.md").read_text(encoding="utf-8")
    measured = {cells[0]: cells for cells in rows(section(raw, "typical"))}
    for edit, strength, *ranges in rows(section(PAGES["docs/measurements.md"], "Robustness")):
        cells = measured[edit]
        assert cells[1] == strength
        for shown, kind in zip(ranges, (cells[2:5], cells[5:]), strict=True):
            shares = [int(share) for cell in kind for share in re.findall(r"(\d+) %$", cell)]
            assert shown == (f"{min(shares)} to {max(shares)} %" if min(shares) < max(shares) else f"{shares[0]} %")


def test_the_bytes_of_a_band_are_those_of_the_forecasts():
    effects = " ".join(section(PAGES["docs/measurements.md"], "Effect of settings").split())
    sets, packed = re.search(
        r'some (\d+) bytes with `redis.bucket_layout = "sets"` or (\d+) with `"packed"`', effects
    ).groups()
    assert {"sets": int(sets), "packed": int(packed)} == BAND_BYTES


def test_the_changelog_has_a_section_for_this_version():
    assert f"## [{__version__}]" in PAGES["CHANGELOG.md"]
    assert len(PAGES["CHANGELOG.md"].split()) <= 500


def test_a_page_names_no_place_of_one_machine():
    for page, text in PAGES.items():
        assert not re.search(r"(?<![\w.])/(?:work|root|home|tmp)/", text), page
