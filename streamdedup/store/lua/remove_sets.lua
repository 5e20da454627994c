-- Remove documents from their buckets of one slot, each a set of document numbers.
--
-- After the fences: ARGV  prefix of bucket keys, lifetime (not used), band keys (4 bytes for each of n documents, joined), document
--   numbers as decimal texts, joined by spaces.
local prefix, band_keys = ARGV[at + 1], ARGV[at + 3]
local i = 0
for number in string.gmatch(ARGV[at + 4], '%S+') do
  i = i + 1
  redis.call('SREM', prefix .. string.sub(band_keys, 4 * i - 3, 4 * i), number)
end
return 1
