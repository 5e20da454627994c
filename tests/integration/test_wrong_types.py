"""A value of another type where the index has one of its own: the error names the key, the prefix and the cure."""

import numpy as np
import pytest

from streamdedup import Index, Profile
from streamdedup.errors import StoreMisconfigured
from streamdedup.index.redis.keys import Keys
from streamdedup.indexes import connect_backend
from streamdedup.position import Partition
from streamdedup.settings import Settings
from tests.entries import an_entry

PARTITION = Partition("articles", 0)


@pytest.fixture
def opened(redis_client, redis_url):
    values = {"kafka.bootstrap_servers": "h:1", "redis.url": redis_url, "profiles.articles.topics": "articles"}
    settings = Settings.load(None, values, {})
    with connect_backend(settings) as backend:
        store = backend.index("articles")
        store.open(settings.profiles["articles"].fingerprint())
        yield redis_client, backend, store, Keys("sd:articles", settings.profiles["articles"].banding().bands)


def test_the_key_that_a_script_meets_is_named_with_prefix_and_cure(opened):
    client, _, store, keys = opened
    fence = store.fence(PARTITION, 1, 0)
    band_keys = np.zeros((1, keys.slots_count), dtype=np.uint32)
    store.insert_and_look_up([1], band_keys, [fence])
    bucket = keys.buckets_prefix(3) + bytes(4)
    assert client.delete(bucket) == 1
    client.rpush(bucket, "of somebody else")
    with pytest.raises(StoreMisconfigured) as caught:
        store.insert_and_look_up([2], band_keys, [fence])
    text = str(caught.value)
    assert rf"the key {keys.buckets_prefix(3).decode()}\x00\x00\x00\x00 holds a value of another type" in text
    assert "redis.key_prefix is sd" in text
    assert "streamdedup index rebuild" in text


def test_a_script_with_flags_names_the_key(opened):
    client, backend, _, keys = opened
    staging = backend.staging("articles")
    staging.take_lease()
    client.delete(keys.staging)
    client.rpush(keys.staging, "of somebody else")
    with pytest.raises(StoreMisconfigured, match=r"the key \{sd:articles:0\}staging holds a value of another type"):
        staging.clear()


def test_a_lease_that_cannot_be_given_up_raises_no_error(opened):
    client, backend, _, keys = opened
    staging = backend.staging("articles")
    staging.take_lease()
    client.delete(keys.staging)
    client.rpush(keys.staging, "of somebody else")
    staging.abandon()


def test_a_look_up_names_the_slot_and_no_key_that_does_not_exist(opened):
    client, backend, _, keys = opened
    client.rpush(keys.buckets_prefix(3) + bytes(4), "of somebody else")
    with pytest.raises(StoreMisconfigured) as caught:
        backend.reader("articles").look_up([1], np.zeros((1, keys.slots_count), dtype=np.uint32))
    assert str(caught.value).startswith("the key {sd:articles:3}... holds a value of another type")


def test_a_program_is_told_its_own_cure(redis_client, redis_url):
    with Index.connect(redis_url, Profile(), name="articles") as index:
        index.add([("a", "one two three four five")])
        (bucket, *_) = redis_client.scan_iter("{streamdedup-library:articles:3}b*")
        redis_client.delete(bucket)
        redis_client.rpush(bucket, "of somebody else")
        text = r"key \{streamdedup-library:articles:3\}.*another name=.*; then Index\.delete\(url, name=\.\.\.\)$"
        for use in (
            lambda: index.add([("b", "one two three four five")]),
            lambda: index.lookup(["one two three four five"]),
        ):
            with pytest.raises(StoreMisconfigured, match=text) as caught:
                use()
            assert "redis.key_prefix" not in str(caught.value)
    assert Index.delete(redis_url, name="articles")
    assert not redis_client.keys()


def test_a_key_that_is_not_text_is_shown_with_escapes(opened):
    client, _, store, keys = opened
    fence = store.fence(PARTITION, 1, 0)
    digest = bytes(range(0, 256, 16))
    slot = keys.digest_slot(digest)
    client.set(keys.copies_prefix(slot) + digest, "of somebody else")
    with pytest.raises(StoreMisconfigured, match=r"the key \{sd:articles:\d\}d\\x00\\x10 0@P`p\\x80\\x90"):
        store.insert_copies([(1, digest)], [fence])


def test_the_key_of_a_single_command_is_named(opened):
    client, backend, _, keys = opened
    client.rpush(keys.fingerprint.replace(b"articles", b"other"), "x")
    with pytest.raises(StoreMisconfigured, match=r"the key \{sd:other:0\}fingerprint holds a value of another"):
        backend.inspector("other").fingerprint()


@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: b"\xff" + data[1:], lambda _data: b""])
def test_a_damaged_index_entry_is_a_fatal_error(opened, damage):
    client, _, store, keys = opened
    fence = store.fence(PARTITION, 1, 0)
    store.insert_entries([an_entry(7)], [fence])
    client.set(keys.entry(7), damage(client.get(keys.entry(7))))
    told = r"index entry 7 is damaged: .*; another program writes to the keys"
    for read in (lambda: store.get_entries([7]), lambda: store.read_entries([7], 1)):
        with pytest.raises(StoreMisconfigured, match=told):
            read()
