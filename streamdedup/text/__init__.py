"""From texts to sets with 32-bit shingle hashes, a batch at a time.

    module           from                         to
    normalise        texts                        folded code points with class bits (letter, number, mark, ...)
    tokens           ASCII texts, or code points  elements (tokens or characters), one 64-bit hash each
    element_hashes   slices of tokens             64-bit hashes
    shingle_hashes   element hashes               sorted 32-bit shingle hashes by document
    shingles         the four above               `ShingleBatch`: distinct hashes, stop words and stop shingles left out

`shingles` is the entry: `Shingler` for hashes, `folded_text` for normalised text. `mark_repair` does step 2 of
`normalise`, and `unicode_tables` has the tables of both. `markup` finds URLs, which a profile may leave out, and HTML.
`stop_words` has an English list of stop words. `stop_shingles` reads and writes the shingles that too many documents
share, which `stop_learning` learns. `alignment` shows the differences of two texts to people.
"""
