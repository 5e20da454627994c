"""docs/architecture.md names files that exist, and every folder of the package."""

import re
from pathlib import Path

from test_docs import named, prose, section

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "streamdedup"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
#: A path of the page: in the repository or in the package.
PATH = re.compile(r"[\w-]+(?:/[\w-]+)+\.(?:py|lua|toml|md)|[\w-]+(?:/[\w-]+)*/")


def test_every_path_exists():
    paths = {name for name in named(prose(PAGE)) if PATH.fullmatch(name) and "NAME" not in name}
    assert not {path for path in paths if not ((ROOT / path).exists() or (PACKAGE / path).exists())}


def test_the_chain_of_values_names_classes_and_methods_that_exist():
    (drawing,) = re.findall(r"```text\n type .*?```", PAGE, re.DOTALL)
    sources = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    for class_name, method in set(re.findall(r"\b([A-Z][a-z]\w+)(?:\.(\w+))?", drawing)):
        body = re.search(rf"^class {class_name}\b.*?(?=^\S)", sources, re.DOTALL | re.MULTILINE)
        assert body, class_name
        assert not method or f"def {method}(" in body[0], method


def test_every_folder_of_the_package_has_a_paragraph():
    paragraphs = re.findall(r"^\*\*`.*", section(PAGE, "Folders"), re.MULTILINE)
    folders = {name for text in paragraphs for name in re.findall(r"\*\*`(\w+)/`\*\*", text)}
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} <= folders
    assert not {folder for folder in folders if not (PACKAGE / folder).is_dir()}


def test_every_module_at_the_top_level_is_named():
    modules = {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    (paragraph,) = re.findall(r"^\w+ modules are at the top level.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    assert set(named(paragraph)) == modules
