"""The rules of delivery, each with a switch."""

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Rules:
    """Which rules hold; all of them in the product.

    The first eight are those of ``streamdedup.index.contract``, the others what the rest of a document's life and a
    store that goes back in time need besides.

    Attributes:
        record_first: A record is put before its document enters any bucket. Else somebody meets a number that has no
            record yet, and both sides miss the pair.
        add_before_read: A document adds itself to a bucket and reads it in one step. Else two that arrive together do
            not see each other.
        position_order: A record is replaced only by a later position. Else a replay brings an old version back.
        partners_saved: What was found for a position is saved before it is claimed, and a replay works on the union.
            Else a pair whose partner has changed since is claimed by a position that no longer finds it.
        pairs_claimed: A pair belongs to the position that asks first. Else both sides report it.
        mark: Records below what is known to be committed emit nothing. Else offsets set back repeat alerts.
        incarnations_told: A mark and a position belong to one incarnation of a topic. Else what comes after the topic
            was deleted and created again is silent up to the old mark.
        fence: A write under an older generation of the consumer group is refused. Else a daemon that wakes up late
            writes over the work of its successor.
        ahead_put_back: A batch that was read ahead is put back together with the batch at work. Else the daemon goes on
            behind records that were never committed.
        claims_seeded: After the index was lost, claims are restored from what was published. Else the other side of a
            published pair, still in flight, publishes it again.
        fenced_in_doubt: The fence also carries an epoch, and after a call whose outcome is unknown the daemon fences
            anew, with a later epoch, before it repeats anything. Else the first attempt, stuck on its way, takes effect
            after the second; and of two processes that share a static member id and so a generation, the old one
            writes over the new one.
        announced: Before a batch is published its attempt is noted in every slot, under the fence; a committed attempt
            beyond what is noted means that the index has gone back in time. Else acknowledged writes disappear
            unnoticed.
        announced_in_turn: A slot takes an announcement only if it has heard of the committed one before. Else the
            announcement of a batch that is then dropped hides that the index has gone back in time.
        reconnecting_noticed: A batch is published only if the connection is that of before it was fenced. Else a batch
            is finished on an index that forgot its beginning.
        writes_remembered: Each call names the last one in its slot that was acknowledged, and is refused where that was
            forgotten. Else a step is done on the strength of the one before, which a server has lost that the client
            has connected to anew by itself.
        rejoined: After that the daemon joins the group anew, which refuses every batch that was indexed before, and
            looks whether all that is committed is announced, in all partitions, before it goes on. Else a neighbour,
            whose batch was indexed before, commits it after we have looked, and ours has not met its documents.
        all_looked_at: Who gets partitions looks whether all that is committed is announced, in all partitions, not
            only in these. Else somebody goes on with a partition of which nothing is lost, and does not meet what was.
        whole_before_use: A rebuilt index can be used only when all of it is there. Else a document is compared with
            half of it, and never with the rest.
        deletion_marked: A deletion leaves a marker of its position for a bounded time, and position order holds against
            it. Else offsets set back bring a deleted document back to life.
        buckets_left: A replaced or deleted version leaves its buckets. Else its number stays for as long as others
            keep those buckets alive.
        leaving_remembered: The band keys that are to be left are kept beside the record, written in the same step as
            its successor, until they are left. Else a crash between the two leaves members behind for ever.
        claims_extended: A claim that is asked for lives for a claim lifetime from then on, by whichever position it is
            asked for. Else the claim of two documents that are continued expires before their index entries, and the
            pair is reported again.
        claims_cover_replays: A claim lives for two lifetimes: as long as both index entries may from then on, and one
            more for the longest replay. Else a position that is processed again late finds its pair's claim expired,
            and a document that is replaced and comes back soon after repeats its pairs.
        claims_followed: A renewed document also extends its claims with the documents that it meets without a match,
            for example outside the window. Else the claim of two living documents expires while their record times are
            apart, and the pair is reported again when the times come together.
        claims_outlive_deletion: Claims are left to their time. If a deletion removed them, the other side of a
            published pair, still in flight with saved partners, would publish it again.
        redeliveries_searched: The same text from another partition looks for partners again, and the claims keep it
            silent. Else, when the one is committed and the other not, an index built anew keeps the position of the
            committed one, and the pairs that the other was to find are missed.
        content_compared: Whether an upsert brings the same text again is judged by the content, appended parts
            included, and not by the version, which an append keeps. Else a return to the text before the append is
            taken for a redelivery.
        version_kept: An append keeps the version by which pairs are claimed. Else each append repeats all alerts.
        append_ordered: An append is applied only to a record of an earlier position; at its own position it takes the
            record as it stands, which holds the appended text already. Else a replay appends again.
        unknown_noted: That an append met no document is saved for its position before any record of the batch is put.
            Else a replay meets a later version of the id and the dead letter is lost.
        purged_when_taken_over: Taking a partition over removes what is saved for its committed positions. Else saved
            partners, which name ids, stay behind when a daemon dies between commit and finish.
        lifetime_covers_outages: Keys live for the window and the slack for outages; if only for the window, a late
            document misses its partner.
        members_expire: A member of a bucket has a time of its own. Else each newcomer prolongs the life of all.
        slowest_awaited: In a backlog, where times to live come too late, a document is taken out when no partition has
            records left that it could be compared with. If only its own has none, slower ones miss it.
        aged_where_listed: It is taken out only if it still stands at the position that is listed. Else a later version
            goes with it.
        claims_aged: A claim goes too, when no partition has records left that either side could be compared with. Else
            a backlog leaves a claim for every pair.
        lists_expire: A list is cut into slices of time, each of which expires a lifetime after its last entry. Else
            each entry renews the whole list, and where a partition without records holds everything back, the list of a
            stream that is always late grows for ever.
        aged_to_the_end: The list forgets a document only after it is out. Else a crash between the two leaves it there.
    """

    record_first: bool = True
    add_before_read: bool = True
    position_order: bool = True
    partners_saved: bool = True
    pairs_claimed: bool = True
    mark: bool = True
    incarnations_told: bool = True
    fence: bool = True
    ahead_put_back: bool = True
    claims_seeded: bool = True
    fenced_in_doubt: bool = True
    announced: bool = True
    announced_in_turn: bool = True
    reconnecting_noticed: bool = True
    writes_remembered: bool = True
    rejoined: bool = True
    all_looked_at: bool = True
    whole_before_use: bool = True
    deletion_marked: bool = True
    buckets_left: bool = True
    leaving_remembered: bool = True
    claims_extended: bool = True
    claims_cover_replays: bool = True
    claims_followed: bool = True
    claims_outlive_deletion: bool = True
    redeliveries_searched: bool = True
    content_compared: bool = True
    version_kept: bool = True
    append_ordered: bool = True
    unknown_noted: bool = True
    purged_when_taken_over: bool = True
    lifetime_covers_outages: bool = True
    members_expire: bool = True
    slowest_awaited: bool = True
    aged_where_listed: bool = True
    claims_aged: bool = True
    lists_expire: bool = True
    aged_to_the_end: bool = True

    def without(self, name: str) -> "Rules":
        """Return these rules with one switched off."""
        return replace(self, **{name: False})


RULES = tuple(field.name for field in fields(Rules))
ALL = Rules()
