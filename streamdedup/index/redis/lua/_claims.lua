-- The claims of one slot in pages (rule 5 of docs/delivery.md). Included in claim_pairs.lua, behind _linear_hashing.lua, which decides on
-- the page of a claim by the first 4 bytes of its field.
--
-- A claim with a key of its own would take 180 bytes (Redis 7). So claims share pages: hashes of up to some hundred fields, which the
-- server keeps as listpacks. A field is the last 12 bytes of the pair key, its value the token of the position that owns the pair, 8
-- bytes (index/entries.py, which also reads the catalogue).
--
-- A page expires as a whole, so pages belong to generations: a generation takes claims for half of their time to live, and its pages
-- expire one time to live after that. A claim is looked up in all generations, at most three in steady operation, and each request moves
-- it to the newest. A new generation also begins when the clock has gone back by more than half a time to live, and when the time to
-- live has become longer.
--
-- The catalogue, a string, has six numbers for each generation: its number, its pages, its claims, the time to live of its claims, when
-- it began, and when it ended ('0' for the newest). Times are in milliseconds, since the epoch.

-- Claims for each page before another one is added: the fullest pages then have 64 in the mean, so that all stay below 128
-- fields. docs/redis.md asks for a limit of at least 256 fields in a listpack (hash-max-listpack-entries; servers come with 512).
local FULL_PAGE = 32
-- Largest number of generations: daemons with different settings must not begin new ones without end.
local MOST_GENERATIONS = 8
local byte, floor, max, min = string.byte, math.floor, math.max, math.min

local function present()
  local time = redis.call('TIME')
  return time[1] * 1000 + floor(time[2] / 1000)
end

-- A generation without claims, which takes claims for `span` milliseconds; `touched` has the pages that this call writes.
local function generation_of(prefix, number, pages, lifetime, begun)
  local generation = {number = number, claims = 0, lifetime = lifetime, begun = begun, ended = 0, touched = {}}
  generation.prefix, generation.span = format('%s%d:', prefix, number), math.ceil(lifetime / 2)
  set_pages(generation, pages)
  return generation
end

-- The generations of a slot that have not expired, oldest first.
local function read_generations(key, prefix, now)
  local generations = {}
  local numbers = '(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)'
  for number, pages, claims, lifetime, begun, ended in string.gmatch(redis.call('GET', key) or '', numbers) do
    local generation = generation_of(prefix, tonumber(number), tonumber(pages), tonumber(lifetime), tonumber(begun))
    generation.claims, generation.ended = tonumber(claims), tonumber(ended)
    if generation.ended == 0 or now < generation.ended + generation.lifetime then
      generations[#generations + 1] = generation
    end
  end
  return generations
end

local function write_generations(key, generations, now)
  -- The catalogue outlives all pages: without it the numbers of generations, parts of the keys of pages, begin anew.
  local entries, time_to_live = {}, 1
  for i = max(1, #generations - MOST_GENERATIONS + 1), #generations do
    local g = generations[i]
    local last_claim = g.ended > 0 and g.ended or max(now, g.begun + g.span)
    time_to_live = max(time_to_live, last_claim + g.lifetime - now)
    entries[#entries + 1] = format('%d %d %d %.0f %.0f %.0f', g.number, g.pages, max(g.claims, 0), g.lifetime, g.begun, g.ended)
  end
  redis.call('SET', key, table.concat(entries, ','))
  redis.call('PEXPIRE', key, format('%.0f', time_to_live))
end

-- Whether the newest generation takes claims with this time to live now.
local function is_open(newest, lifetime, now)
  -- Claims with a longer time to live need pages that expire later.
  return lifetime <= newest.lifetime and now < newest.begun + newest.span and now >= newest.begun - newest.span
end

-- The generation that takes claims now: the newest, or a new one.
local function open_generation(generations, prefix, lifetime, now)
  local newest = generations[#generations]
  if newest and is_open(newest, lifetime, now) then
    return newest
  end
  local number, pages = 1, 1
  if newest then
    newest.ended = max(now, 1)  -- 0 would mean that it has not ended
    -- Half of the pages that the claims of the last generation fill.
    number, pages = newest.number + 1, max(1, floor(newest.claims / FULL_PAGE / 2))
  end
  local begun = generation_of(prefix, number, pages, lifetime, now)
  generations[#generations + 1] = begun
  return begun
end

local function hash_of(field)
  local a, b, c, d = byte(field, 1, 4)  -- fakeredis has no `struct`
  return ((a * 256 + b) * 256 + c) * 256 + d
end

-- Find a claim; return its value and its generation.
local function find(generations, field)
  for i = #generations, 1, -1 do
    local value = redis.call('HGET', page_key(generations[i], page_number(generations[i], hash_of(field))), field)
    if value then
      return value, generations[i]
    end
  end
end

local function remove(generation, field)
  local page = page_key(generation, page_number(generation, hash_of(field)))
  generation.claims = generation.claims - redis.call('HDEL', page, field)
end

local function insert(generation, field, value)
  local number = page_number(generation, hash_of(field))
  generation.claims = generation.claims + redis.call('HSET', page_key(generation, number), field, value)
  generation.touched[number] = true
  if generation.claims > FULL_PAGE * generation.pages then
    generation.touched[add_page(generation, hash_of)] = true
  end
end

-- Set the time to live of the pages that were written: they expire one time to live of claims after the generation ends.
local function expire_pages(generation, now)
  -- The time until the generation ends is at most the span, also after the clock has gone back.
  local rest = min(max(generation.begun + generation.span - now, 0), generation.span)
  for number in pairs(generation.touched) do
    redis.call('PEXPIRE', page_key(generation, number), format('%.0f', rest + generation.lifetime))
  end
end
