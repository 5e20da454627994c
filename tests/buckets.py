"""Reads the buckets of an index in Redis, by the description of their keys and not by the code that writes them."""

from itertools import chain

from streamdedup.index.redis.keys import Keys
from streamdedup.index.redis.servers import Servers


def members_in_set(servers: Servers, keys: Keys, slot: int, band_key: int) -> set[int]:
    """Return the documents in a bucket of the layout ``sets``, of both parts."""
    key = keys.buckets_prefix(slot) + band_key.to_bytes(4, "big")
    parts = [[int(member) for member in servers.ask(part, "SMEMBERS", part)] for part in (key, key + b":")]
    assert len(set(chain(*parts))) == sum(map(len, parts)), "a member in both parts"
    return set(chain(*parts))


def members_in_pages(servers: Servers, keys: Keys, slot: int, band_key: int, generation: int) -> set[int]:
    """Return the documents in a bucket of the layout ``packed``, of one page generation."""
    prefix = keys.buckets_prefix(slot) + b"%d" % generation
    text = servers.ask(prefix, "GET", prefix)
    if text is None:
        return set()
    pages = int(text.split()[0])
    base = 1
    while 2 * base <= pages:
        base *= 2
    number = band_key % (2 * base) if band_key % (2 * base) < pages else band_key % base
    page, bucket = prefix + b":%d" % number, band_key.to_bytes(4, "big")
    members = servers.ask(page, "HGET", page, bucket[:3])
    if members == b"":
        own = prefix + b":=" + bucket
        members = servers.ask(own, "GET", own)
    members = members or b""
    return {int.from_bytes(members[at : at + 8], "big", signed=True) for at in range(0, len(members), 8)}
