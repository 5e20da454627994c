-- Layout "sets": remove documents from their buckets of one slot.
-- include: _fence _sets
-- ARGV[used+1]     prefix of the buckets; ARGV[used+2] is for remove_packed only
-- ARGV[used+3..4]  band keys and document numbers, as ARGV[used+5..6] of insert_sets
local prefix, band_keys, i = ARGV[used + 1], ARGV[used + 3], 0
for number in string.gmatch(ARGV[used + 4], '%S+') do
  i = i + 1
  local key = prefix .. sub(band_keys, 4 * i - 3, 4 * i)
  local earlier = earlier_part(key)
  if call('SREM', key, number) == 0 then
    call('SREM', earlier, number)
  elseif call('EXISTS', key) == 0 and call('EXISTS', earlier) == 1 then
    call('RENAME', earlier, key)  -- no earlier part without a later one
  end
end
return 1
