-- Insert documents into their buckets of one slot, which are fields of bucket pages, and return the other members. Insertion and
-- reading are one atomic step, so of two documents that race at least one sees the other.
--
-- After the fences: ARGV  prefix of the pages, lifetime in milliseconds ('0' for ever), cap ('0' for none), how many members of a
--   full bucket to return, band keys (4 bytes for each of n documents, joined), document numbers (8 bytes each, joined).
-- Returns {{i, ...}, {i, ...}, i, members, i, members, ...}: the documents whose bucket is full, the documents whose bucket has at
--   least half of its cap in other members, then the index of each document with other members, and these, joined.
local prefix, lifetime, cap, shown = ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
local band_keys, numbers = ARGV[at + 5], ARGV[at + 6]
local number_of_present = present_number(lifetime)
local present, others = nil, {}
local most_buckets = 0
for _, generation in ipairs(read_generations(prefix, number_of_present, lifetime)) do
  most_buckets = math.max(most_buckets, generation.buckets)
  if generation.number == number_of_present then
    present = generation
  else
    others[#others + 1] = generation
  end
end
if not present then
  present = {key = format('%s%.0f', prefix, number_of_present), buckets = 0}
  set_pages(present, math.max(FEWEST_PAGES, math.ceil(most_buckets / FULL_PAGE)))
end

local function expire(key)
  if lifetime > 0 then
    call('PEXPIREAT', key, format('%.0f', (number_of_present + 2) * lifetime))
  end
end

-- Add a page: it takes its buckets from one other page.
local function add_page()
  local from = format('%s:%d', present.key, present.pages - present.base)
  local to = format('%s:%d', present.key, present.pages)
  set_pages(present, present.pages + 1)
  local buckets, moved, left = call('HGETALL', from), {}, {}
  for at_field = 1, #buckets, 2 do
    if page_of(present, buckets[at_field]) == to then
      moved[#moved + 1], moved[#moved + 2] = buckets[at_field], buckets[at_field + 1]
      left[#left + 1] = buckets[at_field]
    end
  end
  for first = 1, #left, 1000 do
    local last = math.min(first + 999, #left)
    call('HSET', to, unpack(moved, 2 * first - 1, 2 * last))
    call('HDEL', from, unpack(left, first, last))
  end
  expire(to)
end

-- Begin a bucket; false where the page has the bucket already.
local function begin(page, band_key, number)
  if call('HSETNX', page, band_key, number) == 0 then
    return false
  end
  present.buckets = present.buckets + 1
  if call('HLEN', page) == 1 then
    expire(page)
  end
  return true
end

-- Add a document to a bucket that its page has. members: of the bucket.
local function add(page, band_key, members, number)
  if call('HSTRLEN', page, band_key) == 0 then
    call('APPEND', own_key(present, band_key), number)
  elseif #members < 8 * MOST_IN_PAGE then
    call('HSET', page, band_key, members .. number)
  else
    call('SET', own_key(present, band_key), members .. number)
    expire(own_key(present, band_key))
    call('HSET', page, band_key, '')
  end
end

-- The members of a bucket in other generations, joined.
local function members_of_others(band_key)
  local found = ''
  for _, generation in ipairs(others) do
    found = found .. (read_bucket(generation, page_of(generation, band_key), band_key) or '')
  end
  return found
end

-- Members of several generations, joined, each once.
local function each_once(members)
  local found, seen = {}, {}
  for place = 1, #members, 8 do
    local member = sub(members, place, place + 7)
    if not seen[member] then
      found[#found + 1] = member
    end
    seen[member] = true
  end
  return table.concat(found)
end

local full, near_capacity = {}, {}
local result = {full, near_capacity}
-- Buckets that this call has found with members: the members of all generations, joined, each once. A storm of copies puts all
-- documents of a call into one bucket: with a loop over its members for each document the call takes hundreds of milliseconds.
local known = {}

-- The members of a bucket in all generations, joined, each once. members: on the page of the present generation, or nil; earlier:
-- in other generations.
local function all_members(band_key, members, earlier)
  if not known[band_key] then
    local is_unique = earlier == '' or ((not members or members == '') and #others == 1)
    known[band_key] = (members or '') .. earlier
    if not is_unique then
      known[band_key] = each_once(known[band_key])
    end
  end
  return known[band_key]
end

-- Insert document i into a bucket that has members, and return these. Arguments: see above.
local function insert(i, number, band_key, page, members, earlier)
  local all = all_members(band_key, members, earlier)
  local place = place_of(number, all)
  local met = place and sub(all, 1, place - 1) .. sub(all, place + 8) or all
  local count = #met / 8
  if cap > 0 and 2 * count >= cap then
    near_capacity[#near_capacity + 1] = i
  end
  if cap > 0 and count >= cap and not place then
    full[#full + 1] = i
    local a, b = string.byte(number, 7, 8)
    local first = (a * 256 + b) % math.max(1, count - shown + 1)
    met = sub(met, 8 * first + 1, 8 * (first + shown))
  else
    if not members then
      begin(page, band_key, number)
    elseif not place_of(number, members) then
      add(page, band_key, members, number)
    end
    known[band_key] = place and all or all .. number
  end
  if #met > 0 then
    result[#result + 1] = i
    result[#result + 1] = met
  end
end

for i = 1, #numbers / 8 do
  local band_key, number = sub(band_keys, 4 * i - 3, 4 * i), sub(numbers, 8 * i - 7, 8 * i)
  local page, earlier = page_of(present, band_key), #others > 0 and members_of_others(band_key) or ''
  if earlier ~= '' or not begin(page, band_key, number) then
    insert(i, number, band_key, page, read_bucket(present, page, band_key), earlier)
  end
end

while present.buckets > FULL_PAGE * present.pages do
  add_page()
end
call('SET', present.key, format('%d %d', present.pages, present.buckets))
expire(present.key)
return result
