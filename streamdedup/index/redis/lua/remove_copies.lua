-- Take documents out of the buckets of their contents, and count the departure.
--
-- After the fences: ARGV  prefix of the keys, key of the departures, then for each document its content digest (16 bytes) and
--   its number as a decimal text.
-- The departures: field 'count' how many calls there were, and for each cell of contents, named by one byte of the digest, the
--   number of the last that took one of them out. A call that is repeated counts twice, which does no harm.
local prefix, departures = ARGV[at + 1], ARGV[at + 2]
at = at + 2
local count = string.format('%d', (redis.call('HGET', departures, 'count') or 0) + 1)
redis.call('HSET', departures, 'count', count)
for i = 1, (#ARGV - at) / 2 do
  local digest = ARGV[at + 2 * i - 1]
  redis.call('SREM', prefix .. digest, ARGV[at + 2 * i])
  redis.call('HSET', departures, string.sub(digest, 5, 5), count)
end
return 1
