-- Layout "sets": read buckets of one slot without inserting.
-- include: _sets
-- KEYS[1]  guard (index/redis/keys.py)
-- ARGV[1]  prefix of the buckets
-- ARGV[2]  lifetime in milliseconds, for look_up_packed only
-- ARGV[3]  band keys (4 bytes each, joined)
-- Returns {i, members, i, members, ...} for each band key that has a bucket.
local prefix, band_keys, result = ARGV[1], ARGV[3], {}
for i = 1, #band_keys / 4 do
  local key = prefix .. sub(band_keys, 4 * i - 3, 4 * i)
  local members = call('SMEMBERS', key)
  if #members > 0 then
    result[#result + 1], result[#result + 2] = i, joined(members, call('SMEMBERS', earlier_part(key)))
  end
end
return result
