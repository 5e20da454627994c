-- Take over a partition in one slot.
--
-- KEYS[1]  the fence
-- ARGV[1]  our generation
-- ARGV[2]  time to live in milliseconds: a deleted consumer group counts from one again
local stored = redis.call('GET', KEYS[1])
if stored and tonumber(stored) > tonumber(ARGV[1]) then
  return redis.error_reply('FENCED ' .. stored .. ' ' .. ARGV[1])
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
