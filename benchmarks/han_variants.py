"""Write the table of Han variants from the dictionaries of OpenCC.

    python -m benchmarks.han_variants FOLDER VERSION > streamdedup/text/han_variants.txt

FOLDER is ``data/dictionary`` of the source of OpenCC, VERSION its version. The table is part of the shingle
definition: a new one needs new indexes for profiles that fold variants.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

#: Dictionaries of regional standards: the traditional character, and the variants that the region writes instead.
_REGIONS = ("TWVariants", "HKVariants")
_HEAD = """\
# Han characters that are folded to one: the first of each line, by the others of the line.
# version = opencc-{version}
# Derived from the dictionaries {names}
# of OpenCC {version}, https://github.com/BYVoid/OpenCC, by Carbo Kuo and contributors, Apache License 2.0.
"""


def main() -> None:
    """Read the dictionaries and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("version")
    arguments = parser.parse_args()
    names = ", ".join(["TSCharacters", "STCharacters", *_REGIONS, "JPShinjitaiCharacters"])
    sys.stdout.write(_HEAD.format(names=names, version=arguments.version))
    variants: dict[str, list[str]] = defaultdict(list)
    for character, representative in folding(arguments.folder).items():
        variants[representative].append(character)
    for representative in sorted(variants):
        print(representative + "".join(sorted(variants[representative])))


def folding(folder: Path) -> dict[str, str]:
    """Return the character that each character is folded to.

    Traditional characters fold to simplified ones. A regional variant folds like the traditional character that it
    replaces. A Japanese new form folds like its old form, unless the new form is a simplified Chinese character too:
    a simplified character may then be another word (芸 is rue in Chinese, and art in Japanese).
    """
    simplified = {traditional: others[0] for traditional, others in _entries(folder, "TSCharacters") if others}
    folds = {character: variant for character, variant in simplified.items() if character not in simplified.values()}
    for name in _REGIONS:
        for traditional, variants in _entries(folder, name):
            _add(folds, dict.fromkeys(variants, traditional))
    chinese = {form for character, others in _entries(folder, "STCharacters") for form in (character, *others)}
    new_forms = {form: others[0] for form, others in _entries(folder, "JPShinjitaiCharacters") if others}
    _add(folds, {form: old for form, old in new_forms.items() if form not in chinese})
    return folds


def _entries(folder: Path, name: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each character of a dictionary with the other characters that the dictionary gives for it."""
    for line in (folder / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        character, _, others = line.partition("\t")
        if len(character) == 1 and character != "#":
            yield character, [variant for variant in others.split() if variant != character]


def _add(folds: dict[str, str], equal: Mapping[str, str]) -> None:
    """Fold each character like its equal, if nothing is folded to the character and the character is not folded."""
    representatives = set(folds.values())
    for character, variant in equal.items():
        representative = folds.get(variant, variant)
        if character not in folds and character not in representatives and character != representative:
            folds[character] = representative
            representatives.add(representative)


if __name__ == "__main__":
    main()
