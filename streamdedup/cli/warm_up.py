"""Work before the first document or request, so that none waits for it; called by ``cli.run`` and ``cli.serve``.

The first text beyond ASCII builds the Unicode tables (0.2 s), and makes NumPy import modules that it imports late (for
``np.unique``). A full garbage collection visits all modules, classes and settings (40 ms). Lua scripts need no warm-up:
opening an index loads them into Redis.
"""

import gc
from collections.abc import Iterable
from typing import Final

from streamdedup.detection.model import DetectorOptions
from streamdedup.detection.preparation import Preparer
from streamdedup.position import Position
from streamdedup.wire import Document

#: A text for each step of the normalisation: accents, marks that compose, marks in the wrong order, a code point that
#: becomes several, an invisible character, Hangul, a script without spaces, a code point beyond 16 bits.
_TEXT: Final = "Die Fähre cafe\u0301 a\u0308\u0323 q\u0307\u0323 ﷺ co\u00adoperate \u1112\u1161\u11ab 渡し船は 𠀀"


def warm_up(options_of_profiles: Iterable[DetectorOptions]) -> None:
    """Prepare one document for each profile, whose options decide which tables are built; needs no server."""
    for options in options_of_profiles:
        Preparer(options).prepare([Document("0", _TEXT, Position("", 0, 0), 0)])


def freeze_heap() -> None:
    """Exclude present objects, most of which live as long as the process, from all later garbage collections."""
    gc.collect()
    gc.freeze()
