"""Clusters are stars; what is known to be similar is not compared again."""

import numpy as np
import pytest

from streamdedup.detection.clusters import Stars
from streamdedup.index.documents import Content, IndexEntry
from streamdedup.index.memory import MemoryIndex
from streamdedup.position import Position
from streamdedup.similarity.minhash import HashFamily
from streamdedup.similarity.sketch import Sketch, Sketcher


def a_sketch(*hashes):
    return Sketch(len(hashes), hashes=np.array(sorted(hashes), dtype=np.uint32))


def a_record(number, sketch, cluster=None):
    cluster = number if cluster is None else cluster
    digest = bytes([number]) * 16
    content = Content(sketch, sketch.count, sketch.count)
    return IndexEntry(number, f"doc-{number}", digest, Position("t", 0, number), 0, cluster, content)


FIRST = a_record(1, a_sketch(1, 2, 3, 4))
BEST = a_record(2, a_sketch(1, 2, 3, 5), cluster=1)


@pytest.fixture
def stars():
    return Stars(MemoryIndex(), Sketcher(HashFamily(8), None, 8), 0.6, {1: FIRST, 2: BEST})


class TestStars:
    def test_a_document_like_the_first_of_its_best_match_joins(self, stars):
        assert stars.join(a_record(3, a_sketch(1, 2, 3)), best=2) is FIRST

    def test_a_document_unlike_the_first_stays_alone(self, stars):
        record = a_record(3, a_sketch(1, 5, 6))
        assert stars.join(record, best=2) is record

    def test_what_is_known_to_be_near_is_not_compared(self, stars):
        assert stars.join(a_record(3, a_sketch(7, 8, 9)), best=2, near={(FIRST.id, FIRST.digest.hex())}) is FIRST

    def test_another_version_of_what_was_near_is_compared(self, stars):
        record = a_record(3, a_sketch(7, 8, 9))
        assert stars.join(record, best=2, near={(FIRST.id, BEST.digest.hex())}) is record
