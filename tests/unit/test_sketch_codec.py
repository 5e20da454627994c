"""The stored form of sketches: all hashes come back, and damaged bytes are refused or are another sketch."""

import math
import random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdedup.index.sketch_codec import StoredSketch, decode_sketches, encode_sketches
from streamdedup.similarity.sketch import Sketch
from tests.thoroughness import examples

#: Spread over all numbers, or crowded, so that high parts are equal or far from each other.
RANGES = [range(2**32), range(2**9), range(2**32 - 2**9, 2**32), range(2**24 - 2**8, 2**24 + 2**8)]
#: The first range of high parts; a document with a hash for each high part has no two hashes with one.
EACH_HIGH_PART = range(5, 2**32, 2**24)


def by_hashes(hashes):
    return Sketch(len(hashes), np.array(sorted(hashes), np.uint32))


sketches = st.builds(
    lambda seed, count, numbers: by_hashes(random.Random(seed).sample(numbers, count)),
    st.integers(0, 2**32),
    st.integers(0, 130) | st.integers(60, 400),
    st.sampled_from(RANGES),
) | st.builds(
    lambda values: Sketch(700, signature=np.array(values, np.uint32)),
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=90),
)


def stored(batch):
    encoded = zip(batch, encode_sketches(batch), strict=True)
    return [StoredSketch(data, sketch.count, sketch.signature is not None) for sketch, data in encoded]


@settings(max_examples=examples(200))
@given(st.lists(sketches, max_size=6))
@example([by_hashes([]), by_hashes([7])])
@example([by_hashes(EACH_HIGH_PART), by_hashes([]), by_hashes(range(64)), by_hashes(range(2**32 - 64, 2**32))])
def test_all_sketches_of_a_batch_come_back(batch):
    decoded = decode_sketches(stored(batch))
    assert decoded == batch
    for sketch in decoded:
        values = sketch.signature if sketch.hashes is None else sketch.hashes
        assert (values.dtype, values.flags.owndata, values.flags.aligned) == (np.uint32, True, True)


@settings(max_examples=examples(300))
@given(st.lists(sketches, min_size=1, max_size=3), st.data())
def test_damaged_bytes_are_refused_or_are_the_form_of_another_sketch(batch, data):
    forms = stored(batch)
    at = data.draw(st.integers(0, len(forms) - 1))
    octets = bytearray(forms[at].data or b"x")
    octets[data.draw(st.integers(0, len(octets) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    forms[at] = forms[at]._replace(data=bytes(octets))
    try:
        decoded = decode_sketches(forms)
    except ValueError:
        return
    assert encode_sketches(decoded) == [form.data for form in forms]


def test_a_bit_too_few_in_one_code_and_one_too_many_in_the_next_are_noticed():
    forms = stored([by_hashes(range(70)), by_hashes(range(90))])
    for number, place, bit in ((0, 3 * 70, 0x80), (1, 3 * 90 + 30, 0x01)):
        octets = bytearray(forms[number].data)
        octets[place] ^= bit
        forms[number] = forms[number]._replace(data=bytes(octets))
    for in_order in (forms, forms[::-1]):
        with pytest.raises(ValueError, match="damaged high parts"):
            decode_sketches(in_order)


@pytest.mark.parametrize("count", [64, 65, 72, 73, 100])
def test_a_code_has_the_length_that_docs_format_gives(count):
    (code,) = encode_sketches([by_hashes(range(count))])
    assert len(code) == 3 * count + math.ceil((count + 255) / 8)
