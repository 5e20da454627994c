"""Retired words: names and phrases that the vocabulary of docs/architecture.md replaces, looked for in pages and code.

    python -m tests.words

prints for each folder of the package how many names have a retired word, how many docstrings and comments a retired
phrase, and per 10,000 words of docstrings "what / whatever / whoever", "stands / stood" and pronouns.
"""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "streamdedup"

#: Retired in prose: pattern, and the words to use instead.
PROSE = {
    r"whoever|whatever": "the noun that is meant",
    r"what (is|are|was|were)": "the noun that is meant",
    r"stands?|stood": "is, is at, is in; standby; represents",
    r"(come|comes|came|coming) to": "gives, reaches, results in",
    r"his|him|ours": "the noun that is meant",
    r"shelf|shelves": "bucket page",
    r"eras?": "page generation",
    r"portions?": "chunk, part",
    r"enters?|entered|entering": "is inserted into",
    r"meets?|met|meeting": "finds, looks up, shares a bucket with",
    r"puts?|putting": "insert, give, rewind, restore",
    r"withdraws?|withdrawn|withdrew": "remove",
    r"(take|takes|taken|taking|took) (it |them )?out": "remove, evict",
    r"(leave|leaves|left|leaving) (its|their|the|all|of) (old )?buckets?": "is removed from its buckets",
    r"outbox": "publisher",
    r"intake": "decoding",
    r"holdings": "partition ownership",
    r"enlist(s|ed)?": "list for backlog expiry",
    r"loud": "emitting",
    r"crowded": "near capacity, full",
    r"life": "lifetime, lifecycle, incarnation",
    r"partners?": "match, pending match, other document",
    r"drafts?": "staging index",
    r"notes?|noted": "attempt id, announced attempt",
    r"figures?": "number, measurement, statistics",
    r"frames?": "boilerplate",
    r"coroner": "miss classifier",
    r"(?<=the )marks?|(?<=a )mark": "high-water mark",
}
#: Patterns of PROSE that have another meaning on some pages: Unicode's combining marks.
ELSEWHERE = {"docs/text.md": ("(?<=the )marks?|(?<=a )mark",)}

#: Retired parts of identifiers, split at underscores and capitals.
PARTS = re.compile(
    "ages|announcements?|coroner|crowded|drafts?|enlist(ed)?|enters?|entering|eras?|figures|holdings|intake|life|lives|loud|"
    "meets?|meetings?|met|note[ds]?|outbox|partners?|portions?|puts?|shel(f|ves)|sites?|stands|stood|templates?|whatever|"
    "whoever|withdrawn?"
)
#: Parts that are retired in some places and have another meaning in others: rights of users, marks in texts, members
#: that leave a group, frames of a stack.
PARTS_OF = {
    "rights": ("daemon", "detection", "index/contract.py", "index/memory.py", "index/redis/store.py", "testing"),
    "mark": ("daemon", "detection", "index", "cli/index_status.py"),
    "marks": ("daemon", "detection", "index", "cli/index_status.py"),
    "work": ("daemon",),
    "outcome": ("daemon", "detection"),
    "leave": ("detection", "index"),
    "leaves": ("detection", "index"),
    "leaving": ("detection", "index"),
    "frame": ("detection", "text", "tuning"),
    "frames": ("detection", "text", "tuning"),
}
#: Names given by Python and libraries, and names that users rely on.
GIVEN = frozenset({"__enter__", "at_work"})

#: Retired in docstrings and comments: the constructions, not the single words, which a docstring may need.
DOCSTRINGS = (
    r"whoever|whatever",
    r"what (is|are|was|were)",
    r"stands?|stood",
    r"(come|comes|came|coming) to",
    r"his|him|he|ours",
    r"shelf|shelves|eras?|portions?|coroner|holdings|outbox|intake|loud|crowded",
    r"enters|entered|enter (a|the|its|each)|meets?|met|withdrawn?|partners?",
)
PRONOUNS = r"he|him|his|who|whom|it|its|they|them|their|we|us|our|ours|one|that|this|those|these|which"

_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_GENERATED = re.compile(r"<!-- (?:bench|experiment|plan|settings|demo).*?<!-- end of .*?-->", re.DOTALL)
_CODE = re.compile(r"``?[^`\n]+``?")
_TARGET = re.compile(r"\]\([^)\n]*\)")


def prose_of(page: str) -> str:
    """Return a page without examples, generated tables, code and addresses; lines keep their numbers."""
    for pattern in (_FENCE, _GENERATED, _CODE, _TARGET):
        page = pattern.sub(lambda match: "\n" * match[0].count("\n"), page)
    return page


def found(text: str, pattern: str) -> list[tuple[int, str]]:
    """Return line and text of each occurrence of a pattern, as whole words."""
    occurrences = re.finditer(rf"(?<![\w-])(?:{pattern})(?![\w-])", text, re.IGNORECASE)
    return [(text.count("\n", 0, match.start()) + 1, match[0]) for match in occurrences]


def in_page(name: str, page: str) -> list[str]:
    """Return a line for each retired word of a page."""
    text = prose_of(page)
    return [
        f"{name}:{line}: {word!r} (use: {instead})"
        for pattern, instead in PROSE.items()
        if pattern not in ELSEWHERE.get(name, ())
        for line, word in found(text, pattern)
    ]


def folders() -> list[str]:
    """Return the folders and top-level modules of the package."""
    return sorted(path.name for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())


def sources(folder: str) -> list[Path]:
    """Return the Python modules and Lua scripts of a folder, or the module of that name."""
    path = PACKAGE / folder
    return [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.suffix in {".py", ".lua"})


def names_of(path: Path) -> Iterator[str]:
    """Yield the names that a module or script defines: itself, classes, functions, arguments, attributes, variables."""
    yield path.stem
    if path.suffix == ".lua":
        yield from re.findall(r"[A-Za-z_]\w*", re.sub(r"--.*", "", path.read_text(encoding="utf-8")))
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def parts_of(name: str) -> list[str]:
    """Split an identifier into its words, in lower case."""
    return [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name.replace("high_water_mark", ""))]


def class_names() -> Counter[str]:
    """Count the classes of the package by name."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")]
    return Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def is_retired(part: str, path: Path) -> bool:
    """Tell whether a part of an identifier is retired in a file."""
    place = path.relative_to(PACKAGE).as_posix()
    return bool(PARTS.fullmatch(part)) or any(
        place == of or place.startswith(f"{of}/") for of in PARTS_OF.get(part, ())
    )


def in_identifiers(folder: str) -> list[str]:
    """Return a line for each identifier with a retired word."""
    return [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources(folder)
        for name in dict.fromkeys(names_of(path))
        if name not in GIVEN and any(is_retired(part, path) for part in parts_of(name))
    ]


def docstrings_of(path: Path) -> list[str]:
    """Return the docstrings of a module, without code and directives."""
    if path.suffix != ".py":
        return []
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, documented)]
    return [_CODE.sub(" ", text) for node in nodes if (text := ast.get_docstring(node))]


def comments_of(path: Path) -> list[str]:
    """Return the comments of a module or script, one for each line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".lua":
        comments = re.findall(r"--(.*)", text)
    else:
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return [_CODE.sub(" ", comment) for comment in comments]


def in_docstrings(folder: str) -> list[str]:
    """Return a line for each retired construction in the docstrings and comments of a folder."""
    return [
        f"{path.relative_to(ROOT)}: {word!r} in {' '.join(text.split())[:90]!r}"
        for path in sources(folder)
        for text in [*docstrings_of(path), *comments_of(path)]
        for pattern in DOCSTRINGS
        for _, word in found(text, pattern)
    ]


def main() -> None:
    """Print the counts of each folder."""
    columns = f"{'names':>7}{'phrases':>9}{'words':>8}   per 10,000: {'what':>6}{'stands':>8}{'pronouns':>10}"
    print(f"{'folder':<14}{columns}")
    total: Counter[str] = Counter()
    for folder in folders():
        texts = [text for path in sources(folder) for text in docstrings_of(path)]
        counts = Counter(
            names=len(in_identifiers(folder)),
            phrases=len(in_docstrings(folder)),
            words=sum(len(re.findall(r"\w+", text)) for text in texts),
            what=sum(len(found(text, "what|whatever|whoever")) for text in texts),
            stands=sum(len(found(text, "stands?|stood")) for text in texts),
            pronouns=sum(len(found(text, PRONOUNS)) for text in texts),
        )
        total.update(counts)
        _print(folder, counts)
    _print("all", total)


def _print(folder: str, counts: Counter[str]) -> None:
    share = {name: 10_000 * counts[name] / max(counts["words"], 1) for name in ("what", "stands", "pronouns")}
    shown = f"{share['what']:>6.0f}{share['stands']:>8.0f}{share['pronouns']:>10.0f}"
    print(f"{folder:<14}{counts['names']:>7}{counts['phrases']:>9}{counts['words']:>8}               {shown}")


if __name__ == "__main__":
    main()
