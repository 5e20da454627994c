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

from streamdedup import __version__, errors
from streamdedup.cli import main as cli
from streamdedup.cli.assembly import file_decoder
from streamdedup.daemon.metrics import Metrics
from streamdedup.detection.detector import Detector
from streamdedup.index import contract as index_contract
from streamdedup.index.memory import MemoryIndex
from streamdedup.indexes import detector_options
from streamdedup.position import Partition, Position
from streamdedup.serve.metrics import ServeMetrics
from streamdedup.settings import Settings
from streamdedup.settings.base import keys_of
from streamdedup.settings.schema import SECTIONS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "streamdedup"
#: All pages.
PAGES = {
    str(page.relative_to(ROOT)): page.read_text(encoding="utf-8")
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
}
README, GUIDE, DELIVERY = PAGES["README.md"], PAGES["CONTRIBUTING.md"], PAGES["docs/delivery.md"]
COMMANDS = PAGES["docs/commands.md"]
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
    def test_the_documents_of_the_readme_give_its_alert(self):
        documents = FENCE.search(README)[3].splitlines()
        (toml,) = blocks(README, "toml")
        (short,) = re.findall(r"```json short\n(.*?)```", README, re.DOTALL)
        profile = Settings.load(None, tomllib.loads(toml), {}).profiles["articles"]
        partition = Partition("articles", 0)
        store = MemoryIndex()
        store.open(profile.fingerprint())
        fence = store.fence(partition, 1, 0)
        decoder = file_decoder(profile)
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


class TestSettings:
    def test_every_settings_file_shown_is_valid(self, tmp_path):
        shown = [toml for page in PAGES.values() for toml in blocks(page, "toml")]
        assert shown
        for toml in shown:
            path = tmp_path / "streamdedup.toml"
            path.write_text(toml, encoding="utf-8")
            assert Settings.load(path, environ={}).profiles

    @pytest.mark.parametrize(
        "page", ["docs/delivery.md", "docs/deployment.md", "docs/operating.md", "docs/redis.md", "docs/guarantees.md"]
    )
    def test_every_key_named_exists(self, page):
        keys = {f"{name}.{key}" for name, model in SECTIONS.items() for key in keys_of(model)}
        used = set(re.findall(r"`((?:kafka|redis|service)\.[a-z_]+)`", PAGES[page]))
        assert used <= keys


def test_the_picture_of_the_curve_is_what_the_script_draws():
    spec = importlib.util.spec_from_file_location("plot_s_curve", ROOT / "docs" / "plot_s_curve.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PICTURE.read_text(encoding="utf-8") == module.draw(), "draw it anew: python docs/plot_s_curve.py"


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
    def test_the_rules_are_named_in_the_contract_as_they_are_in_the_page(self):
        contract = re.findall(r"(\d+)\. ([a-z -]+)[,.]\s", index_contract.__doc__)
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

    def test_every_path_of_the_health_server_is_listed(self):
        served = set(re.findall(r'"(/[a-z]+)":', (PACKAGE / "daemon" / "health.py").read_text(encoding="utf-8")))
        table = rows(section(PAGES["docs/metrics.md"], "Paths"))
        assert served == {named(row[0])[0] for row in table if "`/" in row[0]}


class TestMake:
    @pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
    def test_every_target_named_exists(self, page):
        used = set(re.findall(r"(?:`|^ {4})make ([a-z-]+)", PAGES[page], re.MULTILINE))
        assert used
        assert used <= TARGETS

    def test_the_guide_lists_every_target(self):
        assert {named(row[0])[0] for row in rows(section(GUIDE, "Targets"))} == {f"make {t}" for t in TARGETS}


def test_every_promise_says_how_it_is_tested():
    promises = rows(PAGES["docs/guarantees.md"].partition("\n## The rules behind it")[0])
    for *_, tested in promises:
        ways = named(tested)
        assert ways
        for way in ways:
            assert way.removeprefix("make ") in TARGETS or "def test_" in (ROOT / way).read_text(encoding="utf-8")


def test_the_changelog_has_a_section_for_this_version():
    assert f"## [{__version__}]" in PAGES["CHANGELOG.md"]
    assert len(PAGES["CHANGELOG.md"].split()) <= 500


def test_a_page_names_no_place_of_one_machine():
    for page, text in PAGES.items():
        assert not re.search(r"(?<![\w.])/(?:work|root|home|tmp)/", text), page
