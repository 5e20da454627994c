-- Bucket pages of one slot. Included in the scripts of the layout "packed".
--
-- A page is a hash of many buckets: field = first 3 bytes of the band key, value = document numbers (8 bytes each, joined). The last
-- byte of the band key is the last byte of the page's number, because there are always at least 256 pages. The server keeps a small
-- hash as a listpack, so a bucket of one document takes some 17 bytes. A value of more than 64 bytes would end the listpack, so the
-- members of a larger bucket are a string with a key of its own, and the field is empty.
--
-- A page generation has the members inserted during one lifetime, and expires one lifetime after its end. Documents are looked up in the
-- present generation, in the one before and, if the clock has gone back, in the next. A member is in only one generation.
-- Linear hashing (example: _claims.lua): with n pages and the largest power of two b <= n, a band key is on page (key mod 2b), or on
-- page (key mod b) where the first does not exist yet. A new page takes its buckets from one other page.
--
-- Keys: K = prefix .. generation ('<pages> <buckets>'), K .. ':' .. page (a hash), K .. ':=' .. band key (a larger bucket).
-- ARGV[used+1], ARGV[used+2]: prefix of the keys, lifetime in milliseconds ('0' for ever: there is one generation).
-- Fewest pages of a generation; mean number of buckets in a page above which a page is added; longest value in a page, in bytes.
local FEWEST, FULL_PAGE, LARGEST_VALUE = 256, 64, 64
local call, format, sub, unpack_key = redis.call, string.format, string.sub, struct.unpack
local prefix, lifetime = ARGV[used + 1], tonumber(ARGV[used + 2])
local time = call('TIME')
local present_number = lifetime > 0 and math.floor((time[1] * 1000 + time[2] / 1000) / lifetime) or 0
-- Set the number n of pages of a generation, and the least power of two above n, which is 2b.
local function set_pages(generation, pages)
  local _, exponent = math.frexp(pages)
  generation.pages, generation.modulus = pages, 2 ^ exponent
end

-- The existing generations, the present one first.
local generations = {}
for _, number in ipairs({present_number, present_number - 1, present_number + 1}) do
  local key = prefix .. number
  local pages, buckets = string.match(call('GET', key) or '', '^(%d+) (%d+)$')
  if pages or number == present_number then
    local generation = {number = number, key = key, buckets = tonumber(buckets or 0)}
    set_pages(generation, tonumber(pages or FEWEST))
    generations[#generations + 1] = generation
  end
end

local function expire(generation, key)
  if lifetime > 0 then
    call('PEXPIREAT', key, (generation.number + 2) * lifetime)
  end
end

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
  local number = hash % generation.modulus
  return format('%s:%d', generation.key, number < generation.pages and number or number - generation.modulus / 2)
end

-- Key of the members of a larger bucket.
local function own_key(generation, hash, field)
  return generation.key .. ':=' .. field .. string.char(hash % 256)
end

-- The members of a bucket, joined; '' for none.
local function read(generation, hash, field)
  local members = call('HGET', page_of(generation, hash), field)
  return members == '' and call('GET', own_key(generation, hash, field)) or members or ''
end

-- Replace the members of a bucket, which were `before`.
local function write(generation, hash, field, before, members)
  local page, own = page_of(generation, hash), own_key(generation, hash, field)
  if #members > LARGEST_VALUE then
    call('SET', own, members)
    expire(generation, own)
  elseif #before > LARGEST_VALUE then
    call('UNLINK', own)
  end
  if members == '' then
    generation.buckets = generation.buckets - call('HDEL', page, field)
  else
    generation.buckets = generation.buckets + call('HSET', page, field, #members > LARGEST_VALUE and '' or members)
    expire(generation, page)
  end
end

-- The place of a document number in joined members; nil when it is not a member.
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
