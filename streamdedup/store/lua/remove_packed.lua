-- Remove documents from their buckets of one slot, which are fields of bucket pages.
--
-- After the fences: ARGV  prefix of the pages, lifetime in milliseconds ('0' for ever), band keys (4 bytes for each of n documents,
--   joined), document numbers (8 bytes each, joined).
local prefix, lifetime, band_keys, numbers = ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3], ARGV[at + 4]

local function remove(generation, band_key, number)
  local page = page_of(generation, band_key)
  local members = read_bucket(generation, page, band_key)
  local place = members and place_of(number, members)
  if not place then
    return
  end
  local rest = sub(members, 1, place - 1) .. sub(members, place + 8)
  local is_own = call('HSTRLEN', page, band_key) == 0
  if rest == '' then
    if is_own then
      call('UNLINK', own_key(generation, band_key))
    end
    generation.buckets = generation.buckets - call('HDEL', page, band_key)
  elseif is_own then
    call('SET', own_key(generation, band_key), rest, 'KEEPTTL')
  else
    call('HSET', page, band_key, rest)
  end
end

for _, generation in ipairs(read_generations(prefix, present_number(lifetime), lifetime)) do
  for i = 1, #numbers / 8 do
    remove(generation, sub(band_keys, 4 * i - 3, 4 * i), sub(numbers, 8 * i - 7, 8 * i))
  end
  -- A count that only grew would add pages without end where documents are replaced for ever.
  call('SET', generation.key, format('%d %d', generation.pages, generation.buckets), 'KEEPTTL')
end
return 1
