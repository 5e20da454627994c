-- Documents enter their buckets of one slot and learn who else is there. Adding and reading are one atomic step, so of two
-- documents that race at least one sees the other.
--
-- After the fences: ARGV  prefix of the shelves, key of the layers, lifetime in milliseconds ('0' for ever), cap ('0' for
--   none), how many members of a full bucket to show, band keys (4 bytes for each of n documents, joined), then n document
--   numbers (8 bytes).
-- Returns {{i, ...}, {i, ...}, i, members, i, members, ...}: the documents that met a full bucket, those that met one with at
--   least half as many others as it can hold, then for each document that met others its index among the n and the members,
--   whose last 8 bytes are their numbers.
local prefix, layers_key, lifetime, cap = ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
local shown, band_keys = tonumber(ARGV[at + 5]), ARGV[at + 6]
at = at + 6
local count = #ARGV - at
local now = present()
-- Most members of a bucket that are read before they are counted.
local FEW, FIRST = 8, '9'

local layers = read_layers(layers_key, prefix, now)
local alive = alive_of(layers, now)
local newest = layer_to_enter(layers, alive, prefix, lifetime, now)

-- How long a shelf lives, until its members were swept; not less because the clock has gone back.
local time_to_live = format('%.0f', layers.latest - now + 2 * newest.lifetime)
local digit = format('%d', layers.era % 4)

local function add(shelf, score, band_key, number)
  newest.count = newest.count + redis.call('ZADD', shelf, score, digit .. band_key .. number)
  if newest.lifetime > 0 then
    redis.call('PEXPIRE', shelf, time_to_live)
  end
end

-- Take a document out of its bucket in a layer, and what few others are there; of many others only how many there are.
-- first: the first members of the bucket.
local function look(bucket, layer, shelf, score, band_key, number, first)
  if #first <= FEW then
    for _, member in ipairs(first) do
      if sub(member, -8) == number then
        layer.count = layer.count - redis.call('ZREM', shelf, member)
        bucket.is_in = true
      else
        table.insert(bucket.met, member)
      end
    end
    return
  end
  local removed = redis.call('ZREM', shelf, of_any_era(band_key, number))
  layer.count = layer.count - removed
  bucket.is_in = bucket.is_in or removed > 0
  local size = redis.call('ZCOUNT', shelf, score, score)
  bucket.in_large = bucket.in_large + size
  table.insert(bucket.large, {shelf = shelf, score = score, size = size})
end

-- Some members of a full bucket, others for each document.
local function some(bucket, number)
  local large = bucket.large[#bucket.large]
  if not large then
    return {unpack(bucket.met, 1, shown)}
  end
  local a, b = byte(number, 7, 8)
  local offset = (a * 256 + b) % max(1, large.size - shown + 1)
  return redis.call('ZRANGEBYSCORE', large.shelf, large.score, large.score, 'LIMIT', offset, shown)
end

local full, crowded = {}, {}
local result = {full, crowded}

-- Let a document into a bucket where others may be; note whom it meets. i: its index.
local function enter(i, number, shelf, score, band_key, bucket)
  local met, others = bucket.met, #bucket.met + bucket.in_large
  if cap > 0 and 2 * others >= cap then
    crowded[#crowded + 1] = i
  end
  if cap > 0 and others >= cap and not bucket.is_in then
    full[#full + 1] = i
    met = some(bucket, number)
  else
    for _, large in ipairs(bucket.large) do
      for _, member in ipairs(redis.call('ZRANGEBYSCORE', large.shelf, large.score, large.score)) do
        met[#met + 1] = member
      end
    end
    add(shelf, score, band_key, number)
  end
  if #met > 0 then
    result[#result + 1] = i
    result[#result + 1] = met
  end
end

for i = 1, count do
  local number, band_key, bucket = ARGV[at + i], sub(band_keys, 4 * i - 3, 4 * i), nil
  local key = number_of(band_key)
  local score = score_of(key)
  local shelf  -- after the last layer, the one that the document enters
  for j = 1, #alive do
    shelf = shelf_of(alive[j], place_on(alive[j], key))
    local first = redis.call('ZRANGEBYSCORE', shelf, score, score, 'LIMIT', '0', FIRST)
    if #first > 0 then
      bucket = bucket or {met = {}, large = {}, in_large = 0, is_in = false}
      look(bucket, alive[j], shelf, score, band_key, number, first)
    end
  end
  if bucket then
    enter(i, number, shelf, score, band_key, bucket)
  else
    add(shelf, score, band_key, number)
  end
end

grow(layers, count)
if newest.lifetime > 0 then
  sweep(layers, count)
end
write_layers(layers_key, layers, now)
return result
