-- Claim pairs of one slot: a pair belongs to the position that asks first.
--
-- After the fences: ARGV  prefix of claim keys, lifetime in milliseconds ('0' for ever), then for each pair its key and the
--   position.
-- Returns for each pair 1 when it belongs to that position, else 0.
local prefix, lifetime = ARGV[at + 1], ARGV[at + 2]
at = at + 2
local result = {}
for i = 1, (#ARGV - at) / 2 do
  local key, position = prefix .. ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
  local owner
  if lifetime == '0' then
    owner = redis.call('SET', key, position, 'NX', 'GET')
  else
    owner = redis.call('SET', key, position, 'NX', 'GET', 'PX', lifetime)
  end
  result[i] = (not owner or owner == position) and 1 or 0
end
return result
