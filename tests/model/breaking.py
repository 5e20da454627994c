"""For each rule the mistake that its absence causes, and a scenario in which the mistake shows soon."""

from typing import Any, NamedTuple

from tests.model.documents import NOTHING_SUPPRESSED, Suppression


class Breaking(NamedTuple):
    """The mistake that a rule prevents.

    Attributes:
        kind: Kind of mistake, an attribute of ``Verdict``.
        scenario: Parameters that the seed does not decide; see ``Scenario``.
        first: First seed to try, where the mistake is rare.
    """

    kind: str
    scenario: dict[str, Any]
    first: int = 0


def _in(kind: str, kinds: str = "", faults: str = "", **scenario: Any) -> Breaking:
    fixed = {
        "kinds": frozenset(kinds.split()),
        "faults": frozenset(faults.split()),
        "doubt": 0,
        "window": None,
        "ahead": False,
        "containment": False,
        "suppression": NOTHING_SUPPRESSED,
    }
    return Breaking(kind, fixed | scenario)


#: Two daemons with a partition each, and mostly similar texts.
_RACE: dict[str, Any] = {"partitions_count": 2, "daemons_count": 2, "docs_count": 6, "parts_count": 2}
#: One daemon with few documents.
_ALONE: dict[str, Any] = {"partitions_count": 1, "daemons_count": 1, "docs_count": 4, "parts_count": 2}
#: More partitions, daemons and documents.
_MANY: dict[str, Any] = {"partitions_count": 3, "daemons_count": 3, "docs_count": 12, "parts_count": 1}
#: A daemon that is idle for so long that the server forgets its calls.
_EXPIRING: dict[str, Any] = _ALONE | {"docs_count": 3, "calls_expire": True}
#: Documents over several lifetimes, and an index that is often lost.
_LOSING: dict[str, Any] = {"window": 300, "slack": 300, "loss_rate": 0.012}

BREAKING = {
    "record_first": _in("lost", **_RACE),
    "add_before_read": _in("lost", **_RACE),
    "containment_symmetric": _in("lost", "append", **(_ALONE | {"containment": True})),
    "position_order": _in("lost", "update", "set_back kill", docs_count=4, parts_count=3),
    "pending_matches_saved": _in("lost", "update", "kill", **(_RACE | {"docs_count": 4})),
    "pairs_claimed": _in("doubled", **_RACE),
    "mark": _in("doubled", "", "set_back"),
    "incarnations_told": _in("lost", "", "recreate kill", **_RACE),
    "fence": _in("lost", "update", "freeze", docs_count=6, parts_count=3),
    "ahead_rewound": _in("lost", "", "", **(_RACE | {"ahead": True, "doubt": 0.1})),
    "claims_seeded": _in("doubled", "", "flush", **_RACE),
    "fenced_in_doubt": _in("lost", "update", "restart", docs_count=4, parts_count=3),
    "announced": _in("lost", "", "go_back"),
    "reconnection_detected": _in("lost", "", "go_back", **_RACE),
    "announced_in_turn": _in("garbled", "append", "go_back", **_EXPIRING),
    "writes_remembered": _in("remaining", "delete", "go_back freeze", **_RACE),
    "rejoined": _in("lost", "", "go_back", **_RACE)._replace(first=500),
    "all_checked": _in(
        "lost",
        "",
        "go_back kill",
        **(_MANY | {"partitions_count": 2, "daemons_count": 2, "docs_count": 6, "end_marked": 0.3}),
    ),
    "whole_before_use": _in("lost", "", "flush kill", **_RACE),
    "deletion_marked": _in("invented", "delete", "set_back", **(_RACE | {"docs_count": 12, "parts_count": 1})),
    "old_versions_removed": _in("remaining", "delete"),
    "removals_remembered": _in("remaining", "update delete", "kill"),
    "claims_extended": _in("doubled", "append", **(_ALONE | {"window": 150, "slack": 60})),
    "claims_cover_replays": _in(
        "doubled", "update", "kill", **(_RACE | {"docs_count": 3, "window": 150, "slack": 200})
    ),
    "claims_followed": _in("doubled", "append", **(_ALONE | {"docs_count": 3, "window": 50, "slack": 300})),
    "claims_outlive_deletion": _in("doubled", "delete", "kill", **_RACE),
    "markers_outlive_claims": _in("lost", "update delete append", **(_ALONE | {"window": 50, "slack": 60})),
    "redeliveries_searched": _in("lost", "cross", "flush", **_RACE),
    "content_compared": _in("garbled", "append update"),
    "version_kept": _in("doubled", "append", **_RACE),
    "append_ordered": _in("lost", "append", "kill"),
    "unknown_saved": _in("misaddressed", "append update", "kill"),
    "purged_when_taken_over": _in("remaining", "delete", "kill", parts_count=1, docs_count=7),
    "lifetime_covers_outages": _in("lost", window=150),
    "suppressed_unclaimed": _in("lost", "append", **(_ALONE | {"suppression": Suppression(min_parts=2)})),
    "suppression_symmetric": _in("lost", **(_RACE | {"suppression": Suppression(only_sources=frozenset({0}))})),
    "source_kept": _in("invented", "append", **(_ALONE | {"suppression": Suppression(ignore_same_source=True)})),
    "window_replayed": _in("lost", "", "flush", **(_ALONE | _LOSING | {"docs_count": 2, "parts_count": 1})),
    "all_matches_seeded": _in("doubled", "", "flush", **_RACE),
    "alerts_read_to_end": _in("doubled", "", "flush kill", **(_RACE | {"loss_rate": 0.02, "end_marked": 0.005})),
    "aborted_alerts_ignored": _in("lost", "", "flush kill", **_RACE),
    "alerts_read_from_start": _in("doubled", "update", "flush", **(_ALONE | _LOSING | {"parts_count": 1})),
    "deletions_read_back": _in("lost", "update delete", "flush", **(_ALONE | _LOSING | {"docs_count": 3})),
    "gap_replayed": _in("lost", "", "go_back", **_RACE),
    "gap_of_every_slot": _in("lost", "", "go_back", **(_RACE | {"servers_apart": True})),
    "gap_claims_seeded": _in("doubled", "", "go_back", **_RACE),
    "published_overrides": _in("doubled", "append", "go_back restart", **_RACE),
    "gap_given_up": _in("garbled", "append", "go_back", **_EXPIRING)._replace(first=5_000),
    "incarnations_restored": _in(
        "doubled", "update delete append", "flush", **(_ALONE | _LOSING | {"window": 150, "retention": 450})
    ),
    "members_expire": _in("remaining", window=150, slack=20, parts_count=1, docs_count=12),
}
