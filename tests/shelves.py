"""Reads the buckets of an index in Redis, by what ``lua/_shelves.lua`` says of their place and nothing of its code."""

from dataclasses import astuple, dataclass

from streamdedup.store.redis_keys import Keys
from streamdedup.store.redis_servers import Servers

#: Shelves of a new layer.
FEWEST = 1024


@dataclass(frozen=True)
class Layer:
    """A layer, as the key of the layers has it; times in milliseconds, 0 for none."""

    number: int
    shelves: int
    lifetime_ms: int
    last_ms: int
    members_count: int
    begun: int

    def shelf(self, band_key: int) -> int:
        """Return the number of the shelf of a bucket."""
        least = FEWEST
        while least * 2 <= self.shelves:
            least *= 2
        return band_key % (2 * least) if band_key % (2 * least) < self.shelves else band_key % least


@dataclass(frozen=True)
class Layers:
    """What the key of the layers holds."""

    latest_ms: int
    era: int
    swept_count: int
    each: list[Layer]


def read_layers(servers: Servers, keys: Keys, slot: int) -> Layers:
    """Return the layers of a slot, the one that documents enter last."""
    key = keys.layers(slot)
    head, *entries = (servers.ask(key, "GET", key) or b"0 0 0").decode().split(",")
    return Layers(*map(int, head.split()), [Layer(*map(int, entry.split())) for entry in entries])


def write_layers(servers: Servers, keys: Keys, slot: int, layers: Layers) -> None:
    """Put other layers there."""
    entries = [" ".join(map(str, astuple(layer))) for layer in layers.each]
    text = ",".join([f"{layers.latest_ms} {layers.era} {layers.swept_count}", *entries])
    servers.ask(keys.layers(slot), "SET", keys.layers(slot), text, "KEEPTTL")


def members_of(servers: Servers, keys: Keys, slot: int, band_key: int) -> set[int]:
    """Return the documents in a bucket, in all layers."""
    found = set()
    for layer in read_layers(servers, keys, slot).each:
        shelf = keys.shelves(slot) + b"%d:%d" % (layer.number, layer.shelf(band_key))
        members = servers.ask(shelf, "ZRANGE", shelf, 0, -1)
        mine = [member for member in members if member[1:5] == band_key.to_bytes(4, "big")]
        found |= {int.from_bytes(member[5:], "big", signed=True) for member in mine}
    return found


def era_of(member: bytes) -> int:
    """Return the era in which a member came, modulo four."""
    return int(member[:1])
