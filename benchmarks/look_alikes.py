"""Write the table of look-alike letters from the table of confusable characters in the crate unicode-security.

    python -m benchmarks.look_alikes FILE VERSION > streamdedup/text/look_alikes.txt

FILE is ``src/tables.rs`` of the crate, VERSION the version of Unicode that the file names. The table is part of the
shingle definition: a new one needs new indexes for profiles that fold look-alikes.
"""

import argparse
import re
import unicodedata
from collections import defaultdict
from pathlib import Path

_HEAD = """\
# Letters that are folded to the Latin letter at the beginning of their line.
# version = unicode-{0}
# Derived from confusables.txt of Unicode {0} (Technical Standard 39), Copyright 1991-2026 Unicode, Inc.,
# SPDX-License-Identifier: Unicode-3.0, see LICENSE-UNICODE."""
_ENTRY = re.compile(r"\('(.*?)',\s*&\[(.*?)\]\)", re.DOTALL)
_POINT = re.compile(r"\\u\{([0-9a-f]+)\}")


def main() -> None:
    """Read the table of the crate and print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("version")
    arguments = parser.parse_args()
    print(_HEAD.format(arguments.version))
    letters: dict[str, list[str]] = defaultdict(list)
    for letter, latin in folding(arguments.file.read_text(encoding="utf-8")).items():
        letters[latin].append(letter)
    for latin in sorted(letters):
        print(latin + "".join(sorted(letters[latin])))


def folding(source: str) -> dict[str, str]:
    """Return the Latin letter for each letter, in lower case, of scripts with capitals that looks like it.

    The prototype of the lower-case letter goes before that of the capital: Greek nu is like v, its capital like N.
    """
    prototypes = {_text(points): _text(prototype) for points, prototype in _ENTRY.findall(source)}
    folds: dict[str, str] = {}
    for character, prototype in prototypes.items():
        small = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", character).casefold())
        is_cased = len(small) == 1 and not small.isascii() and unicodedata.category(small) in {"Ll", "Lu"}
        if is_cased and len(prototype) == 1 and prototype.isascii() and prototype.isalpha():
            folds[small] = prototype.lower() if character == small else folds.get(small, prototype.lower())
    for character in map(chr, range(0x10000)):
        base, *marks = unicodedata.normalize("NFD", character)
        latin = unicodedata.normalize("NFC", folds.get(base, "") + "".join(marks))
        if base in folds and len(latin) == 1 and character.islower() and unicodedata.is_normalized("NFC", character):
            folds[character] = latin
    return folds


def _text(points: str) -> str:
    return "".join(chr(int(point, 16)) for point in _POINT.findall(points))


if __name__ == "__main__":
    main()
