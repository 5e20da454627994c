"""docs/architecture.md names modules, tests and functions that exist, and every folder of the package."""

import re
from collections import Counter
from pathlib import Path

import pytest
from test_docs import named, prose, rows, section

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "streamdedup"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
RECIPES = (
    "Add an input file format",
    "Add a Kafka value format",
    "Add a similarity measure",
    "Add a store",
    "Add a command",
    "Add a metric",
    "Add an HTTP endpoint",
)
#: A path of the page: in the repository or in the package.
PATH = re.compile(r"[\w-]+(?:/[\w-]+)*/?(?:\.(?:py|lua|toml|md))|[\w-]+(?:/[\w-]+)*/")


def paths():
    return sorted({name for name in named(prose(PAGE)) if PATH.fullmatch(name) and "NAME" not in name})


def folder_paragraphs():
    """The paragraphs about folders: the folder that each begins with, and the modules that it names."""
    text = PAGE.split("\n## Folders\n")[1].split("\n## ")[0]
    return [(re.findall(r"\*\*`(\w+)/`\*\*", part), part) for part in text.split("\n\n") if part.startswith("**`")]


@pytest.mark.parametrize("path", [path for path in paths() if "/" in path])
def test_every_path_exists(path):
    assert (ROOT / path).exists() or (PACKAGE / path).exists()


@pytest.mark.parametrize(
    ("folders", "paragraph"), folder_paragraphs(), ids=lambda value: value[0] if isinstance(value, list) else "text"
)
def test_every_module_named_in_the_paragraph_of_a_folder_is_in_it(folders, paragraph):
    modules = {name for name in named(paragraph) if re.fullmatch(r"\w+\.py", name)}
    assert not {name for name in modules if not any((PACKAGE / folder / name).exists() for folder in folders)}


def test_every_folder_of_the_package_has_a_paragraph():
    # Without folders that hold nothing but compiled modules of an earlier version.
    folders = {
        path.name
        for path in PACKAGE.iterdir()
        if path.name != "__pycache__" and any(each.is_file() for each in path.glob("[!_]*"))
    } | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert {folder for found, _ in folder_paragraphs() for folder in found} == folders


def test_every_module_at_the_top_level_is_named():
    modules = {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    (paragraph,) = re.findall(r"^\w+ modules are at the top level.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    assert set(named(paragraph)) == modules


def test_there_is_a_recipe_for_each_common_change_and_each_names_its_files():
    assert tuple(re.findall(r"^### (Add .+)$", PAGE, re.MULTILINE)) == RECIPES
    for recipe in RECIPES:
        assert [name for name in named(section(PAGE, recipe)) if name.startswith("streamdedup/")]


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_name_of_a_recipe_is_in_a_file_of_the_recipe(recipe):
    text = section(PAGE, recipe)
    files = [name for name in named(text) if (ROOT / name).is_file()]
    sources = "".join((ROOT / name).read_text(encoding="utf-8") for name in files)
    identifiers = {name for name in named(text) if re.fullmatch(r"[A-Za-z_]+(\.[a-z_]+)?", name)}
    assert {name for name in identifiers if name.rpartition(".")[2] not in sources} <= {"evaluate"}


def test_the_layers_are_those_of_the_import_contracts():
    contracts = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    layers = re.search(r"layers = \[\n(.*?)\n\]", contracts, re.DOTALL)[1]
    declared = [re.findall(r"\w+", line) for line in layers.splitlines() if "__main__" not in line]
    shown = re.search(r"Imports go downwards:\*\* (.*?)\. The contracts", PAGE, re.DOTALL)[1]
    # The modules at the top level are one layer on the page.
    merged = [*declared[:-2], [*declared[-2], *declared[-1]]]
    assert [set(named(layer)) for layer in shown.split("->")] == [set(layer) for layer in merged]


def test_a_term_of_the_vocabulary_has_one_row():
    terms = [term.strip() for row in rows(section(PAGE, "Vocabulary")) for term in row[0].split(",")]
    assert len(terms) > 40
    assert len(set(terms)) == len(terms)


def test_every_class_of_the_package_has_a_name_of_its_own():
    modules = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    classes = Counter(name for text in modules for name in re.findall(r"^class (\w+)", text, re.MULTILINE))
    assert [name for name, count in classes.items() if count > 1] == []
