-- Where the buckets of one slot stand. Put in front of the scripts that know buckets.
--
-- A key of its own costs a bucket more than a hundred bytes, and most buckets have one member. So they stand together on
-- shelves: one sorted set for many, whose scores are the band keys. A member has 13 bytes: a digit that tells in which of four
-- eras it came, the band key once more, and the document number. A small sorted set is kept as a list, so a member takes some
-- twenty bytes.
--
-- Which shelf: linear hashing (W. Litwin, 1980). With n shelves and the largest b = FEWEST_SHELVES 2^i <= n, a band key stands on
-- shelf (key mod b), or (key mod 2b) where that is below n. When a shelf is added, the members of one other are parted.
--
-- An era is half a lifetime. The members of the last three may be alive; those of the one before are swept from the shelves
-- during an era, some at each call, for in the next their digit is used again.
--
-- Shelves stand in layers, most of the time in one. Documents enter the newest and are looked for in all that are alive. Another
-- one is begun when there are far too many shelves, when an era was not swept, or for another lifetime. A lifetime later the older
-- one is looked into no more, and another lifetime later its last shelf has gone.
--
-- The key of the layers holds the latest time seen, the last era, how many shelves were swept in it, and for each layer: its
-- number, how many shelves it has, the lifetime of its members ('0' for ever), until when it is looked into ('0' for always),
-- how many members it has, and the era in which it was begun. Times are in milliseconds, since the epoch.
local FEWEST_SHELVES = 1024
local byte, format, sub = string.byte, string.format, string.sub
local floor, max, min = math.floor, math.max, math.min

local function present()
  local time = redis.call('TIME')
  return time[1] * 1000 + floor(time[2] / 1000)
end

-- Give a layer so many shelves, and the largest of the powers that linear hashing needs.
local function set_shelves(layer, shelves)
  local base = FEWEST_SHELVES
  while 2 * base <= shelves do
    base = 2 * base
  end
  layer.shelves, layer.base = shelves, base
end

local function layer_of(prefix, id, shelves, lifetime, era)
  local layer = {id = id, lifetime = lifetime, last = 0, count = 0, begun = era}
  layer.prefix = format('%s%d:', prefix, id)
  set_shelves(layer, shelves)
  return layer
end

-- What the key of the layers holds, without layers of which nothing is left.
local function read_layers(key, prefix, now)
  local latest, era, swept, rest = string.match(redis.call('GET', key) or '0 0 0', '^(%d+) (%d+) (%d+)(.*)$')
  local layers = {latest = max(tonumber(latest), now), era = tonumber(era), swept = tonumber(swept)}
  local numbers = '(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)'
  for id, shelves, lifetime, last, count, begun in string.gmatch(rest, numbers) do
    local layer = layer_of(prefix, tonumber(id), tonumber(shelves), tonumber(lifetime), tonumber(begun))
    layer.last, layer.count = tonumber(last), tonumber(count)
    if layer.last == 0 or layer.last + layer.lifetime > now then
      layers[#layers + 1] = layer
    end
  end
  return layers
end

-- Note the layers until their last shelves have gone.
local function write_layers(key, layers, now)
  local entries, rest = {format('%.0f %.0f %d', layers.latest, layers.era, layers.swept)}, 0
  for _, layer in ipairs(layers) do
    local stop = layer.last == 0 and layers.latest + 2 * layer.lifetime or layer.last + layer.lifetime
    rest = layer.lifetime == 0 and math.huge or max(rest, stop - now)
    entries[#entries + 1] = format(
      '%d %d %.0f %.0f %d %.0f', layer.id, layer.shelves, layer.lifetime, layer.last, max(layer.count, 0), layer.begun
    )
  end
  redis.call('SET', key, table.concat(entries, ','))
  if rest < math.huge then
    redis.call('PEXPIRE', key, format('%.0f', rest))
  end
end

-- The key of a shelf. A number that is joined to a text takes a conversion twice as slow.
local function shelf_of(layer, number)
  return format('%s%d', layer.prefix, number)
end

-- The number of the shelf on which a bucket stands.
local function place_on(layer, band_key)
  local number = band_key % (2 * layer.base)
  return number < layer.shelves and number or band_key % layer.base
end

-- A band key of 4 bytes as a number.
local function number_of(band_key)
  local a, b, c, d = byte(band_key, 1, 4)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

-- A score of 32 bits with a sign: lists keep that in fewer bytes.
local function score_of(band_key)
  return format('%d', band_key - 2147483648)
end

-- What a member is in each of the four eras, as arguments.
local function of_any_era(band_key, number)
  local rest = band_key .. number
  return '0' .. rest, '1' .. rest, '2' .. rest, '3' .. rest
end

