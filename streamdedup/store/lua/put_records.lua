-- Store document records of one slot, each by the rule of position order (store.base.decide_put).
--
-- After the fences: ARGV  prefix of record keys, lifetime in milliseconds ('0' for ever), then for each document
--   its number (8 bytes, as in the key) and its record (layout: store/records.py).
-- Returns {state, state, ..., i, record, i, record, ...}: n states, then for each REPLACED, REPLAYED or COLLIDED document its
--   index among the n and the record that stood there.
local CREATED, REPLACED, REPLAYED, REDELIVERED, SUPERSEDED, COLLIDED = 0, 1, 2, 3, 4, 5
local byte, sub = string.byte, string.sub

-- A signed number of 8 bytes, exact up to 2^53. Kafka writes -1 for a time that a record does not have.
local function i64(s, i)
  local a, b, c, d, e, f, g, h = byte(s, i, i + 7)
  if a >= 128 then a = a - 256 end
  return ((((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g) * 256 + h
end

local function parse(record)
  local partition_end = 43 + byte(record, 42) * 256 + byte(record, 43)
  local id_start = partition_end + 3
  local id_length = byte(record, partition_end + 1) * 256 + byte(record, partition_end + 2)
  return {
    digest = sub(record, 10, 25), time = i64(record, 26), offset = i64(record, 34),
    partition = sub(record, 44, partition_end), id = sub(record, id_start, id_start + id_length - 1),
  }
end

local function decide(stored, new)
  if stored.id ~= new.id then return COLLIDED end
  local same_content = stored.digest == new.digest
  local same_partition = stored.partition == new.partition
  if same_partition and stored.offset == new.offset then
    return same_content and REPLAYED or REPLACED
  end
  if same_partition and new.offset < stored.offset then return SUPERSEDED end
  if same_content then return REDELIVERED end
  if not same_partition and new.time <= stored.time then return SUPERSEDED end
  return REPLACED
end

local prefix, lifetime = ARGV[at + 1], ARGV[at + 2]
at = at + 2
local count = (#ARGV - at) / 2
local result = {}
local previous = count
for i = 1, count do
  local key, record = prefix .. ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
  local stored
  if lifetime == '0' then
    stored = redis.call('SET', key, record, 'NX', 'GET')
  else
    stored = redis.call('SET', key, record, 'NX', 'GET', 'PX', lifetime)
  end
  if not stored then
    result[i] = CREATED
  else
    local state = decide(parse(stored), parse(record))
    result[i] = state
    if state == REPLACED then
      if lifetime == '0' then
        redis.call('SET', key, record)
      else
        redis.call('SET', key, record, 'PX', lifetime)
      end
    end
    if state == REPLACED or state == REPLAYED or state == COLLIDED then
      result[previous + 1] = i
      result[previous + 2] = stored
      previous = previous + 2
    end
  end
end
return result
