-- Set the event-time watermarks of partitions and return those of all partitions (rule 12 of index/contract.py).
-- include: _fence
--
-- ARGV[at+1]    key of the watermarks
-- ARGV[at+2]    time to live in milliseconds ('0' to keep it, and to set nothing where there are no watermarks)
-- ARGV[at+3..]  for each partition: its name, its watermark
-- Returns {partition, watermark, ...}.
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
