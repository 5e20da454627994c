"""What others would use: shingles in Python, datasketch's MinHash, its LSH index in memory or in Redis."""

import pickle
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


def sign(texts: Iterable[str]) -> list[MinHash]:
    """Return datasketch's signatures, made in bulk, which is its fastest way; it wants bytes, each once."""
    distinct = ([shingle.encode() for shingle in set(python_shingles(text))] for text in texts)
    return list(MinHash.bulk(distinct, num_perm=PERMUTATIONS))


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


def redis_index(url: str, banding: Banding, *, plain: bool = False, **options: Any) -> MinHashLSH:
    """Return datasketch's index on a Redis server; not plain, its pipelines are no transactions, which is faster."""
    address = urlsplit(url)
    server = {"host": address.hostname, "port": address.port}
    config = {"type": "redis", "basename": b"peer", "redis": server}
    if not plain:
        config["redis_buffer"] = {"transaction": False}
    params = (banding.bands, banding.rows)
    return MinHashLSH(num_perm=PERMUTATIONS, params=params, storage_config=config, **options)


#: Looks up and inserts documents (ids, signatures); returns for each those that it met.
Step = Callable[[MinHashLSH, Sequence[str], Sequence[MinHash]], list[list[str]]]


def by_the_batch(index: MinHashLSH, ids: Sequence[str], signed: Sequence[MinHash]) -> list[list[str]]:
    """Query each document, and insert all of them in one session.

    Documents of one batch cannot see each other in the index, so they are compared in one of the batch's own.
    """
    batch = MinHashLSH(num_perm=PERMUTATIONS, params=(index.b, index.r))
    matches = []
    for document_id, signature in zip(ids, signed, strict=True):
        matches.append([*index.query(signature), *batch.query(signature)])
        batch.insert(document_id, signature, check_duplication=False)
    insert_all(index, zip(ids, signed, strict=True))
    return matches


def insert_all(index: MinHashLSH, documents: Iterable[tuple[Any, MinHash | LeanMinHash]]) -> None:
    """Insert documents (id, signature) in one session, which sends them in one pipeline for each band."""
    with index.insertion_session() as session:
        for document_id, signature in documents:
            session.insert(document_id, signature, check_duplication=False)


def as_documented(index: MinHashLSH, ids: Sequence[str], signed: Sequence[MinHash]) -> list[list[str]]:
    """Query and insert each document with what the library does by default."""
    matches = []
    for document_id, signature in zip(ids, signed, strict=True):
        matches.append(index.query(signature))
        index.insert(document_id, signature)
    return matches


def pipelined(index: MinHashLSH, ids: Sequence[str], signed: Sequence[MinHash]) -> list[list[str]]:
    """Look up and insert all documents of a batch in one pipeline, in turn, so that they see each other.

    The library has no method for it: the commands are those of its storage classes.
    """
    with index.hashtables[0]._redis.pipeline(transaction=False) as pipeline:
        for document_id, signature in zip(ids, signed, strict=True):
            member = pickle.dumps(document_id)
            band_values = [index._H(signature.hashvalues[start:end]) for start, end in index.hashranges]
            for table, band_value in zip(index.hashtables, band_values, strict=True):
                pipeline.smembers(table.redis_key(band_value))
                table._insert(pipeline, band_value, member)
            index.keys._insert(pipeline, member, *band_values)
        members = [reply for reply in pipeline.execute() if isinstance(reply, set)]
    bands = len(index.hashtables)
    return [
        [pickle.loads(member) for member in set().union(*members[first : first + bands])]
        for first in range(0, len(members), bands)
    ]


#: The way of a user who has read the documentation.
PLAIN = "as documented"
#: All ways, the fastest first: by the library's internals, by what it offers to a tuned program, and that one.
WAYS: dict[str, Step] = {"pipelined": pipelined, "by the batch": by_the_batch, PLAIN: as_documented}


def fill(index: MinHashLSH, texts: Sequence[str], count: int) -> None:
    """Insert so many documents: copies of texts that do not resemble each other, by their signatures."""
    signed = sign(texts)
    numbers = (divmod(number, len(signed)) for number in range(count))
    insert_all(index, ((f"{copy}-{article}", copied(signed[article], copy)) for copy, article in numbers))


def copied(signature: MinHash, copy: int) -> LeanMinHash:
    """Return the signature of a document in a copy: of the first copy as it is, of others with other values."""
    values = signature.hashvalues
    number = values.dtype.type(copy * SPREAD % 2**32)
    return LeanMinHash(seed=signature.seed, hashvalues=values ^ number, scheme=signature.scheme)
