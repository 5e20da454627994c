-- Put in front of every script that writes: refuse when somebody else owns one of the partitions concerned by now, when a later
-- call of the same store has been here already, or when an earlier one has been forgotten.
--
-- KEYS[1]       a key that is never there, in the slot that the script works on: see index/redis/keys.py
-- KEYS[2..n+1]  the fences of those partitions, in the same slot
-- KEYS[n+2]     number of the store's last call in this slot
-- ARGV[1..n]    what we have set for each of them: generation and store
-- ARGV[n+1]     number of this call
-- ARGV[n+2]     number of the store's last call here that was acknowledged; 0 when that is not known
-- Leaves behind: `at`, the index of the last argument used up.
--
-- An absent fence is refused too: we have set it, so the index was lost since.
for i = 2, #KEYS - 1 do
  local stored = redis.call('GET', KEYS[i])
  if not stored then
    return redis.error_reply('UNFENCED ' .. KEYS[i])
  end
  if stored ~= ARGV[i - 1] then
    return redis.error_reply('FENCED ' .. stored .. ' ' .. ARGV[i - 1])
  end
end
local at = #KEYS
do
  local order = KEYS[#KEYS]
  local number, acknowledged = ARGV[at - 1], ARGV[at]
  local last = redis.call('GET', order)
  if last and tonumber(last) > tonumber(number) then
    return redis.error_reply('LATE ' .. last .. ' ' .. number)
  end
  if tonumber(last or 0) < tonumber(acknowledged) then
    return redis.error_reply('FORGOTTEN ' .. acknowledged)
  end
  -- For an hour: what a network has held back for so long is lost.
  redis.call('SET', order, number, 'EX', 3600)
end

