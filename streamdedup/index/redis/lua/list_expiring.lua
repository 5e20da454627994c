-- List documents that were placed late and the claims that they made, for backlog expiry.
--
-- After the fences: ARGV  lifetime in milliseconds ('0' for ever), then for each list its key, the number of entries n, and n
--   entries (layout: index/redis/expiry.py). All lists are in this slot; a key names a partition and a slice of time
--   (index/expiry_lists.py). Entries that the list ends with already were listed by an earlier attempt and are not repeated.
local lifetime = ARGV[at + 1]
at = at + 2

local function ends_with(key, first, count)
  local last = redis.call('LRANGE', key, -count, -1)
  for i = 1, count do
    if last[i] ~= ARGV[first + i - 1] then return false end
  end
  return true
end

while at <= #ARGV do
  local key, count = ARGV[at], tonumber(ARGV[at + 1])
  if count > 0 and not ends_with(key, at + 2, count) then
    for i = 1, count do
      redis.call('RPUSH', key, ARGV[at + 1 + i])
    end
  end
  if lifetime ~= '0' then
    redis.call('PEXPIRE', key, lifetime)
  end
  at = at + 2 + count
end
return 1
