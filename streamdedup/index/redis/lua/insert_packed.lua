-- Layout "packed": insert documents in their buckets of one slot; where a bucket existed, return its earlier members.
-- include: _fence _linear_hashing _pages
-- ARGV[used+1..2]  see _pages.lua, which has the layout and reads the page generations into `generations`, the present one first
-- ARGV[used+3]     cap of a bucket ('0' for none)
-- ARGV[used+4]     number of members of a full bucket to return
-- ARGV[used+5]     band keys (4 bytes for each of n documents, joined)
-- ARGV[used+6]     n document numbers (8 bytes each, joined)
-- Returns {i, members, i, members, ...}: the row i (from 1 on) of each document whose bucket existed, and the earlier members (8 bytes
--   each, joined), the document among them if it was a member; -i and some members where the bucket is full, so that it is not inserted.
local cap, shown, band_keys, numbers = tonumber(ARGV[used + 3]), tonumber(ARGV[used + 4]), ARGV[used + 5], ARGV[used + 6]
local present, result = generations[1], {}
-- A new page generation begins with as many pages as the largest other one needs for its buckets.
if present.buckets == 0 then
  for g = 2, #generations do
    set_pages(present, math.max(present.pages, math.ceil(generations[g].buckets / FULL_PAGE)))
  end
end

-- The band key of a field that belongs to page `number` or stays: its last byte is that of the page's number.
local function hash_of(field, number)
  return unpack_key('>I3', field) * 256 + number % 256
end

for i = 1, #numbers / 8 do
  local hash, field = bucket_at(i, band_keys)
  local number, others = sub(numbers, 8 * i - 7, 8 * i), ''
  for g = 2, #generations do
    others = others .. read(generations[g], hash, field)
  end
  local page = page_of(present, hash)
  if others == '' and call('HSETNX', page, field, number) == 1 then  -- a new bucket
    present.buckets = present.buckets + 1
    if call('HLEN', page) == 1 then
      expire(present, page)
    end
  else
    local in_present = read(present, hash, field)
    local members, row = in_present .. others, i
    local is_member = place_of(number, members) ~= nil
    if cap > 0 and #members >= 8 * cap and not is_member then  -- a full bucket
      row = -i
      -- Neighbouring members, from a place that depends on the document: different documents get different members.
      local first = unpack_key('>I2', number, 7) % math.max(1, #members / 8 - shown + 1)
      members = sub(members, 8 * first + 1, 8 * (first + shown))
    elseif not place_of(number, in_present) then
      if is_member then  -- of another generation: it moves to the present one
        for g = 2, #generations do
          remove(generations[g], hash, field, number)
        end
      end
      write(present, hash, field, in_present, in_present .. number)
    end
    result[#result + 1], result[#result + 2] = row, members
  end
  if present.buckets > FULL_PAGE * present.pages then
    expire(present, page_key(present, add_page(present, hash_of)))
  end
end
save_generations()
return result
