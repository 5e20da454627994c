"""Whether an index can be continued: what differs is named, with what helps."""

import pytest

from streamdedup.errors import IndexMismatch
from streamdedup.index.fingerprints import (
    ADVISORY_PARAMETERS,
    MAINTAINED_BY_PROGRAMS,
    REBUILT_S,
    VERSION_PARAMETERS,
    compare_fingerprints,
)
from streamdedup.index.redis.reading import RedisIndexOptions
from streamdedup.settings import Settings

OURS = {"seed": 1, "unicode": "15.0.0", "signature_algorithm": 1, "shingle_algorithm": 2}


def a_place(**options):
    return RedisIndexOptions(namespace="sd:articles", bands=4, **{"lifetime_ms": 60_000} | options)


def test_an_index_of_the_same_parameters_is_continued():
    assert compare_fingerprints(OURS, OURS).advisories == ()


def test_an_index_of_an_older_version_is_refused_and_the_version_is_what_differs():
    older = {name: value for name, value in OURS.items() if name != "signature_algorithm"}
    with pytest.raises(IndexMismatch) as caught:
        compare_fingerprints({**older, "unicode": "14.0.0"}, OURS)
    text = str(caught.value)
    assert text.startswith("signature_algorithm is None in the index and 1 in this version. Restore the version")
    assert "`streamdedup index rebuild` while all daemons are stopped; or" in text
    with pytest.raises(IndexMismatch, match=r"stopped; the last one took 12\.5 s; or without a pause"):
        compare_fingerprints({**older, REBUILT_S: 12.5}, OURS)
    assert compare_fingerprints({**OURS, REBUILT_S: 12.5}, OURS).advisories == ()


def test_where_settings_differ_too_they_are_what_to_restore():
    with pytest.raises(IndexMismatch, match=r"seed is 2 in the index and 1 in the settings.*Restore the settings"):
        compare_fingerprints({**OURS, "seed": 2, "shingle_algorithm": 1}, OURS)


def test_the_cure_is_for_the_process_that_opens_the_index():
    of_programs = {**OURS, **MAINTAINED_BY_PROGRAMS}
    with pytest.raises(IndexMismatch, match="give a new index another name"):
        compare_fingerprints(OURS, of_programs)
    with pytest.raises(IndexMismatch, match="streamdedup index rebuild"):
        compare_fingerprints(of_programs, OURS)


def test_what_makes_hardly_any_difference_is_told():
    opening = compare_fingerprints({**OURS, "unicode": "14.0.0"}, OURS)
    assert opening.advisories == ("unicode is '14.0.0' in the index and '15.0.0' in the settings",)


def test_the_length_of_a_page_generation_belongs_to_an_index_of_pages_only():
    sets = a_place(shards=2, lifetime_ms=60_000).stored_fingerprint(OURS)
    layouts = {"bucket_layout": "sets", "layout": 2}
    assert sets == {**OURS, "shards": 2, **layouts}
    packed = a_place(shards=2, bucket_layout="packed", lifetime_ms=60_000).stored_fingerprint(OURS)
    assert packed == {**sets, "bucket_layout": "packed", "page_generation_ms": 60_000}
    with pytest.raises(IndexMismatch, match="bucket_layout is 'sets' in the index and 'packed' in the settings"):
        compare_fingerprints(sets, packed)
    longer = r"^retention plus retention_slack, in milliseconds, is 60000 in the index and 70000 in the settings\."
    with pytest.raises(IndexMismatch, match=longer):
        compare_fingerprints(packed, {**packed, "page_generation_ms": 70_000})


def test_every_parameter_of_the_version_is_in_the_fingerprint_of_a_profile():
    given = {"kafka.bootstrap_servers": "h:1", "redis.url": "redis://h", "profiles.articles.topics": "t"}
    of_profile = Settings.load(None, given, {}).profiles["articles"].fingerprint()
    fingerprint = a_place().stored_fingerprint(of_profile)
    assert fingerprint.keys() >= VERSION_PARAMETERS | ADVISORY_PARAMETERS
