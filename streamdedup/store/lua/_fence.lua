-- Put in front of every script that writes: refuse when a later generation owns one of the partitions concerned.
--
-- KEYS[1]       a key that is never there, in the slot that the script works on: see store/redis_keys.py
-- KEYS[2..n+1]  the fences of those partitions, in the same slot
-- ARGV[1..n]    our generation for each of them
-- Leaves behind: `at`, the index of the last argument used up.
--
-- An absent fence is refused too: we have set it, so the index was lost since.
for i = 2, #KEYS do
  local stored = redis.call('GET', KEYS[i])
  if not stored then
    return redis.error_reply('UNFENCED ' .. KEYS[i])
  end
  if tonumber(stored) > tonumber(ARGV[i - 1]) then
    return redis.error_reply('FENCED ' .. stored .. ' ' .. ARGV[i - 1])
  end
end
local at = #KEYS - 1

