"""The stored form of a document record: what is cut off is never taken for a whole one."""

import pytest
from msgspec import structs

from streamdedup.errors import StoreMisconfigured
from streamdedup.index.contract import IndexEntry
from streamdedup.index.entries import decode_entry, encode_entry
from streamdedup.index.fingerprints import decode_fingerprint
from streamdedup.position import Position

RECORD = IndexEntry(3, "article-42", b"d" * 16, Position("articles", 2, 1_041), 1_777_618_931_480, 3, b"")


@pytest.mark.parametrize("cluster", [3, 4, -(2**63)])
def test_a_record_cut_off_anywhere_is_damaged(cluster):
    record = structs.replace(RECORD, cluster=cluster)
    data = encode_entry(record)
    assert decode_entry(3, data) == record
    for length in range(len(data)):
        with pytest.raises(ValueError, match="damaged"):
            decode_entry(3, data[:length])


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"bands": 9, "\xff": 1}', b'{"bands": %s}' % (b"[" * 100_000)])
def test_what_is_no_fingerprint_is_said_to_be_somebody_elses(data):
    with pytest.raises(StoreMisconfigured, match="the key somewhere holds no fingerprint"):
        decode_fingerprint(b"somewhere", data)
