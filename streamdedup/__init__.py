"""Streaming near-duplicate detection: documents in from Kafka, verified near-duplicate alerts out.

Programs use ``Index`` and ``Profile`` (``streamdedup.library``). They are imported when they are first used: every
command of the command line imports this package, and few need the library, whose imports take time.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamdedup.library import LibraryIndex as Index
    from streamdedup.library import LibraryProfile as Profile
    from streamdedup.library import Match

__version__ = "0.1.0"

__all__ = ["Index", "Match", "Profile", "__version__"]

# Not for type checkers, for which a module with ``__getattr__`` has every name; they use the imports above.
if not TYPE_CHECKING:
    #: Class in ``streamdedup.library`` by exported name.
    _EXPORTS = {"Index": "LibraryIndex", "Match": "Match", "Profile": "LibraryProfile"}

    def __getattr__(name: str) -> object:
        if name not in _EXPORTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("streamdedup.library"), _EXPORTS[name])

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
