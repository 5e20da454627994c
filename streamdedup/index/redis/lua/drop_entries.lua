-- Drop document records of one slot, each where it still is that of a time and a position.
--
-- After the fences: ARGV  prefix of record keys, then for each document its number (8 bytes) and bytes 17 to the end of the
--   partition of its record (time, offset, length, partition).
local prefix = ARGV[at + 1]
at = at + 1
for i = 1, (#ARGV - at) / 2 do
  local key, listed = prefix .. ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
  if redis.call('GETRANGE', key, 17, 16 + #listed) == listed then
    redis.call('UNLINK', key)
  end
end
return 1
