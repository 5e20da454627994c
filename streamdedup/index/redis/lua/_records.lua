-- Position order: what becomes of a record where another stands (store.documents.decide_version). Put in front of the scripts
-- that store records.
local CREATED, REPLACED, REPLAYED, REDELIVERED, SUPERSEDED, COLLIDED = 0, 1, 2, 3, 4, 5
local byte, sub = string.byte, string.sub

-- A signed number of 8 bytes, exact up to 2^53. Kafka writes -1 for a time that a record does not have.
local function i64(s, i)
  local a, b, c, d, e, f, g, h = byte(s, i, i + 7)
  if a >= 128 then a = a - 256 end
  return ((((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g) * 256 + h
end

local function parse(record)
  local partition_end = 35 + byte(record, 34) * 256 + byte(record, 35)
  local id_start = partition_end + 3
  local id_length = byte(record, partition_end + 1) * 256 + byte(record, partition_end + 2)
  return {
    digest = sub(record, 2, 17), time = i64(record, 18), offset = i64(record, 26),
    partition = sub(record, 36, partition_end), id = sub(record, id_start, id_start + id_length - 1),
  }
end

local function decide(stored, new)
  local marks = stored.id == '' or new.id == ''
  if not marks and stored.id ~= new.id then return COLLIDED end
  local same_content = stored.digest == new.digest
  local same_partition = stored.partition == new.partition
  if same_partition and stored.offset == new.offset then
    return same_content and REPLAYED or REPLACED
  end
  if same_partition and new.offset < stored.offset then return SUPERSEDED end
  if same_content and not marks then return REDELIVERED end
  if not same_partition and new.time <= stored.time then return SUPERSEDED end
  return REPLACED
end

-- Iterate over document numbers and entries that are joined: index, number, entry.
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

local function store(key, record, lifetime)
  if lifetime == '0' then
    redis.call('SET', key, record)
  else
    redis.call('SET', key, record, 'PX', lifetime)
  end
end

