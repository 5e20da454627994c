"""What others would use: shingles in Python, datasketch's MinHash, its LSH index in memory or in Redis."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

from datasketch import LeanMinHash, MinHash, MinHashLSH  # type: ignore[import-untyped]

from benchmarks.growth import SPREAD
from streamdedup.similarity.lsh import Banding

#: As ours: words in a shingle, values in a signature, least similarity.
SHINGLE_SIZE, PERMUTATIONS, THRESHOLD = 3, 128, 0.8
WORD = re.compile(r"[^\W_]+")


def python_shingles(text: str) -> list[str]:
    """Return the word shingles of a text as Python makes them fastest, repetitions included."""
    words = WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return list(map(" ".join, zip(words, words[1:], words[2:], strict=False))) or [" ".join(words)]


def sign_shingles(shingles: Iterable[Iterable[str]], permutations: int = PERMUTATIONS) -> list[MinHash]:
    """Return datasketch's signatures, made in bulk, which is its fastest way; it wants bytes, each once."""
    return list(MinHash.bulk(([one.encode() for one in set(own)] for own in shingles), num_perm=permutations))


def sign(texts: Iterable[str]) -> list[MinHash]:
    """Return datasketch's signatures of texts."""
    return sign_shingles(map(python_shingles, texts))


def sign_plainly(texts: Iterable[str]) -> list[MinHash]:
    """Return datasketch's signatures as its documentation makes them: one document and one shingle at a time."""
    signed = []
    for text in texts:
        signature = MinHash(num_perm=PERMUTATIONS)
        for shingle in set(python_shingles(text)):
            signature.update(shingle.encode())
        signed.append(signature)
    return signed


def own_banding() -> Banding:
    """Return the bands and rows that datasketch chooses for the threshold."""
    index = MinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS)
    return Banding(index.b, index.r)


def memory_index(banding: Banding) -> MinHashLSH:
    """Return an empty index in this process."""
    return MinHashLSH(num_perm=PERMUTATIONS, params=(banding.bands, banding.rows))


def redis_index(url: str, banding: Banding, *, plain: bool = False, **options: Any) -> MinHashLSH:
    """Return datasketch's index on a Redis server; not plain, its pipelines are no transactions, which is faster."""
    address = urlsplit(url)
    config = {
        "type": "redis",
        "basename": b"peer",
        "redis": {"host": address.hostname, "port": address.port},
    }
    if not plain:
        config["redis_buffer"] = {"transaction": False}
    params = (banding.bands, banding.rows)
    return MinHashLSH(num_perm=PERMUTATIONS, params=params, storage_config=config, **options)


#: Looks up and inserts documents (ids, signatures); returns for each those that it met.
Step = Callable[[MinHashLSH, Banding, Sequence[str], Sequence[MinHash]], list[list[str]]]


def one_by_one(index: MinHashLSH, _: Banding, ids: Sequence[str], signed: Sequence[MinHash]) -> list[list[str]]:
    """Query and insert each document; the check for a key that is there already is left out, in the peer's favour."""
    found = []
    for one, signature in zip(ids, signed, strict=True):
        found.append(index.query(signature))
        index.insert(one, signature, check_duplication=False)
    return found


def by_the_batch(index: MinHashLSH, banding: Banding, ids: Sequence[str], signed: Sequence[MinHash]) -> list[list[str]]:
    """Query each document, and insert all of them in one session.

    Documents of one batch cannot see each other in the index, so they are compared in one of the batch's own.
    """
    batch = memory_index(banding)
    found = []
    for one, signature in zip(ids, signed, strict=True):
        found.append([*index.query(signature), *batch.query(signature)])
        batch.insert(one, signature, check_duplication=False)
    insert_all(index, banding, ids, signed)
    return found


def insert_all(index: MinHashLSH, _: Banding, ids: Sequence[str], signed: Sequence[MinHash]) -> list[list[str]]:
    """Insert documents in one session, which sends them in one pipeline for each band, and look up nothing."""
    with index.insertion_session() as session:
        for one, signature in zip(ids, signed, strict=True):
            session.insert(one, signature, check_duplication=False)
    return []


def as_documented(index: MinHashLSH, _: Banding, ids: Sequence[str], signed: Sequence[MinHash]) -> list[list[str]]:
    """Query and insert each document with what the library does by default."""
    found = []
    for one, signature in zip(ids, signed, strict=True):
        found.append(index.query(signature))
        index.insert(one, signature)
    return found


#: The two ways of a streaming user who has tuned it.
STEPS: dict[str, Step] = {"one by one": one_by_one, "by the batch": by_the_batch}
#: The way of one who has read the documentation.
PLAIN = "as documented"
#: All of them.
WAYS = {PLAIN: as_documented, **STEPS}


def fill(index: MinHashLSH, texts: Sequence[str], count: int) -> None:
    """Insert so many documents: copies of texts that do not resemble each other, by their signatures."""
    signed = sign(texts)
    with index.insertion_session() as session:
        for number in range(count):
            copy, at = divmod(number, len(signed))
            session.insert(f"{copy}-{at}", copied(signed[at], copy), check_duplication=False)


def copied(signature: MinHash, copy: int) -> LeanMinHash:
    """Return the signature of a document in a copy: of the first copy as it is, of others with other values."""
    values = signature.hashvalues
    number = values.dtype.type(copy * SPREAD % 2**32)
    return LeanMinHash(seed=signature.seed, hashvalues=values ^ number, scheme=signature.scheme)
