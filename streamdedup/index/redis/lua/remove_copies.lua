-- Remove documents from the buckets of their contents, and count the removal (rule 9 of docs/delivery.md).
-- include: _fence
-- ARGV[used+1]    prefix of the buckets; the content digest follows
-- ARGV[used+2]    key of the removals: a hash with the number of calls so far ('count') and, for each cell of contents (the fifth byte
--                 of the digest, because the first four choose the slot), the value of 'count' at the last removal in the cell. A
--                 repeated call counts twice, which does no harm.
-- ARGV[used+3..]  for each document: content digest (16 bytes), number as decimal text
-- Returns for each document 1 where it was a member of its bucket, else 0.
local prefix, removals = ARGV[used + 1], ARGV[used + 2]
used = used + 2
local result = {}
local count = string.format('%d', (redis.call('HGET', removals, 'count') or 0) + 1)
redis.call('HSET', removals, 'count', count)
for i = 1, (#ARGV - used) / 2 do
  local digest = ARGV[used + 2 * i - 1]
  result[i] = redis.call('ZREM', prefix .. digest, ARGV[used + 2 * i])
  redis.call('HSET', removals, string.sub(digest, 5, 5), count)
end
return result
