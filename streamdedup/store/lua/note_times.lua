-- Note how far in record time partitions have come, never less than before.
--
-- After the fences: ARGV  key of the times, lifetime in milliseconds ('0' to leave it as it is, and do nothing when they are
--   gone), then for each partition its name and its time.
-- Returns {partition, time, ...}: what is noted of all.
local key, lifetime = ARGV[at + 1], ARGV[at + 2]
at = at + 2
if lifetime == '0' and redis.call('EXISTS', key) == 0 then
  return {}
end
for i = 1, (#ARGV - at) / 2 do
  local partition, time = ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
  local stored = redis.call('HGET', key, partition)
  if not stored or tonumber(stored) < tonumber(time) then
    redis.call('HSET', key, partition, time)
  end
end
if lifetime ~= '0' then
  redis.call('PEXPIRE', key, lifetime)
end
return redis.call('HGETALL', key)
