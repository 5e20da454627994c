"""The stored form of index entries and fingerprints: damaged bytes are refused and never taken for a whole entry."""

import random
import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from streamdedup.errors import StoreMisconfigured
from streamdedup.index.documents import Content, IndexEntry, PendingMatches, deletion_marker
from streamdedup.index.entries import decode_entries, decode_pending, encode_entries, encode_pending
from streamdedup.index.fingerprints import decode_fingerprint
from streamdedup.position import PartitionIncarnation, Position
from streamdedup.similarity.sketch import Sketch
from tests.alerts import a_match
from tests.entries import decode_entry, encode_entry
from tests.thoroughness import examples

POSITION = Position("articles", 2, 1_041)


def by_hashes(*hashes: int) -> Sketch:
    return Sketch(len(hashes), np.array(sorted(hashes), np.uint32))


ENTRY = IndexEntry(
    3, "article-42", b"d" * 16, POSITION, 1_777_618_931_480, 3, Content(by_hashes(1, 0x01020304), 5, 6, (7, 2**64 - 1))
)
#: A content whose hashes are an Elias-Fano code.
LARGE = Content(by_hashes(*range(5, 2**32, 2**26)), 70, 70)
#: Bytes of ``ENTRY`` before what was computed from the text.
HEAD = b"\x20" + b"d" * 16 + struct.pack(">qqH", 1_777_618_931_480, 1_041, 10) + b"articles:2"
HEAD += b"\0\x0aarticle-42"

uint32 = st.integers(0, 2**32 - 1)
#: From 64 hashes on they are an Elias-Fano code.
many_hashes = st.builds(
    lambda seed, count: frozenset(random.Random(seed).sample(range(2**32), count)), uint32, st.integers(60, 300)
)
sketches = (st.frozensets(uint32, max_size=9) | many_hashes).map(lambda hashes: by_hashes(*hashes)) | st.builds(
    lambda count, values: Sketch(count, signature=np.array(values, np.uint32)),
    uint32,
    st.lists(uint32, min_size=1, max_size=9),
)
contents = st.builds(
    Content,
    sketches,
    st.integers(0, 65_535),
    st.integers(0, 65_535),
    st.lists(st.integers(0, 2**64 - 1), max_size=4).map(tuple),
    st.booleans(),
    st.none() | st.binary(min_size=16, max_size=16),
    st.none() | st.binary(min_size=8, max_size=8),
    st.none() | st.binary(min_size=8, max_size=8),
    st.none() | st.binary(min_size=8, max_size=8),
    st.none() | st.binary(min_size=1, max_size=255),
)
int64 = st.integers(-(2**63), 2**63 - 1)
entries = st.builds(
    IndexEntry,
    int64,
    st.text(min_size=1, max_size=9),
    st.binary(min_size=16, max_size=16),
    st.builds(
        PartitionIncarnation, st.sampled_from(["articles", "a-b_c.d"]), st.integers(0, 99), st.integers(0, 3)
    ).flatmap(lambda incarnation: st.integers(0, 2**53).map(incarnation.position_at)),
    st.integers(-1, 2**53),
    int64,
    contents,
)


@settings(max_examples=examples(200))
@given(st.lists(entries, max_size=6))
def test_entries_that_are_encoded_and_decoded_together_are_the_same(batch):
    together = encode_entries(batch)
    assert together == [encode_entry(entry) for entry in batch]
    assert decode_entries([entry.number for entry in batch], together) == batch


@pytest.mark.parametrize("content", [ENTRY.content, LARGE])
def test_the_damaged_entry_of_two_is_named(content):
    stored = encode_entries([structs.replace(ENTRY, content=content)] * 2)
    assert len(decode_entries([3, 4], stored)) == 2
    stored[1] = stored[1][:-1]
    with pytest.raises(ValueError, match=r"index entry 4 is damaged: .*cut off or too long"):
        decode_entries([3, 4], stored)


def test_the_bytes_of_a_layout_never_change():
    content = bytes.fromhex("00 0500 0600 02 02000000 0700000000000000 ffffffffffffffff 01000000 04030201")
    assert encode_entry(ENTRY) == HEAD + content
    in_cluster = structs.replace(ENTRY, cluster=-2)
    assert encode_entry(in_cluster) == b"\x21" + HEAD[1:] + content + bytes.fromhex("fffffffffffffffe")
    signed = Content(Sketch(700, signature=np.array([5, 2**32 - 1], np.uint32)), 5, 6, (), True, b"v" * 16, b"i" * 8)
    content = bytes.fromhex("0f 0500 0600 00 bc020000") + b"v" * 16 + b"i" * 8 + bytes.fromhex("05000000 ffffffff")
    assert encode_entry(structs.replace(ENTRY, content=signed)) == HEAD + content
    sourced = structs.replace(ENTRY, content=structs.replace(signed, source=b"s" * 8))
    content += b"s" * 8
    assert encode_entry(sourced) == b"\x22" + HEAD[1:] + content
    in_cluster = structs.replace(sourced, cluster=-2)
    assert encode_entry(in_cluster) == b"\x23" + HEAD[1:] + content + bytes.fromhex("fffffffffffffffe")
    scoped = structs.replace(signed, scope=b"c" * 8)
    content = bytes.fromhex("1f 0500 0600 00 bc020000") + b"v" * 16 + b"i" * 8 + b"c" * 8
    assert encode_entry(structs.replace(ENTRY, content=scoped)) == HEAD + content + bytes.fromhex("05000000 ffffffff")
    captioned = structs.replace(ENTRY.content, scope=b"c" * 8, caption=b"Ferry to Kestrel Bay\n\nMay")
    content = bytes.fromhex("30 0500 0600 02 02000000 0700000000000000 ffffffffffffffff") + b"c" * 8
    content += b"\x19Ferry to Kestrel Bay\n\nMay" + bytes.fromhex("01000000 04030201")
    assert encode_entry(structs.replace(ENTRY, content=captioned)) == HEAD + content
    # From 64 hashes on: the low 3 bytes of each, then a bit for each at its place plus its high byte.
    coded = Content(by_hashes(*range(63), 0xFF030201), 5, 6)
    low = b"".join(bytes([low, 0, 0]) for low in range(63)) + bytes.fromhex("010203")
    high = bytes.fromhex("ff" * 7 + "fe" + "00" * 31 + "02")
    content = bytes.fromhex("00 0500 0600 00 40000000") + low + high
    assert encode_entry(structs.replace(ENTRY, content=coded)) == HEAD + content


def test_a_deletion_marker_names_neither_id_nor_hashes():
    data = encode_entry(deletion_marker(3, POSITION, 1_777_618_931_480))
    assert data[1:17] == bytes(16)
    assert data.endswith(b"articles:2" + bytes(2 + 10))
    assert decode_entry(3, data).deleted


@pytest.mark.parametrize("cluster", [3, 4, -(2**63)])
@pytest.mark.parametrize(
    "content",
    [
        ENTRY.content,
        structs.replace(ENTRY.content, first_digest=b"v" * 16),
        structs.replace(ENTRY.content, source=b"s" * 8),
        structs.replace(ENTRY.content, scope=b"c" * 8),
        LARGE,
    ],
)
def test_an_entry_cut_off_anywhere_is_damaged(cluster, content):
    data = encode_entry(structs.replace(ENTRY, cluster=cluster, content=content))
    for length in range(len(data)):
        with pytest.raises(ValueError, match="index entry 3 is damaged"):
            decode_entry(3, data[:length])


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("00 0500 0600 00", "requires a buffer"),
        ("80 0500 0600 00 00000000", "unknown flags 0x80"),
        ("20 0500 0600 00 00000000", "cut off or too long"),
        ("20 0500 0600 00 00000000 05 61", "cut off or too long"),
        ("00 0500 0600 00 01000000 010000", "cut off or too long"),
        ("00 0500 0600 02 00000000", "cut off or too long"),
        ("01 0500 0600 00 00000000 01000000", "cut off or too long"),
        ("00 0500 0600 00 02000000 01000000", "4 bytes for 2 shingle hashes, cut off or too long"),
        ("00 0500 0600 00 00000000 01000000", "4 bytes for 0 shingle hashes, cut off or too long"),
        ("00 0500 0600 00 02000000 02000000 01000000", "out of order"),
        ("00 0500 0600 00 02000000 02000000 02000000", "out of order"),
        ("08 0500 0600 00 05000000", "without values"),
        ("08 0500 0600 00 05000000 01000000 02", "a signature of 5 bytes, cut off or too long"),
        ("00 0500 0600 00 40000000" + "00" * (3 * 64 + 39), "cut off or too long"),
        ("00 0500 0600 00 40000000" + "00" * (3 * 64 + 41), "cut off or too long"),
        ("00 0500 0600 00 40000000" + "00" * (3 * 64 + 40), "damaged high parts of shingle hashes"),
        ("00 0500 0600 00 40000000" + "00" * 3 * 64 + "ff" * 8 + "00" * 32, "out of order"),
        ("00 0500 0600 00 40000000" + "00" * 3 * 64 + "ff" * 7 + "fe" + "00" * 31 + "01", "damaged high parts"),
    ],
)
def test_damage_is_told_with_the_reason(content, text):
    with pytest.raises(ValueError, match=f"index entry 3 is damaged: .*{text}"):
        decode_entry(3, HEAD + bytes.fromhex(content))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x10" + HEAD[1:], "layout 1, expected 2"),
        (b"\x25" + HEAD[1:], "unknown first byte 0x25"),
        (HEAD.replace(b"articles:2", b"articles:x"), "invalid literal"),
        (HEAD.replace(b"article-42", b"article-\xff2"), "can't decode"),
    ],
)
def test_another_layout_and_damaged_texts_are_refused(data, text):
    with pytest.raises(ValueError, match=f"index entry 3 is damaged: .*{text}"):
        decode_entry(3, data + bytes(10))


@settings(max_examples=examples(300))
@given(st.binary(max_size=40), entries, st.data())
@example(bytes.fromhex("00 0500 0600 ff ffffffff"), ENTRY, None)
@example(bytes.fromhex("00 0500 0600 00 ffffffff"), structs.replace(ENTRY, content=LARGE), None)
def test_damaged_bytes_are_an_entry_or_a_value_error(tail, entry, data):
    for damaged in (HEAD + tail, encode_entry(entry)):
        octets = bytearray(damaged)
        if data is not None:
            octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
        assert _read_or_refused(bytes(octets))


def _read_or_refused(data: bytes) -> bool:
    """Tell whether bytes are refused with the reason, or are an entry that is read again from its own bytes."""
    try:
        found = decode_entry(3, data)
    except ValueError as error:
        return str(error).startswith("index entry 3 is damaged: ")
    return decode_entry(3, encode_entry(found)) == found


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"bands": 9, "\xff": 1}', b'{"bands": %s}' % (b"[" * 100_000)])
def test_what_is_no_fingerprint_is_said_to_be_somebody_elses(data):
    with pytest.raises(StoreMisconfigured, match="the key somewhere holds no fingerprint"):
        decode_fingerprint(b"somewhere", data)


# Pending matches


def test_pending_matches_keep_their_containment():
    match = a_match("a", POSITION, 0.625, containment=1.0, contained="document", reason="containment")
    pending = PendingMatches({b"k" * 16: match})
    assert decode_pending(encode_pending(pending)) == pending


@pytest.mark.parametrize("value", [b"{", b"{}", b'{"id": 7}', b"\xff"])
def test_damaged_pending_matches_are_named(value):
    with pytest.raises(ValueError, match=r"^pending matches are damaged: "):
        decode_pending({b"m" + b"k" * 16: value})
