-- Bucket pages of one slot. Included in the scripts of the layout "packed", behind _linear_hashing.lua, for which the hash of a bucket is
-- its band key. Reads the page generations into `generations`, the present one first.
--
-- A page is a hash of many buckets: field = first 3 bytes of the band key, value = document numbers (8 bytes each, joined). The last
-- byte of the band key is the last byte of the page's number, because there are always at least 256 pages. The server keeps a small
-- hash as a listpack, so a bucket of one document takes some 17 bytes. A value of more than 64 bytes would end the listpack, so the
-- members of a larger bucket are a string with a key of its own, and the field is empty.
--
-- A page generation has the members inserted during one lifetime, and expires one lifetime after its end. Documents are looked up in the
-- present generation, in the one before and, if the clock has gone back, in the next. A member is in only one generation.
--
-- Keys: K = prefix .. generation ('<pages> <buckets>'), K .. ':' .. page (a hash), K .. ':=' .. band key (a larger bucket).
-- ARGV[used+1], ARGV[used+2]: prefix of the keys, lifetime in milliseconds.

-- Fewest pages of a generation.
local FEWEST = 256
-- Mean number of buckets in a page above which a page is added.
local FULL_PAGE = 64
-- Longest value in a page, in bytes.
local LARGEST_VALUE = 64
local call, sub, unpack_key = redis.call, string.sub, struct.unpack
local prefix, lifetime = ARGV[used + 1], tonumber(ARGV[used + 2])

local function expire(generation, key)
  call('PEXPIREAT', key, (generation.number + 2) * lifetime)
end

-- The present generation, and those beside it that exist.
local function read_generations()
  local time, found = call('TIME'), {}
  local present_number = math.floor((time[1] * 1000 + time[2] / 1000) / lifetime)
  for _, number in ipairs({present_number, present_number - 1, present_number + 1}) do
    local key = prefix .. number
    local pages, buckets = string.match(call('GET', key) or '', '^(%d+) (%d+)$')
    if pages or number == present_number then
      local generation = {number = number, key = key, prefix = key .. ':', buckets = tonumber(buckets or 0)}
      set_pages(generation, tonumber(pages or FEWEST))
      found[#found + 1] = generation
    end
  end
  return found
end

local generations = read_generations()

local function save_generations()
  for _, generation in ipairs(generations) do
    call('SET', generation.key, generation.pages .. ' ' .. generation.buckets)
    expire(generation, generation.key)
  end
end

-- The bucket of the i-th band key: the band key as a number (hash), which decides on the page, and its field there.
local function bucket_at(i, band_keys)
  return (unpack_key('>I4', band_keys, 4 * i - 3)), sub(band_keys, 4 * i - 3, 4 * i - 1)
end

local function page_of(generation, hash)
  return page_key(generation, page_number(generation, hash))
end

-- Key of the members of a larger bucket.
local function large_key(generation, hash, field)
  return generation.key .. ':=' .. field .. string.char(hash % 256)
end

-- The members of a bucket, joined; '' for none.
local function read(generation, hash, field)
  local members = call('HGET', page_of(generation, hash), field)
  if members == '' then
    members = call('GET', large_key(generation, hash, field))
  end
  return members or ''
end

-- Replace the members of a bucket, which are `before`, by `after`.
local function write(generation, hash, field, before, after)
  local page, large = page_of(generation, hash), large_key(generation, hash, field)
  if #after > LARGEST_VALUE then
    call('SET', large, after)
    expire(generation, large)
  elseif #before > LARGEST_VALUE then
    call('UNLINK', large)
  end
  if after == '' then
    generation.buckets = generation.buckets - call('HDEL', page, field)
  else
    generation.buckets = generation.buckets + call('HSET', page, field, #after > LARGEST_VALUE and '' or after)
    expire(generation, page)
  end
end

-- The byte at which a document number begins in joined members; nil for none.
local function place_of(number, members)
  local place = string.find(members, number, 1, true)
  while place and place % 8 ~= 1 do
    place = string.find(members, number, place + 1, true)
  end
  return place
end

local function remove(generation, hash, field, number)
  local members = read(generation, hash, field)
  local place = place_of(number, members)
  if place then
    write(generation, hash, field, members, sub(members, 1, place - 1) .. sub(members, place + 8))
  end
end
