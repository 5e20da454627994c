-- Set the event-time watermarks of partitions.
--
-- After the fences: ARGV  key of the watermarks, lifetime in milliseconds ('0' to leave it unchanged, and to set nothing where
--   there are no watermarks), then for each partition its name and its watermark.
-- Returns {partition, watermark, ...}: those of all partitions.
local key, lifetime = ARGV[at + 1], ARGV[at + 2]
at = at + 2
if lifetime == '0' and redis.call('EXISTS', key) == 0 then
  return {}
end
for i = 1, (#ARGV - at) / 2 do
  redis.call('HSET', key, ARGV[at + 2 * i - 1], ARGV[at + 2 * i])
end
if lifetime ~= '0' then
  redis.call('PEXPIRE', key, lifetime)
end
return redis.call('HGETALL', key)
