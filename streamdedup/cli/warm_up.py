"""Work that daemon and HTTP service do before the first document or request, so that none waits for it.

The first text beyond ASCII builds the Unicode tables (0.2 s), and makes NumPy import modules that it imports late (for
``np.unique``). A full garbage collection visits all modules, classes and settings (40 ms). Lua scripts need no warm-up:
opening an index loads them into Redis.
"""

import gc
from collections.abc import Iterable

from streamdedup.daemon.batch import Pipeline
from streamdedup.detection.detector import Detector
from streamdedup.detection.lookup import IndexLookup, LookupQuery
from streamdedup.detection.model import DetectorOptions
from streamdedup.index.memory import MemoryIndex
from streamdedup.position import Partition, Position
from streamdedup.wire import Document

#: One text for each path of the normalisation: ASCII, Latin with an accent, a mark that composes, two marks in the
#: wrong order, marks that only `unicodedata` composes, one code point that becomes several, an invisible character,
#: Hangul, scripts without spaces, code points beyond 16 bits.
_TEXTS = (
    "The ferry runs again on the first of May.",
    "Die Fähre fährt wieder am ersten Mai.",
    "le cafe\u0301 du port",
    "\u0628\u064e\u0651 \u0634\u0651\u0650 q\u0307\u0323",
    "a\u0308\u0323\u0304 o\u0302\u0301\u0323 \u1112\u1161\u11ab\u1100\u1173\u11af",
    "ﬁve ﷺ …",
    "co\u00adoperate zero\u200bwidth",
    "각하 한글",
    "渡し船は五月一日から เรือ",
    "\U0001d4bberry 🛳 𠀀",
)
#: Partition that the sample documents come from.
_PARTITION = Partition("", 0)


def warm_up(pipelines: Iterable[Pipeline]) -> None:
    """Prepare a sample document for each path of the normalisation, which needs no server.

    Args:
        pipelines: The daemon's pipelines. Their settings, such as ``fold_variants``, decide which tables are built.
    """
    documents = _documents()
    for pipeline in pipelines:
        pipeline.detector.prepare(documents)


def warm_up_lookups(profiles: Iterable[DetectorOptions]) -> None:
    """Insert the same sample documents in an index in memory, and look them up.

    Args:
        profiles: Options by served profile.
    """
    for options in profiles:
        index = MemoryIndex()
        index.open({})
        detector, fence = Detector(options, index), index.fence(_PARTITION, 1, 0)
        detector.index(detector.prepare(_documents()), {_PARTITION: fence})
        IndexLookup(options, index).look_up([LookupQuery(text) for text in _TEXTS], 0)


def _documents() -> list[Document]:
    return [Document(str(offset), text, Position(*_PARTITION, offset), 0) for offset, text in enumerate(_TEXTS)]


def freeze_heap() -> None:
    """Exclude the objects that exist now from all later garbage collections.

    Most of them are modules, classes and settings, which live as long as the process.
    """
    gc.collect()
    gc.freeze()
