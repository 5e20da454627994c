"""Files of stop shingles: boilerplate that many documents share, and that a profile leaves out.

`stop_learning` learns them from a sample, `cli.stop_shingles` writes a file, and `settings.profile` reads it. The file
is fixed before the first document, so the pairs do not depend on the order of arrival. A new option of shingles that
changes hashes is added to `described_options`.

Format, UTF-8, version 1: a first line with the name of the format; lines `key = value` with the options of the shingles
and the size of the sample; an empty line; then one line for each shingle, ascending: the hash as eight hexadecimal
digits, a space, and the number of documents. The text of the shingles is not stored.
"""

import hashlib
import math
import re
from dataclasses import dataclass

from streamdedup.text.folding import look_alikes_version, variants_version
from streamdedup.text.shingles import ALGORITHM, ShingleOptions, folded_text

#: First line of a file.
HEADER = "streamdedup stop shingles, version 1"
#: Least number of documents with a stop shingle, for a sample of any size.
LEAST_DOCUMENTS = 3
_LINE = re.compile(r"([0-9a-f]{8}) ([1-9][0-9]*)")
_PAIR = re.compile(r"([a-z_]+) = (\S+)")


@dataclass(frozen=True, slots=True)
class StopShingles:
    """Stop shingles and the sample that they were learnt from.

    Attributes:
        counts: Number of documents by shingle hash; the largest of those in all documents and in those of one source.
        documents_count: Documents in the sample, copies counted once.
        share: Least share of the documents with a stop shingle.
        options: The `described_options` of the shingles.
    """

    counts: dict[int, int]
    documents_count: int
    share: float
    options: dict[str, str]

    @property
    def hashes(self) -> frozenset[int]:
        return frozenset(self.counts)

    @property
    def least_documents(self) -> int:
        return least_documents(self.share, self.documents_count)

    def encoded(self) -> str:
        head = self.options | {"documents": str(self.documents_count), "share": repr(self.share)}
        lines = [HEADER, *(f"{key} = {value}" for key, value in head.items()), ""]
        return "\n".join([*lines, *(f"{value:08x} {count}" for value, count in sorted(self.counts.items()))]) + "\n"


def least_documents(share: float, documents_count: int) -> int:
    """Return the least number of documents with a stop shingle, in a sample or a source with so many documents."""
    # Without `- 1e-9`, 0.07 * 100 would give 8: the product is a little more than 7 in floating point.
    return max(LEAST_DOCUMENTS, math.ceil(share * documents_count - 1e-9))


def described_options(options: ShingleOptions) -> dict[str, str]:
    """Return the options that decide on shingle hashes, as texts; a new one makes earlier files invalid."""
    return {
        "algorithm": str(ALGORITHM),
        "unit": options.unit,
        "size": str(options.size),
        "letters_only": str(options.letters_only).lower(),
        "fold_marks": str(options.fold_marks).lower(),
        "stop_words": digest_of_words(options.stop_words),
        # Word shingles are the same with and without the option, so files for them say true, the default.
        "keep_white_space": str(options.keep_white_space or options.unit == "word").lower(),
        "fold_variants": variants_version() if options.fold_variants else "false",
        "fold_look_alikes": look_alikes_version() if options.fold_look_alikes else "false",
        "keep_urls": str(options.keep_urls).lower(),
    }


def digest_of_words(words: frozenset[str]) -> str:
    """Return 16 BLAKE2b bytes, in hexadecimal, for the normalised tokens of a stop list; "none" for no tokens."""
    tokens = {token for word in words for token in folded_text(word).split()}
    return _digest("\n".join(sorted(tokens))) if tokens else "none"


def digest_of_hashes(hashes: frozenset[int]) -> str:
    """Return 16 BLAKE2b bytes, in hexadecimal, for stop shingles; "none" for no shingles."""
    return _digest("\n".join(f"{value:08x}" for value in sorted(hashes))) if hashes else "none"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def parse_stop_shingles(text: str) -> StopShingles:
    """Read a file; ValueError for the first wrong line continues a sentence that begins with the name of the file."""
    lines = text.split("\n")
    if lines[0] != HEADER:
        raise ValueError(f"is no file of stop shingles: its first line is not {HEADER!r}")
    head: dict[str, str] = {}
    expected = [*described_options(ShingleOptions()), "documents", "share"]
    for key, line in zip(expected, lines[1:], strict=False):
        if (pair := _PAIR.fullmatch(line)) is None or pair[1] != key:
            break
        head[key] = pair[2]
    place = len(head) + 1  # the first line has place 0, and number 1
    if len(head) < len(expected) or place == len(lines) or lines[place]:
        raise ValueError(f"line {place + 1}: the head must be {', '.join(expected)}, in this order, and an empty line")
    documents_count, share = _pop_sample(head)
    counts: dict[int, int] = {}
    last = -1
    for line_number, line in enumerate(lines[place + 1 :], place + 2):
        if not line and line_number == len(lines):
            break  # behind the last line feed
        entry = _LINE.fullmatch(line)
        if entry is None or int(entry[1], 16) <= last or int(entry[2]) > documents_count:
            raise ValueError(
                f"line {line_number}: must be eight hexadecimal digits, more than in the line before, a space and a "
                f"number of up to {documents_count} documents"
            )
        last = int(entry[1], 16)
        counts[last] = int(entry[2])
    return StopShingles(counts, documents_count, share, head)


def _pop_sample(head: dict[str, str]) -> tuple[int, float]:
    try:
        documents_count, share = int(head.pop("documents")), float(head.pop("share"))
    except ValueError as error:
        raise ValueError(f"has a wrong head: {error}") from None
    if documents_count < 0 or not 0 < share <= 1:
        raise ValueError(f"has a wrong head: {documents_count} documents, share {share}")
    return documents_count, share


def option_differences(stops: StopShingles, options: ShingleOptions) -> list[str]:
    """Return the options in which a file and a profile differ, as texts: the value in the file, not the profile's."""
    profile, file = described_options(options), stops.options
    return [f"{key} {file[key]}, not {profile[key]}" for key in profile if file[key] != profile[key]]
