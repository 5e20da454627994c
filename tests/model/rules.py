"""The rules of delivery, each with a switch."""

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules that hold; in the product all of them.

    The first eight are rules of ``streamdedup.index.contract``. The others are needed for appends, deletions and for
    an index that goes back to an earlier time.

    Attributes:
        record_first: The index entry of a document is inserted before the document is inserted into any bucket.
            Otherwise another document finds a number without an entry, and both miss the pair.
        add_before_read: A document is added to a bucket and reads the bucket in one step. Otherwise two documents that
            arrive together do not see each other.
        containment_symmetric: Of two documents either may be contained in the other. Otherwise the pair is missed if
            the longer document arrives later.
        position_order: An entry is replaced only by a later position. Otherwise a replay restores an old version.
        pending_matches_saved: Matches of a position are saved before they are claimed, and a replay uses the union.
            Otherwise, if the other document of a pair changes in between, a position claims the pair and no longer
            finds the match.
        pairs_claimed: A pair belongs to the position that asks first. Otherwise both sides publish the pair.
        mark: Records below the high-water mark emit nothing. Otherwise offsets set back repeat alerts.
        incarnations_told: A mark and a position belong to one incarnation of a topic. Otherwise records of a topic that
            was deleted and created again are silent up to the old mark.
        fence: A write under an older generation of the consumer group is refused. Otherwise a daemon that was frozen
            overwrites the work of its successor.
        ahead_rewound: A batch that was read ahead is rewound together with the current batch. Otherwise the daemon
            continues behind records that were never committed.
        claims_seeded: After the index was lost, claims are restored from the published alerts. Otherwise the other side
            of a published pair, still in flight, publishes the pair again.
        fenced_in_doubt: The fence also has an epoch. After a call with an unknown outcome the daemon fences again, with
            a later epoch, before a write is repeated. Otherwise the first attempt, delayed on its way, takes effect
            after the second; and of two processes with one static member id, and so with one generation, the old one
            overwrites the new one.
        announced: Before a batch is published its attempt id is stored in every slot, under the fence. A committed
            attempt id beyond the announced one shows that the index has gone back in time. Otherwise acknowledged
            writes disappear unnoticed.
        announced_in_turn: A slot accepts an announcement only if the slot knows the committed announcement before.
            Otherwise the announcement of a batch that is then dropped hides that the index has gone back in time.
        reconnection_detected: A batch is published only over the connection on which it was fenced. Otherwise a batch
            is completed in an index that forgot the beginning of the batch.
        writes_remembered: Each call names the last acknowledged call to its server, and is refused if the server has
            forgotten the last call. Otherwise a step relies on an earlier step that was lost when the client
            reconnected.
        rejoined: After a reconnection the daemon joins the group anew, which refuses all batches that were indexed
            before, and checks all partitions for lost commits before the next batch. Otherwise another daemon commits a
            batch that was indexed before the check, and later documents are not compared with the documents of this
            batch.
        all_checked: After each assignment a daemon checks all partitions for lost commits, not only its own. Otherwise
            the daemon continues with a partition without a loss, and misses pairs with lost documents of other
            partitions.
        whole_before_use: A rebuilt index is used only when it is complete. Otherwise a document is compared with one
            half of the index, and never with the other.
        deletion_marked: A deletion leaves a marker of its position for a limited time, and position order holds against
            the marker. Otherwise offsets set back restore a deleted document.
        old_versions_removed: A replaced or deleted version is removed from its buckets. Otherwise the number of the
            document stays in the buckets as long as other documents keep the buckets alive.
        removals_remembered: The band keys of a replaced version are stored beside the entry, in the same step as the
            new version, until the old version is removed. Otherwise a crash between the steps leaves members for ever.
        claims_extended: A claim that any position asks for lives for a claim lifetime from then on. Otherwise the claim
            of two documents with appends expires before their entries, and the pair is published again.
        claims_cover_replays: A claim lives for two lifetimes: one for both entries, and one for the longest replay.
            Otherwise the claim has expired when a position is processed again late, and a document that is replaced and
            soon inserted again repeats its pairs.
        claims_followed: A renewed document also extends its claims with candidates that are no matches, for
            example outside the window. Otherwise the claim of two existing documents expires while their record times
            are apart, and the pair is published again when the times are close again.
        claims_outlive_deletion: A deletion keeps the claims until they expire. Otherwise the other side of a published
            pair, still in flight with pending matches, publishes the pair again.
        markers_outlive_claims: A deletion marker lives longer than any claim of its document. Otherwise a document that
            is inserted again has the incarnation from before, whose claims keep its pairs silent.
        redeliveries_searched: The same text from another partition is compared again, and the claims suppress a second
            alert. Otherwise, when only one of the two records is committed, a rebuilt index has the position of the
            committed record, and the pairs of the other record are missed.
        content_compared: An upsert repeats a text if the whole content is the same, appended parts included; the
            version, which an append keeps, does not decide. Otherwise a return to the text before the append is taken
            for a redelivery.
        version_kept: An append keeps the version by which pairs are claimed. Otherwise each append repeats all alerts.
        append_ordered: An append applies only to an entry of an earlier position. An entry at the position of the
            append has the appended text already. Otherwise a replay appends again.
        unknown_saved: An append without a document is saved as such for its position before any entry of the batch is
            inserted. Otherwise a replay finds a later version of the id and the dead letter is lost.
        purged_when_taken_over: Taking over a partition removes the pending matches of its committed positions.
            Otherwise pending matches, which contain ids, stay when a daemon ends between commit and finish.
        lifetime_covers_outages: Keys live for the window and the slack for outages. With the window alone, a late
            document misses its pair.
        members_expire: A member of a bucket has its own expiry. Otherwise each new member extends the expiry of all
            other members.
        suppressed_unclaimed: A pair that a rule of the profile suppresses is neither saved nor claimed. Otherwise the
            position that first finds the pair keeps the claim, and the pair is missed when an append ends the
            suppression.
        suppression_symmetric: A rule of the profile regards both documents alike. Otherwise the order of arrival
            decides whether a pair is alerted.
        source_kept: A document has the source of its upsert; an append keeps the source. Otherwise an append without a
            source publishes pairs that are suppressed.
        window_replayed: A rebuild replays one lifetime before the next record. Otherwise documents are missing.
        all_matches_seeded: A rebuild restores the claim of every match in an alert. Otherwise the pairs of the other
            matches are published again.
        alerts_read_to_end: A rebuild waits until all transactions below the end of the duplicates topic have ended.
            Otherwise consumers see no alert behind an open transaction, and these alerts are published again.
        aborted_alerts_ignored: Alerts of aborted transactions restore no claim, not even for their own positions.
            Otherwise the pair is lost when the other document is indexed first after the rebuild, and finds the match.
        alerts_read_from_start: A rebuild reads the whole duplicates topic. Otherwise the claims of renewed documents,
            which outlive their alerts by many lifetimes, are forgotten.
        deletions_read_back: A rebuild reads deletions as far back as markers live. Otherwise a restored claim silences
            a document that was deleted before the replayed records and returns.
        gap_replayed: The records behind the last announced attempts of an index that has gone back are replayed, from
            where the batch of the attempt began. Otherwise documents are missing.
        gap_of_every_slot: A gap begins at the earliest attempt of all slots. Otherwise a slot that went back further
            than the others lacks documents.
        gap_claims_seeded: The alerts since the earliest of these attempts restore their claims. Otherwise the pairs are
            published again.
        gap_given_up: A gap is not filled, and the index rebuilt as a whole, if a batch in progress has written a
            document of the gap. Otherwise its append lacks the text of the gap for ever.
        published_overrides: A published alert takes its pair from any position. Otherwise a batch in progress, which
            has claimed the pair after the index had gone back, publishes it again.
        incarnations_restored: A rebuild restores incarnations from the alerts. Otherwise a document whose deletion is
            older than all records in Kafka has other pair keys than before, and publishes its pairs again.
    """

    record_first: bool = True
    add_before_read: bool = True
    containment_symmetric: bool = True
    position_order: bool = True
    pending_matches_saved: bool = True
    pairs_claimed: bool = True
    mark: bool = True
    incarnations_told: bool = True
    fence: bool = True
    ahead_rewound: bool = True
    claims_seeded: bool = True
    fenced_in_doubt: bool = True
    announced: bool = True
    announced_in_turn: bool = True
    reconnection_detected: bool = True
    writes_remembered: bool = True
    rejoined: bool = True
    all_checked: bool = True
    whole_before_use: bool = True
    deletion_marked: bool = True
    old_versions_removed: bool = True
    removals_remembered: bool = True
    claims_extended: bool = True
    claims_cover_replays: bool = True
    claims_followed: bool = True
    claims_outlive_deletion: bool = True
    markers_outlive_claims: bool = True
    redeliveries_searched: bool = True
    content_compared: bool = True
    version_kept: bool = True
    append_ordered: bool = True
    unknown_saved: bool = True
    purged_when_taken_over: bool = True
    lifetime_covers_outages: bool = True
    members_expire: bool = True
    suppressed_unclaimed: bool = True
    suppression_symmetric: bool = True
    source_kept: bool = True
    window_replayed: bool = True
    all_matches_seeded: bool = True
    alerts_read_to_end: bool = True
    aborted_alerts_ignored: bool = True
    alerts_read_from_start: bool = True
    deletions_read_back: bool = True
    gap_replayed: bool = True
    gap_of_every_slot: bool = True
    gap_claims_seeded: bool = True
    gap_given_up: bool = True
    published_overrides: bool = True
    incarnations_restored: bool = True

    def without(self, name: str) -> "Rules":
        """Return the rules without one of them."""
        return replace(self, **{name: False})


RULES = tuple(field.name for field in fields(Rules))
ALL = Rules()
