-- Linear hashing (W. Litwin, 1980): the pages of one generation, for _claims.lua and _pages.lua. They also set `prefix`,
-- with which the keys of its pages begin.
--
-- With n pages and the least power of two m above n, a hash is on page (hash mod m) if that page exists, else on page (hash mod m/2):
-- with 5 pages, hash 12 is on page 4 (12 mod 8), hash 13 on page 1 (13 mod 4). Page 5, when it is added, takes hash 13 from page 1.
local format = string.format

local function set_pages(generation, pages)
  local _, exponent = math.frexp(pages)
  generation.pages, generation.modulus = pages, 2 ^ exponent
end

local function page_number(generation, hash)
  local number = hash % generation.modulus
  return number < generation.pages and number or number - generation.modulus / 2
end

local function page_key(generation, number)
  return format('%s%d', generation.prefix, number)
end

-- Add a page, move its fields from the page that has had them so far, and return its number. `hash_of(field, page number)`
-- returns the hash of a field that may belong to this page.
local function add_page(generation, hash_of)
  local new = generation.pages
  local from, to = page_key(generation, new - generation.modulus / 2), page_key(generation, new)
  set_pages(generation, new + 1)
  local fields_and_values, moved, fields = redis.call('HGETALL', from), {}, {}
  for i = 1, #fields_and_values, 2 do
    local field = fields_and_values[i]
    if page_number(generation, hash_of(field, new)) == new then
      fields[#fields + 1] = field
      moved[#moved + 1], moved[#moved + 2] = field, fields_and_values[i + 1]
    end
  end
  -- At most 1,000 fields in one command: `unpack` puts its values on the stack of Lua, which is limited.
  for first = 1, #fields, 1000 do
    local last = math.min(first + 999, #fields)
    redis.call('HSET', to, unpack(moved, 2 * first - 1, 2 * last))
    redis.call('HDEL', from, unpack(fields, first, last))
  end
  return new
end
