-- Layout "sets": remove documents from their buckets of one slot.
-- include: _fence
-- ARGV[used+1]     prefix of the buckets; ARGV[used+2] is for remove_packed only
-- ARGV[used+3..4]  band keys and document numbers, as ARGV[used+5..6] of insert_sets
local prefix, band_keys, i = ARGV[used + 1], ARGV[used + 3], 0
for number in string.gmatch(ARGV[used + 4], '%S+') do
  i = i + 1
  redis.call('SREM', prefix .. string.sub(band_keys, 4 * i - 3, 4 * i), number)
end
return 1
