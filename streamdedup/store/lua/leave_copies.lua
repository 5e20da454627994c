-- Take documents out of the buckets of their contents.
--
-- After the fences: ARGV  prefix of the keys, then for each document its content digest (16 bytes) and its number as a
--   decimal text.
local prefix = ARGV[at + 1]
at = at + 1
for i = 1, (#ARGV - at) / 2 do
  redis.call('SREM', prefix .. ARGV[at + 2 * i - 1], ARGV[at + 2 * i])
end
return 1
