"""Splits documents into chunks, each of which is prepared, inserted and looked up at once.

Called by ``daemon.batch``, ``writing`` and ``cli.scan``.
"""

from collections.abc import Iterable, Iterator

from streamdedup.wire import Document

#: Largest number of documents in a chunk. Arrays of this length fit into the processor's cache, hundreds of matches
#: for each document stay within bounds of memory and time, and a script call keeps a Redis server busy for some 3 ms.
CHUNK_DOCUMENTS = 1_000
#: Largest number of characters in a chunk of several documents; bounds the memory for their shingles.
CHUNK_CHARACTERS = 4 * 2**20


def split_documents(documents: Iterable[Document], size: int, characters: int) -> Iterator[list[Document]]:
    """Split documents into chunks, in order: ``a b a' -c d`` (a' a new version, -c a deletion) into ``a b|a'|-c|d``.

    - A chunk has either deletions only, or no deletion: a deleted document matches the documents before the deletion
      and none after it.
    - A chunk has one version of a document, and redeliveries of it from the same partition. So each version is
      compared, also one that a later version replaces: an earlier attempt at the batch may have inserted the version
      and ended before it claimed the version's pairs.
    - A chunk has at most ``size`` documents and, unless it is a single document, at most ``characters`` characters.
    """
    chunk: list[Document] = []
    length = 0
    latest: dict[str, Document] = {}
    for document in documents:
        earlier = latest.get(document.id)
        is_deletion = document.op == "delete"
        # A deletion after a version is no new version here: `is_mixed` ends the chunk.
        is_new_version = earlier is not None and not (is_deletion or _is_redelivery(document, earlier))
        is_full = len(chunk) == size or length + len(document.text) > characters
        is_mixed = bool(chunk) and is_deletion != (chunk[0].op == "delete")
        if chunk and (is_full or is_new_version or is_mixed):
            yield chunk
            chunk, latest, length = [], {}, 0
        chunk.append(document)
        length += len(document.text)
        latest[document.id] = document
    if chunk:
        yield chunk


def _is_redelivery(document: Document, earlier: Document) -> bool:
    """Tell whether a document has the content of an earlier one; an append changes the content in any case."""
    is_same_partition = document.position.topic_partition == earlier.position.topic_partition
    is_same_content = document.text == earlier.text and document.scope == earlier.scope
    return is_same_partition and document.op == earlier.op == "upsert" and is_same_content
