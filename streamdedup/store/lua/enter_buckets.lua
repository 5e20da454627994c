-- Documents enter their buckets of one slot and learn who else is there. Adding and reading are one atomic step, so of two
-- documents that race at least one sees the other.
--
-- After the fences: ARGV  prefix of bucket keys, lifetime in milliseconds ('0' for ever), cap ('0' for none), how many
--   members of a full bucket to show, band keys (4 bytes for each of n documents, joined), then n document numbers as decimal
--   texts (integers keep a small set compact).
-- Returns {{i, ...}, {i, ...}, i, members, i, members, ...}: the documents that met a full bucket, those that met one with at
--   least half as many others as it can hold, then for each document that met others its index among the n and the members.
local prefix, lifetime, cap, shown, band_keys = ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3]), ARGV[at + 4], ARGV[at + 5]
at = at + 5
local full, crowded = {}, {}
local result = {full, crowded}
for i = 1, #ARGV - at do
  local number = ARGV[at + i]
  local key = prefix .. string.sub(band_keys, 4 * i - 3, 4 * i)
  local count = redis.call('SCARD', key)
  if cap > 0 and count >= cap and redis.call('SISMEMBER', key, number) == 0 then
    crowded[#crowded + 1] = i
    full[#full + 1] = i
    result[#result + 1] = i
    result[#result + 1] = redis.call('SRANDMEMBER', key, shown)
  else
    count = count + redis.call('SADD', key, number)
    if cap > 0 and 2 * (count - 1) >= cap then
      crowded[#crowded + 1] = i
    end
    if lifetime ~= '0' then
      redis.call('PEXPIRE', key, lifetime)
    end
    if count > 1 then
      result[#result + 1] = i
      result[#result + 1] = redis.call('SMEMBERS', key)
    end
  end
end
return result
