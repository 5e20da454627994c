"""From texts to sets of 32-bit shingle hashes, a batch at a time.

    module           from                         to
    normalise        texts                        folded code points with class bits (letter, number, mark, ...)
    tokens           ASCII texts, or code points  elements (tokens or characters), one 64-bit hash each
    hashing          element hashes               sorted 32-bit hashes of all shingles of each document
    shingles         the three above              `ShingleBatch`: distinct hashes, stop words and stop shingles left out

`shingles` is the entry: `Shingler` for hashes, `normalise` for the folded text. `unicode_tables` has the tables behind
`normalise`. `stop_shingles` learns, writes and reads the shingles that too many documents share.
"""
