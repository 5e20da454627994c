-- Set the cluster of documents of one slot, where the record is still the version meant.
--
-- After the fences: ARGV  prefix of record keys, then for each document its number (8 bytes), bytes 34 to the end of the
--   partition of its record (offset, length, partition: the position), and the cluster (8 bytes).
local prefix = ARGV[at + 1]
at = at + 1
for i = 1, (#ARGV - at) / 3 do
  local key, position, cluster = prefix .. ARGV[at + 3 * i - 2], ARGV[at + 3 * i - 1], ARGV[at + 3 * i]
  if redis.call('GETRANGE', key, 33, 32 + #position) == position then
    redis.call('SETRANGE', key, 1, cluster)
  end
end
return 1
