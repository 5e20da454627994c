-- Take documents out of their buckets of one slot.
--
-- After the fences: ARGV  prefix of bucket keys, band keys (4 bytes for each of n documents, joined), then n document numbers
--   as decimal texts.
local prefix, band_keys = ARGV[at + 1], ARGV[at + 2]
at = at + 2
for i = 1, #ARGV - at do
  redis.call('SREM', prefix .. string.sub(band_keys, 4 * i - 3, 4 * i), ARGV[at + i])
end
return 1
