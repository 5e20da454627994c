-- Decide which version of a document is kept: position order (rule 3 of docs/delivery.md), as index.documents.decide_version.
-- Included in the scripts that store index entries. Layout of an entry: index/entries.py, which counts bytes from 0.
local CREATED, REPLACED, REPLAYED, REDELIVERED, SUPERSEDED, COLLIDED = 0, 1, 2, 3, 4, 5
local byte, sub = string.byte, string.sub

-- A signed number of 8 bytes at place i of s, exact up to 2^53. Kafka writes -1 for a record without a time.
local function i64(s, i)
  local a, b, c, d, e, f, g, h = byte(s, i, i + 7)
  if a >= 128 then a = a - 256 end
  return ((((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g) * 256 + h
end

local function parse(entry)
  local partition_end = 35 + byte(entry, 34) * 256 + byte(entry, 35)
  local id_start = partition_end + 3
  local id_length = byte(entry, partition_end + 1) * 256 + byte(entry, partition_end + 2)
  return {
    digest = sub(entry, 2, 17), time = i64(entry, 18), offset = i64(entry, 26),
    partition = sub(entry, 36, partition_end), id = sub(entry, id_start, id_start + id_length - 1),
  }
end

-- The state of the version `new` where the entry `stored` is in the index; an entry without an id is a deletion marker.
local function decide(stored, new)
  local is_deletion = stored.id == '' or new.id == ''
  if not is_deletion and stored.id ~= new.id then return COLLIDED end
  local same_content = stored.digest == new.digest
  local same_partition = stored.partition == new.partition
  if same_partition and stored.offset == new.offset then
    return same_content and REPLAYED or REPLACED
  end
  if same_partition and new.offset < stored.offset then return SUPERSEDED end
  if same_content and not is_deletion then return REDELIVERED end
  if not same_partition and new.time <= stored.time then return SUPERSEDED end
  return REPLACED
end

-- Iterate over joined document numbers and entries: row, number, entry.
local function entries(numbers, lengths, joined)
  local i, last = 0, 0
  return function()
    i = i + 1
    if 8 * i <= #numbers then
      local first = last + 1
      local a, b, c, d = byte(lengths, 4 * i - 3, 4 * i)
      last = last + ((a * 256 + b) * 256 + c) * 256 + d
      return i, sub(numbers, 8 * i - 7, 8 * i), sub(joined, first, last)
    end
  end
end
