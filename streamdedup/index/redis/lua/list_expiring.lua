-- List documents that were inserted late and the claims that they asked for, for backlog expiry (rule 12 of index/contract.py).
-- include: _fence
--
-- ARGV[at+1]    time to live in milliseconds ('0' for ever)
-- ARGV[at+2..]  for each list: its key, number n of entries, n entries (index/entries.py). All lists are in this slot; a key names
--               a partition and a slice of time (index/expiry.py).
-- If a list ends with the given entries already, an earlier attempt has appended them, and they are not repeated.
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
