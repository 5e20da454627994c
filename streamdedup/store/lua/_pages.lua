-- Bucket pages of one slot. Put in front of the scripts of the layout "packed".
--
-- A page is a hash of many buckets: field = band key (4 bytes), value = the document numbers of the bucket (8 bytes each, joined). A
-- small hash is a list in memory, so a bucket of one document takes some 18 bytes. The list ends at values of more than 64 bytes,
-- so a bucket of more than MOST_IN_PAGE members is a string of its own, and its field is empty.
--
-- Page generation: floor(time / lifetime). Documents are inserted into the present generation and looked for in this one and the
-- one before, so a member is found for at least one lifetime. All keys of a generation expire at its end plus one lifetime. Without
-- a lifetime there is one generation. The generation after the present one exists after the clock went back.
--
-- Pages grow by linear hashing (W. Litwin, 1980): with n pages and the largest power of two b <= n, a band key is on page
-- key mod 2b, or key mod b where this page does not exist yet. A new page takes its buckets from one other page. A generation begins
-- with as many pages as the generation before needs.
--
-- Keys: prefix .. generation            string: '<pages> <buckets>'
--       prefix .. generation:page       hash: a page
--       prefix .. generation:=band key  string: the members of a large bucket
local FEWEST_PAGES, FULL_PAGE, MOST_IN_PAGE = 1024, 64, 8
local call, format, find, sub = redis.call, string.format, string.find, string.sub
local floor = math.floor

local function present_number(lifetime)
  if lifetime == 0 then
    return 0
  end
  local time = call('TIME')
  return floor((time[1] * 1000 + time[2] / 1000) / lifetime)
end

local function set_pages(generation, pages)
  generation.pages = pages
  generation.base = FEWEST_PAGES
  while 2 * generation.base <= pages do
    generation.base = 2 * generation.base
  end
end

-- The generations that members are looked for in.
local function read_generations(prefix, present, lifetime)
  local found = {}
  for _, number in ipairs(lifetime == 0 and {0} or {present, present - 1, present + 1}) do
    local key = format('%s%.0f', prefix, number)
    local pages, buckets = string.match(call('GET', key) or '', '^(%d+) (%d+)$')
    if pages then
      local generation = {key = key, number = number, buckets = tonumber(buckets)}
      set_pages(generation, tonumber(pages))
      found[#found + 1] = generation
    end
  end
  return found
end

-- The key of the page of a bucket.
local function page_of(generation, band_key)
  local hash = struct.unpack('>I4', band_key)
  local number = hash % (2 * generation.base)
  if number >= generation.pages then
    number = hash % generation.base
  end
  return format('%s:%d', generation.key, number)
end

-- The key of a bucket that is too large for its page.
local function own_key(generation, band_key)
  return generation.key .. ':=' .. band_key
end

-- The members of a bucket, joined; nil where its page does not have the bucket.
local function read_bucket(generation, page, band_key)
  local members = call('HGET', page, band_key)
  return members == '' and (call('GET', own_key(generation, band_key)) or '') or members or nil
end

-- Where a document number begins in the members of a bucket; nil where it is not among them.
local function place_of(number, members)
  local place = find(members, number, 1, true)
  while place and place % 8 ~= 1 do
    place = find(members, number, place + 1, true)
  end
  return place
end
