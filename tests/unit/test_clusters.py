"""Clusters are stars; a match that is known to be similar is not compared again."""

import numpy as np
import pytest
from msgspec.structs import replace

from streamdedup.detection.clusters import Clusters, Member
from streamdedup.detection.model import DetectorOptions
from streamdedup.index import cluster_sets
from streamdedup.index.cluster_sets import ClusterSet
from streamdedup.index.documents import Content, IndexEntry, deletion_marker
from streamdedup.index.memory import MemoryIndex
from streamdedup.position import Partition, Position
from streamdedup.similarity.lsh import Banding
from streamdedup.similarity.minhash import HashFamily
from streamdedup.similarity.sketch import Sketch, Sketcher
from streamdedup.text.shingles import ShingleOptions
from tests import alerts


def an_entry(number, *hashes, cluster=None):
    cluster = number if cluster is None else cluster
    digest = bytes([number]) * 16
    sketch = Sketch(len(hashes), hashes=np.array(sorted(hashes), dtype=np.uint32))
    content = Content(sketch, sketch.count, sketch.count)
    return IndexEntry(number, f"doc-{number}", digest, Position("t", 0, number), 0, cluster, content)


OPTIONS = DetectorOptions("p", ShingleOptions(), Banding(4, 2), 8, 0, threshold=0.6)
FIRST = an_entry(1, 1, 2, 3, 4)
BEST = an_entry(2, 1, 2, 3, 5, cluster=1)


def a_match(other, digest):
    return alerts.a_match(other.id, other.position, digest=digest.hex())


class TestClusters:
    @pytest.fixture(autouse=True)
    def _index(self):
        self.store = MemoryIndex()
        self.store.open({})
        self.fences = [self.store.fence(Partition("t", 0), 1, 0)]
        self.store.insert_entries([FIRST, BEST], self.fences)
        self.clusters = Clusters(self.store, Sketcher(HashFamily(8), None, 8), OPTIONS)

    def join(self, entry, best, *matches):
        self.store.insert_entries([entry], self.fences)
        ((first, size, *_),) = self.clusters.join([Member(entry, best, matches)], self.fences)
        assert self.store.get_entries([entry.number])[entry.number].cluster == first.number
        return first.id, size

    def test_a_document_like_the_first_of_the_cluster_of_its_best_match_joins(self):
        assert self.join(an_entry(3, 1, 2, 3), 2) == (FIRST.id, 2)

    def test_a_document_unlike_the_first_stays_alone(self):
        assert self.join(an_entry(3, 1, 5, 6), 2) == ("doc-3", 1)

    def test_a_continued_document_that_joins_no_cluster_stays_in_its_own(self):
        assert self.join(an_entry(3, 1, 2, 3), 2) == (FIRST.id, 2)
        continued = replace(an_entry(3, 7, 8, 9), digest=b"c" * 16, position=Position("t", 0, 20), cluster=1)
        self.store.replace_entries([continued], self.fences)
        for first in ((FIRST.id, 2), ("doc-3", 1)):  # then its first document is gone
            ((found, size, *_),) = self.clusters.join([Member(continued, 4, ())], self.fences)
            assert (found.id, size) == first
            self.store.replace_entries([deletion_marker(1, Position("t", 0, 30), 0)], self.fences)
            self.store.leave_clusters([(1, 1)], self.fences)

    def test_a_first_document_among_the_matches_is_not_compared(self):
        assert self.join(an_entry(3, 7, 8, 9), 2, a_match(FIRST, FIRST.digest)) == (FIRST.id, 2)

    def test_a_first_document_with_another_version_than_the_match_is_compared(self):
        assert self.join(an_entry(3, 7, 8, 9), 2, a_match(FIRST, BEST.digest)) == ("doc-3", 1)

    def test_a_document_whose_best_match_is_gone_stays_alone(self):
        assert self.join(an_entry(3, 1, 2, 3), 99) == ("doc-3", 1)

    def test_later_documents_of_a_batch_join_the_cluster_of_earlier_ones(self):
        third, fourth = an_entry(3, 1, 2, 3), an_entry(4, 1, 2, 4)
        self.store.insert_entries([third, fourth], self.fences)
        members = [Member(third, BEST.number, ()), Member(fourth, third.number, ())]
        joined = self.clusters.join(members, self.fences)
        assert [(first.id, size) for first, size, *_ in joined] == [(FIRST.id, 3), (FIRST.id, 3)]
        assert self.clusters.join(members, self.fences) == joined


def test_a_cluster_set_is_read_with_its_first_document_and_changes_only_when_that_is_added():
    members = ClusterSet(1)
    members.add(BEST)
    assert members.with_first(FIRST).numbers == [1, 2]
    assert members.numbers == [2]
    assert members.with_first(deletion_marker(1, FIRST.position, 0)).numbers == [2]
    members.add_first(FIRST)
    assert members.numbers == [1, 2]


def test_a_first_document_that_is_no_member_counts_in_a_full_set(monkeypatch):
    monkeypatch.setattr(cluster_sets, "CLUSTER_SIZE_CAP", 3)
    members = ClusterSet(1)
    for number in (2, 3, 4):
        members.add(an_entry(number))
    assert (members.numbers, members.counts.size) == ([2, 3], 3)
    members.remove(3)  # a full set stays full
    assert (members.numbers, members.counts.size) == ([2, 3], 3)
