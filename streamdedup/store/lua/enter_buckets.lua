-- Documents enter their buckets of one slot and learn who else is there. Reading and adding are one atomic step, so of two
-- documents that race at least one sees the other.
--
-- After the fences: ARGV  prefix of bucket keys, lifetime in milliseconds ('0' for ever), cap ('0' for none), band keys
--   (4 bytes for each of n documents, joined), then n document numbers as decimal texts (integers keep a small set compact).
-- Returns {full, i, members, i, members, ...}: how often a bucket was full, then for each document that met others its index
--   among the n and the members it met.
local prefix, lifetime, cap, band_keys = ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3]), ARGV[at + 4]
at = at + 4
local result = {0}
for i = 1, #ARGV - at do
  local number = ARGV[at + i]
  local key = prefix .. string.sub(band_keys, 4 * i - 3, 4 * i)
  local members = redis.call('SMEMBERS', key)
  local inside = false
  for _, member in ipairs(members) do
    if member == number then
      inside = true
      break
    end
  end
  if inside or cap == 0 or #members < cap then
    if not inside then
      redis.call('SADD', key, number)
    end
    if lifetime ~= '0' then
      redis.call('PEXPIRE', key, lifetime)
    end
  else
    result[1] = result[1] + 1
  end
  if #members > 1 or (#members == 1 and not inside) then
    result[#result + 1] = i
    result[#result + 1] = members
  end
end
return result
