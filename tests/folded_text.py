"""Folded text under any options of shingles, as `streamdedup.text.shingles.folded_text` without options."""

from streamdedup.text.folding import FoldOptions
from streamdedup.text.normalise import fold
from streamdedup.text.tokens import spaced_text
from streamdedup.text.unicode_tables import LETTER, NUMBER


def folded_text(text, *, letters_only=False, fold_marks=False, fold_variants=False, fold_look_alikes=False):
    folded = fold([text], FoldOptions(fold_marks, fold_variants, fold_look_alikes))
    inside = (folded.packed & (LETTER if letters_only else LETTER | NUMBER)) != 0
    return " ".join(spaced_text(folded.packed, inside).split())
