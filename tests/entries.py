"""Index entries for tests that look at the index and not at texts."""

import numpy as np

from streamdedup.index.documents import Content
from streamdedup.similarity.sketch import Sketch


def content_of(name: bytes = b"a", hashes_count: int = 4) -> Content:
    """Return a content that differs from that of another name; ``hashes_count`` decides on its size."""
    first = int.from_bytes(name[-3:], "big")
    hashes = np.arange(first, first + hashes_count, dtype=np.uint32)
    return Content(Sketch(hashes_count, hashes), 3, 3, (first, 2**64 - 1))
