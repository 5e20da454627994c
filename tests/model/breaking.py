"""For each rule what goes wrong without it, and the kind of run in which that is soon seen."""

from typing import Any, NamedTuple


class Breaking(NamedTuple):
    """What a rule prevents.

    Attributes:
        kind: The kind of mistake, an attribute of ``Verdict``.
        climate: What is not left to the seed; see ``Climate``.
    """

    kind: str
    climate: dict[str, Any]


def _in(kind: str, kinds: str = "", faults: str = "", **climate: Any) -> Breaking:
    fixed = {
        "kinds": frozenset(kinds.split()),
        "faults": frozenset(faults.split()),
        "doubt": 0,
        "window": None,
        "ahead": False,
    }
    return Breaking(kind, fixed | climate)


#: Two daemons with a partition each, and texts that are mostly alike.
_RACE: dict[str, Any] = {"partitions_count": 2, "daemons_count": 2, "docs_count": 6, "parts_count": 2}
#: One daemon with few documents.
_ALONE: dict[str, Any] = {"partitions_count": 1, "daemons_count": 1, "docs_count": 4, "parts_count": 2}
#: More of all.
_CROWD: dict[str, Any] = {"partitions_count": 3, "daemons_count": 3, "docs_count": 12, "parts_count": 1}

#: Everything is there at the beginning, and nothing expires.
_BACKLOG: dict[str, Any] = {"backlog": True, "window": 150}

#: All records are late when they come, over many lifetimes, and one partition never has any.
_LATE: dict[str, Any] = {"late": True, "window": 150, "slack": 60, "docs_count": 7}

BREAKING = {
    "record_first": _in("lost", **_RACE),
    "add_before_read": _in("lost", **_RACE),
    "position_order": _in("lost", "update", "set_back kill", docs_count=4, parts_count=3),
    "partners_saved": _in("lost", "update", "kill", **(_RACE | {"docs_count": 4})),
    "pairs_claimed": _in("doubled", **_RACE),
    "mark": _in("doubled", "", "set_back"),
    "incarnations_told": _in("lost", "", "recreate kill", **_RACE),
    "fence": _in("lost", "update", "freeze", docs_count=4, parts_count=3),
    "ahead_put_back": _in("lost", "", "", **(_RACE | {"ahead": True, "doubt": 0.1})),
    "claims_seeded": _in("doubled", "", "flush", **_RACE),
    "fenced_in_doubt": _in("lost", "update", "restart", docs_count=4, parts_count=3),
    "announced": _in("lost", "", "go_back"),
    "reconnecting_noticed": _in("lost", "", "go_back", **_RACE),
    "announced_in_turn": _in("lost", "", "go_back freeze", **(_CROWD | {"partitions_count": 2, "parts_count": 2})),
    "writes_remembered": _in("told", "delete", "go_back freeze", **_RACE),
    "rejoined": _in("lost", "", "go_back", **_RACE),
    "all_looked_at": _in("lost", "", "go_back kill", **_CROWD),
    "whole_before_use": _in("lost", "", "flush kill", **_RACE),
    "deletion_marked": _in("told", "delete", "set_back"),
    "buckets_left": _in("told", "delete"),
    "leaving_remembered": _in("told", "update delete", "kill"),
    "claims_extended": _in("doubled", "append", **(_ALONE | {"window": 150, "slack": 60})),
    "claims_cover_replays": _in(
        "doubled", "update", "kill", **(_RACE | {"docs_count": 3, "window": 150, "slack": 200})
    ),
    "claims_followed": _in("doubled", "append", **(_ALONE | {"docs_count": 3, "window": 50, "slack": 300})),
    "claims_outlive_deletion": _in("doubled", "delete", "kill", **_RACE),
    "redeliveries_searched": _in("lost", "cross", "flush", **_RACE),
    "content_compared": _in("garbled", "append update"),
    "version_kept": _in("doubled", "append", **_RACE),
    "append_ordered": _in("lost", "append", "kill"),
    "unknown_noted": _in("misaddressed", "append update", "kill"),
    "purged_when_taken_over": _in("told", "delete", "kill", parts_count=1, docs_count=7),
    "lifetime_covers_outages": _in("lost", window=150),
    "slowest_awaited": _in("lost", "", **(_RACE | _BACKLOG)),
    "aged_where_listed": _in("lost", "update", **(_RACE | _BACKLOG)),
    "claims_aged": _in("kept", "", **(_RACE | _BACKLOG)),
    "lists_expire": _in("kept", **_LATE),
    "aged_to_the_end": _in("kept", "", "kill", **(_RACE | _BACKLOG)),
    "members_expire": _in("told", window=150, slack=20, parts_count=1, docs_count=12),
}
