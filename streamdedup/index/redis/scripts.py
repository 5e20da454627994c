"""The Lua scripts of the Redis store: one file an operation, its keys and arguments explained on top."""

from dataclasses import dataclass
from hashlib import sha1
from importlib import resources

#: Scripts in front of which the fence is checked.
_FENCED = (
    "announce",
    "drop_entries",
    "insert_copies",
    "remove_copies",
    "insert_sets",
    "save_read_start",
    "list_expiring",
    "set_watermarks",
    "raise_mark",
    "remove_sets",
    "save_pending_matches",
    "set_clusters",
    "settle",
    "unlist",
)
#: Those in front of which position order is explained besides.
_OF_RECORDS = ("insert_entries", "replace_entries")
#: Those in front of which the pages of claims are explained besides.
_OF_CLAIMS = ("claim_pairs", "drop_claims")
#: Those in front of which bucket pages are explained besides.
_OF_PAGES = ("insert_packed", "remove_packed")
_UNFENCED = ("count_documents", "hold_staging", "oldest_slice", "read_entries", "set_fence")


@dataclass(frozen=True, slots=True)
class Script:
    """One script.

    Attributes:
        source: Its text, the check of the fence included.
        sha: The name by which the server calls it: the SHA-1 of its text, as hexadecimal digits.
    """

    source: bytes
    sha: str


def _read(name: str) -> bytes:
    return resources.files("streamdedup.index.redis").joinpath("lua", f"{name}.lua").read_bytes()


def _script(source: bytes) -> Script:
    return Script(source, sha1(source, usedforsecurity=False).hexdigest())


def load_probe() -> Script:
    """Read the script that finds out which rights the user lacks."""
    return _script(_read("try_rights"))


def load_naming(script: Script) -> Script:
    """Return a script that does the same, and names the key when a command meets a value of another type."""
    return _script(_read("_naming") + script.source)


def load_scripts() -> dict[str, Script]:
    """Read all scripts, by name."""
    fence, order, pages = _read("_fence"), _read("_records"), _read("_pages")
    fenced = {name: _script(fence + _read(name)) for name in _FENCED}
    fenced |= {name: _script(fence + order + _read(name)) for name in _OF_RECORDS}
    fenced |= {name: _script(fence + _read("_claims") + _read(name)) for name in _OF_CLAIMS}
    fenced |= {name: _script(fence + pages + _read(name)) for name in _OF_PAGES}
    return fenced | {name: _script(_read(name)) for name in _UNFENCED}
