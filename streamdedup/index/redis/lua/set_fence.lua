-- Take over a partition in one slot and return its announced attempt (rules 7 and 11 of docs/delivery.md).
-- KEYS[1]  guard (index/redis/keys.py)
-- KEYS[2]  the fence
-- ARGV[1]  value of the fence: '<generation>:<writer>'. A static member that comes back has the generation of the process before, so the
--          generation alone would not distinguish the two.
-- ARGV[2]  time to live in milliseconds: a deleted consumer group counts its generations from one again
-- ARGV[3]  key of the announced attempt
-- Returns the announced attempt as announce_attempt stores it ('' for none).
-- Error FENCED: a later generation has the partition.
local function generation(fence)
  return tonumber(string.match(fence, '^%d+'))
end

local stored = redis.call('GET', KEYS[2])
if stored and generation(stored) > generation(ARGV[1]) then
  return redis.error_reply('FENCED ' .. stored .. ' ' .. ARGV[1])
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return redis.call('GET', ARGV[3]) or ''
