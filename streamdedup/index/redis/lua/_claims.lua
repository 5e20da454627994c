-- The pages that hold the claims of one slot (rule 5 of docs/delivery.md). Included in the scripts that read or write claims.
--
-- A claim with a key of its own would take 180 bytes (Redis 7). So claims share pages: hashes of up to some hundred fields, which the
-- server keeps as listpacks. A field is the last 12 bytes of the pair key. Its value is the token of the position that owns the pair: a
-- digest of 8 bytes (index/entries.py, which also reads the catalogue).
--
-- Page of a claim: linear hashing (W. Litwin, 1980). With n pages and the largest b = 2^i <= n, a claim is on page (hash mod 2b) if
-- that page exists, else on page (hash mod b): with 5 pages, hash 12 is on page 4 (12 mod 8), hash 13 on page 1 (13 mod 4). A new page
-- takes its fields from one other page: page 5 takes hash 13 from page 1.
--
-- A page expires as a whole, so pages belong to generations: a generation takes claims for half of their time to live, and its pages
-- expire one time to live after that. A claim is looked up in all generations, at most three in steady operation, and each request moves
-- it to the newest. A new generation begins when the newest has taken claims for half a time to live, when the clock has gone back by
-- more than half a time to live, and when the time to live has become longer.
--
-- The catalogue, a string, holds six numbers for each generation: its number, its pages, its claims, the time to live of its claims
-- ('0' for ever), when it began, and when it ended ('0' for the newest). Times are in milliseconds, since the epoch.
--
-- Claims for each page before another one is added: the fullest pages then have 64 in the mean, so that all stay below 128
-- fields. docs/redis.md asks for a limit of at least 256 fields in a listpack (hash-max-listpack-entries; servers come with 512).
local FULL_PAGE = 32
-- Largest number of generations: daemons with different settings must not begin new ones without end.
local MOST_GENERATIONS = 8
local byte, format, sub, floor, max, min = string.byte, string.format, string.sub, math.floor, math.max, math.min

local function present()
  local time = redis.call('TIME')
  return time[1] * 1000 + floor(time[2] / 1000)
end

-- Set the number of pages of a generation, and the largest power of two up to it.
local function set_pages(generation, pages)
  local base = 1
  while 2 * base <= pages do
    base = 2 * base
  end
  generation.pages, generation.base = pages, base
end

-- `touched`: the numbers of the pages that this call writes, for expire_pages.
local function generation_of(prefix, number, pages, claims, lifetime, begun, ended)
  local generation = {number = number, claims = claims, lifetime = lifetime, begun = begun, ended = ended, touched = {}}
  generation.prefix = format('%s%d:', prefix, number)
  set_pages(generation, pages)
  return generation
end

-- How long a generation takes claims, in milliseconds, 0 for ever. `lifetime`, that of the claims of this call, counts for a generation
-- whose claims live for ever.
local function span_of(generation, lifetime)
  return math.ceil((generation.lifetime > 0 and generation.lifetime or lifetime) / 2)
end

-- The generations of a slot that have not expired, oldest first.
local function read_generations(key, prefix, now)
  local generations = {}
  local numbers = '(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)'
  for number, pages, claims, lifetime, begun, ended in string.gmatch(redis.call('GET', key) or '', numbers) do
    local generation = generation_of(
      prefix, tonumber(number), tonumber(pages), tonumber(claims), tonumber(lifetime), tonumber(begun), tonumber(ended)
    )
    if generation.lifetime == 0 or generation.ended == 0 or now < generation.ended + generation.lifetime then
      generations[#generations + 1] = generation
    end
  end
  return generations
end

local function write_generations(key, generations, now)
  -- The catalogue outlives all pages: without it the numbers of generations, and so the keys of pages, begin anew.
  local entries, time_to_live = {}, 0
  for i = max(1, #generations - MOST_GENERATIONS + 1), #generations do
    local g = generations[i]
    local expiry = (g.ended > 0 and g.ended or max(now, g.begun + span_of(g, 0))) + g.lifetime
    time_to_live = g.lifetime == 0 and math.huge or max(time_to_live, expiry - now)
    entries[#entries + 1] = format('%d %d %d %.0f %.0f %.0f', g.number, g.pages, max(g.claims, 0), g.lifetime, g.begun, g.ended)
  end
  redis.call('SET', key, table.concat(entries, ','))
  if time_to_live < math.huge then
    redis.call('PEXPIRE', key, format('%.0f', max(time_to_live, 1)))
  end
end

-- Whether the newest generation takes claims with this time to live now.
local function is_open(newest, lifetime, now)
  -- Claims with a longer time to live need pages that expire later.
  if newest.lifetime > 0 and (lifetime == 0 or lifetime > newest.lifetime) then
    return false
  end
  local span = span_of(newest, lifetime)
  return span == 0 or (now < newest.begun + span and now >= newest.begun - span)
end

-- The generation that takes claims now: the newest, or a new one.
local function open_generation(generations, prefix, lifetime, now)
  local newest = generations[#generations]
  if newest and is_open(newest, lifetime, now) then
    return newest
  end
  local pages = 1
  if newest then
    newest.ended = max(now, 1)  -- 0 would mean that it has not ended
    -- Half of the pages that the claims of the generation before fill.
    pages = max(1, floor(newest.claims / FULL_PAGE / 2))
  end
  local begun = generation_of(prefix, newest and newest.number + 1 or 1, pages, 0, lifetime, now, 0)
  generations[#generations + 1] = begun
  return begun
end

local function page_of(generation, field)
  local a, b, c, d = byte(field, 1, 4)
  local hash = ((a * 256 + b) * 256 + c) * 256 + d
  local number = hash % (2 * generation.base)
  return number < generation.pages and number or hash % generation.base
end

local function page_key(generation, number)
  return format('%s%d', generation.prefix, number)
end

-- Find a claim; return its value and its generation.
local function find(generations, field)
  for i = #generations, 1, -1 do
    local value = redis.call('HGET', page_key(generations[i], page_of(generations[i], field)), field)
    if value then
      return value, generations[i]
    end
  end
end

local function remove(generation, field)
  generation.claims = generation.claims - redis.call('HDEL', page_key(generation, page_of(generation, field)), field)
end

-- Add a page: move its fields from the page that has had them so far.
local function add_page(generation)
  local from, to = page_key(generation, generation.pages - generation.base), generation.pages
  set_pages(generation, generation.pages + 1)
  local held, moved, fields = redis.call('HGETALL', from), {}, {}
  for i = 1, #held, 2 do
    if page_of(generation, held[i]) == to then
      moved[#moved + 1], moved[#moved + 2], fields[#fields + 1] = held[i], held[i + 1], held[i]
    end
  end
  if #fields > 0 then
    redis.call('HSET', page_key(generation, to), unpack(moved))
    redis.call('HDEL', from, unpack(fields))
    generation.touched[to] = true
  end
end

-- Insert a claim in the newest generation.
local function insert(generation, field, value)
  local number = page_of(generation, field)
  generation.claims = generation.claims + redis.call('HSET', page_key(generation, number), field, value)
  generation.touched[number] = true
  if generation.claims > FULL_PAGE * generation.pages then
    add_page(generation)
  end
end

-- Set the time to live of the pages that were written: they expire one time to live of claims after the generation ends.
local function expire_pages(generation, now)
  if generation.lifetime == 0 then
    return
  end
  local span = span_of(generation, 0)
  -- The time until the generation ends is at most the span, also after the clock has gone back.
  local time_to_live = format('%.0f', min(max(generation.begun + span - now, 0), span) + generation.lifetime)
  for number in pairs(generation.touched) do
    redis.call('PEXPIRE', page_key(generation, number), time_to_live)
  end
end

