-- Insert documents in the buckets of their contents and return the other members; one atomic step (rules 2 and 9).
-- include: _fence
-- ARGV[used+1]    prefix of the buckets; the content digest follows
-- ARGV[used+2]    key of the removals (remove_copies.lua)
-- ARGV[used+3]    time to live in milliseconds
-- ARGV[used+4]    cap of a bucket
-- ARGV[used+5]    count of removals that the caller read before it read the documents outside the batch
-- ARGV[used+6]    number m of documents outside the batch. One is left out if a document in its cell of contents (fifth byte of the
--                 digest) was removed since the count was read: it could be this document
-- ARGV[used+7..]  for each document, those outside the batch first: content digest (16 bytes), number as decimal text
-- Returns {members, members, ...}: the other members, the latest first, for each document after the first m.
local prefix, removals, lifetime, cap = ARGV[used + 1], ARGV[used + 2], ARGV[used + 3], tonumber(ARGV[used + 4])
local known_removals, outside_count = tonumber(ARGV[used + 5]), tonumber(ARGV[used + 6])
used = used + 6

local function insert(key, number)
  local members, others = redis.call('ZREVRANGE', key, 0, -1, 'WITHSCORES'), {}
  for i = 1, #members, 2 do
    if members[i] ~= number then
      others[#others + 1] = members[i]
    end
  end
  local latest_score = members[2] or 0
  redis.call('ZADD', key, latest_score + 1, number)
  -- The oldest member may be removed: its entry expires first, and members are hints.
  redis.call('ZREMRANGEBYRANK', key, 0, -cap - 1)
  redis.call('PEXPIRE', key, lifetime, #members == 0 and 'NX' or 'GT')  -- never shorter, as in insert_sets.lua
  return others
end

local result = {}
for i = 1, (#ARGV - used) / 2 do
  local digest, number = ARGV[used + 2 * i - 1], ARGV[used + 2 * i]
  if i > outside_count then
    result[i - outside_count] = insert(prefix .. digest, number)
  elseif tonumber(redis.call('HGET', removals, string.sub(digest, 5, 5)) or 0) <= known_removals then
    insert(prefix .. digest, number)
  end
end
return result
