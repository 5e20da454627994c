-- Documents enter the buckets of their contents and learn which others are there; adding and reading are one atomic step.
--
-- After the fences: ARGV  prefix of the keys, key of the departures, lifetime in milliseconds ('0' for ever), most members, how
--   many departures were known before the first m documents were met, m, then for each document its content digest (16 bytes)
--   and its number as a decimal text. The first m are inserted on behalf of others, where no document of their cell of contents
--   has departed since: it could be one of them.
-- Returns {members, members, ...}: the others of each document but the first m.
local prefix, departures, lifetime, cap = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4])
local known, met = tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
at = at + 6

local function enter(key, number)
  redis.call('SADD', key, number)
  local others = {}
  for _, member in ipairs(redis.call('SMEMBERS', key)) do
    if member ~= number then
      others[#others + 1] = member
    end
  end
  if #others >= cap then
    -- Any of them may go: all have the same content, and members are hints.
    redis.call('SREM', key, others[#others])
  end
  if lifetime ~= '0' then
    redis.call('PEXPIRE', key, lifetime)
  end
  return others
end

local result = {}
for i = 1, (#ARGV - at) / 2 do
  local digest, number = ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
  if i > met then
    result[i - met] = enter(prefix .. digest, number)
  elseif tonumber(redis.call('HGET', departures, string.sub(digest, 5, 5)) or 0) <= known then
    enter(prefix .. digest, number)
  end
end
return result
