-- Check the fences of a call, and that no call of its writer is late or forgotten (rules 7 and 10 of docs/delivery.md).
-- Included in front of every script that writes; called by index/redis/fenced.py, which explains runs and call numbers.
--
-- KEYS[1]       guard (index/redis/keys.py)
-- KEYS[2..n+1]  fences of the partitions of the call, in this slot
-- KEYS[n+2]     number of the last call of this writer: of its calls in this slot on a cluster, else of those in all slots
-- ARGV[1..n]    expected value of each fence: '<generation>:<writer>'
-- ARGV[n+1]     number of this call: that of its run
-- ARGV[n+2]     least number that KEYS[n+2] must have, or writes were lost; 0 when unknown
-- Sets the local `used` to the number of arguments that are taken here: those of the script begin at ARGV[used+1].
-- Errors UNFENCED (the index was lost, or the fence has expired), FENCED, LATE, FORGOTTEN: scripts.py translates them.
for i = 2, #KEYS - 1 do
  local stored = redis.call('GET', KEYS[i])
  if not stored then
    return redis.error_reply('UNFENCED ' .. KEYS[i])
  end
  if stored ~= ARGV[i - 1] then
    return redis.error_reply('FENCED ' .. stored .. ' ' .. ARGV[i - 1])
  end
end
local used = #KEYS  -- n + 2, as many arguments as keys
do
  local last_call = KEYS[#KEYS]
  local number, least = ARGV[used - 1], ARGV[used]
  local last = redis.call('GET', last_call)
  if last and tonumber(last) > tonumber(number) then
    return redis.error_reply('LATE ' .. last .. ' ' .. number)
  end
  if tonumber(last or 0) < tonumber(least) then
    return redis.error_reply('FORGOTTEN ' .. least)
  end
  -- For an hour: a request that a network has held back for longer is lost.
  redis.call('SET', last_call, number, 'EX', 3600)
end
