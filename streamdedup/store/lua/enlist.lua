-- List what was placed long after its record time, and the claims it made, so that both can go when their time is over.
--
-- After the fences: ARGV  lifetime in milliseconds ('0' for ever), then for each list its key, the number of entries n, and n
--   entries (layout: store/redis_ages.py). All lists stand in this slot.
local lifetime = ARGV[at + 1]
at = at + 2
while at <= #ARGV do
  local key, count = ARGV[at], tonumber(ARGV[at + 1])
  for i = 1, count do
    redis.call('RPUSH', key, ARGV[at + 1 + i])
  end
  if lifetime ~= '0' then
    redis.call('PEXPIRE', key, lifetime)
  end
  at = at + 2 + count
end
return 1
